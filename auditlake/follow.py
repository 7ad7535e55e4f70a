"""Follow: capture and apply together, until stopped or until a target is in `history`.

Capture runs in a thread (it waits in select, which lets go of the interpreter), apply in the caller's. They share
nothing but the lake, so they may as well run as two processes (`auditlake capture`, `auditlake apply`). A capture
that loses its connection is started again, with growing pauses; where the run has a target, for a minute at most.
"""

import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_tail
from auditlake.capture import Capture, Source
from auditlake.errors import AuditlakeError, SourceUnreachable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.runstate import write_state
from auditlake.lsn import Lsn
from auditlake.postgres.connection import connect
from auditlake.postgres.server import WalEnd, wal_end
from auditlake.relation import TableName
from auditlake.retry import Attempts

# Whoever waits for a target is told soon; a restart or a failover of the source fits in.
_PATIENCE_S = 60.0
# A MERGE costs the same for ten changes as for ten thousand: let some gather.
_BATCH_INTERVAL_S = 2.0
_POLL_S = 0.1

Say = Callable[[str], None]
Until: TypeAlias = Lsn | Literal["current"] | None


@dataclass(frozen=True, slots=True)
class Task:
    """What to follow, and up to where: everything that starts before `until`, or for ever."""

    source: Source
    lake: Lake
    until: WalEnd | None


def make_task(conninfo: str, lake: Lake, until: Until) -> Task:
    """Make a task out of what the user said; `current` is the end of the source's log now.

    Raises LakeUnusable where there is no lake, SourceUnreachable where the end of the log cannot be asked for.
    """
    source = Source(conninfo, require_manifest(lake))
    if until == "current":
        with connect(conninfo) as conn:
            return Task(source, lake, wal_end(conn))
    return Task(source, lake, None if until is None else WalEnd(until, time_us=0))


def run_capture(task: Task, stop: threading.Event, say: Say, tried: threading.Event | None = None) -> None:
    """Capture until the target or `stop`; sets `tried` once the source has let us in, or could not be reached.

    Raises SourceUnreachable where trying again cannot help; where there is a target also if the source was never
    reached, or stays away for a minute.
    """
    tried = tried or threading.Event()
    attempts = Attempts(say, functools.partial(write_state, task.lake), None if task.until is None else _PATIENCE_S)
    try:
        _capture_on(task, stop, attempts, tried)
    except AuditlakeError as exc:
        attempts.ended(exc)
        raise
    attempts.ended()


def _capture_on(task: Task, stop: threading.Event, attempts: Attempts, tried: threading.Event) -> None:
    while not stop.is_set():
        try:
            capture = Capture(task.source, task.lake, stop)
            tried.set()
            attempts.succeeded()
            capture.run(task.until)
        except SourceUnreachable as exc:
            pause_s = attempts.failed(exc)
            tried.set()
            stop.wait(pause_s)
        else:
            return


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
