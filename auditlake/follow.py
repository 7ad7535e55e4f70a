"""Follow: capture and apply together, until stopped or until a target is in `history`.

Capture runs in a thread (it waits in select, which lets go of the interpreter), apply in the caller's. They share
nothing but the lake, so they may as well run as two processes (`auditlake capture`, `auditlake apply`).
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_tail
from auditlake.capture.opening import Say
from auditlake.capture.running import Task, run_capture
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import TableName

# A MERGE costs the same for ten changes as for ten thousand: let some gather.
_BATCH_INTERVAL_S = 2.0
_POLL_S = 0.1


class Applier:
    """Applies again and again; remembers how far idle tables were looked through."""

    def __init__(self, lake: Lake, spark: SparkSession, say: Say) -> None:
        self._lake = lake
        self._spark = spark
        self._say = say
        self._reached: Mapping[TableName, Lsn] = {}

    def apply(self) -> None:
        """Apply what `changes` holds now."""
        applied = apply_tail(self._spark, self._lake, known=self._reached)
        self._reached = applied.upto
        for table, rows in applied.rows.items():
            self._say(f"applied {rows:,} changes to {table}")


def run_apply(applier: Applier, stop: threading.Event, *, once: bool) -> None:
    """Apply what `changes` holds, once or until `stop`."""
    while not stop.is_set():
        applier.apply()
        if once or stop.wait(_BATCH_INTERVAL_S):
            return


def follow(task: Task, start_spark: Callable[[], SparkSession], stop: threading.Event, say: Say) -> None:
    """Capture and apply until the task's target is in `history`, or until `stop`."""
    with ThreadPoolExecutor(1) as pool:
        tried = threading.Event()
        capturing = pool.submit(run_capture, task, stop, say, tried)
        capturing.add_done_callback(lambda _: tried.set())
        try:
            tried.wait()
            if capturing.done():
                capturing.result()  # a refusal does not wait for a JVM
            applier = Applier(task.lake, start_spark(), say)
            while not _capture_ended(capturing, stop):
                applier.apply()
            finish = not stop.is_set()
        finally:
            stop.set()
        capturing.result()
        if finish:
            applier.apply()


def _capture_ended(capturing: Future[None], stop: threading.Event) -> bool:
    """Wait until it is time for the next batch (False), or capture or the run has ended (True)."""
    waited_s = 0.0
    while waited_s < _BATCH_INTERVAL_S and not (capturing.done() or stop.is_set()):
        stop.wait(_POLL_S)
        waited_s += _POLL_S
    return capturing.done() or stop.is_set()
