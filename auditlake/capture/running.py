"""Running capture: up to a target or for ever, and again when the connection is lost.

A capture that loses its connection is started again, with growing pauses; where the run has a target, for a minute at
most. Starts no JVM and imports no Spark.
"""

import functools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from auditlake.capture.claiming import Claimer, Say, Source
from auditlake.capture.retry import Attempts
from auditlake.capture.sameness import see_primary
from auditlake.errors import AuditlakeError, SourceUnreachable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.runstate import write_state
from auditlake.lsn import Lsn
from auditlake.postgres.connection import connect
from auditlake.postgres.server import WalEnd, wal_end
from auditlake.postgres.slot import SlotReader
from auditlake.postgres.streaming import Streaming

if TYPE_CHECKING:  # see `open_capture`
    from auditlake.capture.capture import Capture

# Whoever waits for a target is told soon; a restart or a failover of the source fits in.
_PATIENCE_S = 60.0

Until: TypeAlias = Lsn | Literal["current"] | None


@dataclass(frozen=True, slots=True)
class Task:
    """What to follow, and up to where: everything that starts before `until`, or for ever."""

    source: Source
    lake: Lake
    until: WalEnd | None


def make_task(
    conninfo: str, lake: Lake, until: Until, streaming: Streaming | None = None, heartbeat_s: float | None = None
) -> Task:
    """Make a task out of what the user said; `current` is the end of the source's log now.

    Raises LakeUnusable where there is no lake, SourceUnreachable where the end of the log cannot be asked for.
    """
    source = Source(conninfo, require_manifest(lake), streaming or Streaming(), heartbeat_s)
    if until == "current":
        with connect(conninfo) as conn:
            see_primary(conn)
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
        _capture_on(task, stop, say, attempts, tried)
    except AuditlakeError as exc:
        attempts.ended(exc)
        raise
    attempts.ended()


def _capture_on(task: Task, stop: threading.Event, say: Say, attempts: Attempts, tried: threading.Event) -> None:
    reader = None
    while not stop.is_set():
        try:
            capture = open_capture(task.source, task.lake, stop, say, reader)
            reader = capture.reader
            tried.set()
            attempts.succeeded()
            capture.run(task.until)
        except SourceUnreachable as exc:
            pause_s = attempts.failed(exc)
            tried.set()
            stop.wait(pause_s)
        else:
            return


def open_capture(
    source: Source, lake: Lake, stop: threading.Event, say: Say = lambda _: None, left: SlotReader | None = None
) -> "Capture":
    """Claim the slot and open a capture on it; `left` is the reader that an earlier attempt of this process was.

    Raises SourceUnreachable, WrongSource, LakeUnusable, LakeConflict.
    """
    claim = Claimer(source, lake, stop, say, left).claim()
    # Only now: it takes half a second to load, in which the server sends already.
    from auditlake.capture.capture import Capture  # noqa: PLC0415

    return Capture(claim, source, lake, stop, say)
