"""Follow: capture and apply together, until stopped or until a target is in `history`.

Capture runs in a thread (it waits in select, which lets go of the interpreter), apply in the caller's. They share
nothing but the lake, so they may as well run as two processes (`auditlake capture`, `auditlake apply`).
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_tail
from auditlake.apply.warmup import warm_up
from auditlake.capture.claiming import Say
from auditlake.capture.running import Task, run_capture
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.maintain import Upkeep
from auditlake.relation import TableName

# A batch costs seconds however few changes it has: let some gather, for as long as the last one took or longer.
_BATCH_INTERVAL_S = 2.0
_LONGEST_INTERVAL_S = 30.0
# Who waits for a target has it sooner in one batch than in two, unless capture takes longer than that.
_GATHERED_FOR_TARGET_S = 30.0
_LARGE_BATCH = 20_000
_POLL_S = 0.1


class Applier:
    """Applies again and again; remembers how far idle tables were looked through."""

    def __init__(self, lake: Lake, spark: SparkSession, say: Say) -> None:
        self._lake = lake
        self._spark = spark
        self._say = say
        self._reached: Mapping[TableName, Lsn] = {}
        self._upkeep = Upkeep(spark, lake)
        self._moved: set[TableName] = set()
        self.interval_s = _BATCH_INTERVAL_S
        """How long changes should gather before the next batch."""

    def apply(self) -> None:
        """Apply what `changes` holds now."""
        begun_s = time.monotonic()
        applied = apply_tail(self._spark, self._lake, known=self._reached)
        self._reached = applied.upto
        self._moved |= applied.rows.keys()
        for table, rows in applied.rows.items():
            self._say(f"applied {rows:,} changes to {table}")
        self.interval_s = next_interval_s(time.monotonic() - begun_s, sum(applied.rows.values()))

    def warm_up(self, stop: threading.Event) -> None:
        """Get the JVM ready for the first batch, beside this thread, if none has come yet."""
        if not self._moved:
            threading.Thread(target=warm_up, args=(self._spark, stop), name="warm-up", daemon=True).start()

    def look_after(self) -> None:
        """Join files and expire old ones in the tables that were moved, as far as it is worth its time."""
        moved, self._moved = self._moved, set()
        self._upkeep.after(moved)


def next_interval_s(took_s: float, rows: int) -> float:
    """Say how long to wait after a batch: not at all where it was large, else so that at most half the time is work."""
    if rows >= _LARGE_BATCH:
        return 0.0
    return min(max(_BATCH_INTERVAL_S, took_s), _LONGEST_INTERVAL_S) if rows else _BATCH_INTERVAL_S


def run_apply(applier: Applier, stop: threading.Event, *, once: bool) -> None:
    """Apply what `changes` holds, once or until `stop`."""
    applier.apply()
    if once:
        return
    applier.warm_up(stop)
    while not stop.is_set():
        applier.look_after()
        if stop.wait(applier.interval_s):
            return
        applier.apply()


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
            if task.until is None:
                applier.apply()
                applier.warm_up(stop)
            while not _capture_ended(capturing, stop, _interval_s(task, applier)):
                applier.apply()
                if task.until is None:  # who waits for a target does not wait for this
                    applier.look_after()
            finish = not stop.is_set()
        finally:
            stop.set()
        capturing.result()
        if finish:
            applier.apply()


def _interval_s(task: Task, applier: Applier) -> float:
    return applier.interval_s if task.until is None else _GATHERED_FOR_TARGET_S


def _capture_ended(capturing: Future[None], stop: threading.Event, interval_s: float) -> bool:
    """Wait until it is time for the next batch (False), or capture or the run has ended (True)."""
    waited_s = 0.0
    while waited_s < interval_s and not (capturing.done() or stop.is_set()):
        stop.wait(_POLL_S)
        waited_s += _POLL_S
    return capturing.done() or stop.is_set()
