"""Supervise capture: run it up to a target or without end, and reconnect when the source is lost.

1. A capture that loses its connection is started again after a pause. Pauses double from 0.5 s to 30 s, each shortened
   at random by up to a half, so that clients do not reconnect in step. They restart at 0.5 s once a connection has
   lasted longer than the longest pause.
2. A run with a target gives up if the source was never reached, or is lost for 60 s.
3. Changes of state are reported, not attempts: the source is lost and why, or it is back and after how long.
4. A transaction that cannot be streamed is read again without streaming, which is on again after it if its end is
   known. It may be open for hours, and fail at each start of a stream.
5. During a copy it runs in a thread (`capturing`), so that the slot does not retain WAL until the copy is done. If
   another process already captures (a running `follow`), that one continues and none is started.

Starts no JVM and imports no Spark.
"""

import functools
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import psycopg

from auditlake.capture.preconditions import CaptureSource, Claimer, require_primary
from auditlake.counters import Beat, Counter, beat, begin, count
from auditlake.errors import AuditlakeError, LakeConflict, SourceRefuses, SourceUnreachable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.positions import read_positions
from auditlake.lake.records import write_state
from auditlake.lake.stage_lock import Stage, hold
from auditlake.lsn import Lsn
from auditlake.messages import Event, Notice, Say
from auditlake.settings.mask_rules import Masking
from auditlake.settings.streaming_mode import NotStreamed, Streaming
from auditlake.source.connection import Row, connect
from auditlake.source.server import WalEnd, wal_end
from auditlake.source.slot import SlotReader, read_slot

if TYPE_CHECKING:  # imported late by `open_capture`
    from auditlake.capture.capture import Capture

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
# Long enough for a restart or a failover of the source.
_PATIENCE_S = 60.0

_TO_THE_END = ", and all that follows until it is started again"

_PASSING_TIMEOUT_S = 120.0
_POLL_S = 0.05

Until: TypeAlias = Lsn | Literal["current"] | None


@dataclass(frozen=True, slots=True)
class Task:
    """A capture to run: everything that starts before `until`; without end if it is None.

    A capture without end reports that it has started, unless it is only a part of another stage. While `awaited` is
    set, it records its progress at once. It sets `lagging` while it cannot keep up, so that others give way.
    """

    source: CaptureSource
    lake: Lake
    until: WalEnd | None
    reports_start: bool = True
    awaited: threading.Event = field(default_factory=threading.Event)
    lagging: threading.Event = field(default_factory=threading.Event)


def make_task(  # noqa: PLR0913, PLR0917 - the options of a user
    conninfo: str,
    lake: Lake,
    until: Until,
    streaming: Streaming | None = None,
    heartbeat_s: float | None = None,
    masking: Masking | None = None,
) -> Task:
    """Make a task of the user's options: up to an LSN of the source, or `current`, the current end of its log.

    Raises LakeUnusable without a lake, SourceUnreachable if the end of the log cannot be read, ConfigError if the lake
    records other masks.
    """
    rules = masking or Masking()
    source = CaptureSource(conninfo, require_manifest(lake), streaming or Streaming(), heartbeat_s, rules)
    if rules or lake.mask_rules.exists():
        from auditlake.capture.masking import prepare_masks  # noqa: PLC0415 - imports of capture, as below

        prepare_masks(conninfo, lake, rules)
    if until == "current":
        with connect(conninfo, source.manifest.lsn_offset) as conn:
            require_primary(conn)
            return Task(source, lake, wal_end(conn))
    end = None if until is None else WalEnd(Lsn(until + source.manifest.lsn_offset), time_us=0)
    return Task(source, lake, end)


def run_capture(task: Task, stop: threading.Event, report: Say, tried: threading.Event | None = None) -> None:
    """Capture until the target or `stop`; set `tried` after the first attempt to connect, successful or not.

    Raises SourceUnreachable if a retry cannot succeed, and with a target also if the source was never reached or is
    lost for 60 s; LakeConflict if another process captures into this lake.
    """
    tried = tried or threading.Event()
    with hold(task.lake, "capture", Stage.CAPTURE):
        _capture_alone(task, stop, report, tried)


def _capture_alone(task: Task, stop: threading.Event, report: Say, tried: threading.Event) -> None:
    attempts = Attempts(report, functools.partial(write_state, task.lake), None if task.until is None else _PATIENCE_S)
    try:
        _capture_on(task, stop, report, attempts, tried)
    except AuditlakeError as exc:
        attempts.ended(exc)
        raise
    attempts.ended()


def _capture_on(task: Task, stop: threading.Event, report: Say, attempts: "Attempts", tried: threading.Event) -> None:
    reader, source, until = None, task.source, task.until
    while not stop.is_set():
        beat(Beat.CAPTURE)
        try:
            capture = open_capture(source, task.lake, stop, report, reader)
            if task.until is None and task.reports_start and not attempts.ever:
                manifest = task.source.manifest
                started = f"slot {manifest.slot} of database {manifest.database}, from {capture.done_lsn} on"
                report(Notice(Event.CAPTURE_STARTED, f"started: {started}"))
            reader = capture.reader
            tried.set()
            attempts.succeeded()
            begin(Beat.CAPTURE)
            capture.run(until, task.awaited, task.lagging)
        except NotStreamed as exc:
            report(f"{exc.message}: capture reads it again without streaming{'' if exc.end_lsn else _TO_THE_END}")
            source = replace(source, streaming=replace(source.streaming, mode="off"))
            until = task.until if exc.end_lsn is None else WalEnd(exc.end_lsn, time_us=0)
        except SourceUnreachable as exc:
            pause_s = attempts.failed(exc)
            count(Counter.RETRIES, "source")
            tried.set()
            stop.wait(pause_s)
        else:
            if until is task.until:
                return
            source, until = task.source, task.until


def open_capture(
    source: CaptureSource,
    lake: Lake,
    stop: threading.Event,
    report: Say = lambda _: None,
    left: SlotReader | None = None,
) -> "Capture":
    """Acquire the slot and open a capture on it; `left` is the walsender of an earlier attempt of this process.

    Raises SourceUnreachable, WrongSource, LakeUnusable, LakeConflict.
    """
    claim = Claimer(source, lake, stop, report, left).claim()
    # Half of the imports of capture: the server decodes meanwhile.
    from auditlake.capture.capture import Capture  # noqa: PLC0415

    return Capture(claim, source, lake, stop, report)


class RecordState(Protocol):
    """Saves the state of capture where another process can read it."""

    def __call__(self, state: str, failure: AuditlakeError | None = None, /) -> None: ...


class Attempts:
    """Connection attempts of one run; the source may be lost for `patience_s`, None for any time."""

    def __init__(self, report: Say, record_state: RecordState, patience_s: float | None) -> None:
        self._report = report
        self._record_state = record_state
        self._patience_s = patience_s
        self._ever = False
        self._doublings = 0
        self._connected_at: float | None = None
        self._lost_at: float | None = None
        self._problem: str | None = None

    @property
    def ever(self) -> bool:
        """Whether this run was ever connected."""
        return self._ever

    def succeeded(self) -> None:
        """Record a connection."""
        now = time.monotonic()
        if self._lost_at is not None:
            self._report(Notice(Event.SOURCE_BACK, f"the source is back after {now - self._lost_at:.0f} s"))
        self._ever, self._connected_at, self._lost_at, self._problem = True, now, None, None
        self._record_state("running")

    def failed(self, failure: SourceUnreachable) -> float:
        """Report a loss that is new; return the pause in seconds. Raises the failure if it is final."""
        now = time.monotonic()
        if self._connected_at is not None and now - self._connected_at > _LONGEST_PAUSE_S:
            self._doublings = 0
        self._connected_at = None
        if not failure.retryable or (isinstance(failure, SourceRefuses) and not self._ever) or self._is_over(now):
            raise failure
        self._lost_at = now if self._lost_at is None else self._lost_at
        if failure.message != self._problem:
            self._problem = failure.message
            self._report(Notice(Event.SOURCE_LOST, f"{failure.message}; trying again until it is back"))
            if self._ever:
                self._record_state("trying again", failure)
        pause_s = min(_FIRST_PAUSE_S * (1 << self._doublings), _LONGEST_PAUSE_S)
        self._doublings = min(self._doublings + 1, 10)
        return pause_s * (1 - random.random() / 2)  # noqa: S311 - no secret

    def _is_over(self, now: float) -> bool:
        if self._patience_s is None:
            return False
        return not self._ever or (self._lost_at is not None and now - self._lost_at > self._patience_s)

    def ended(self, failure: AuditlakeError | None = None) -> None:
        """Record the end of the run, unless it was never connected or another process has the lake."""
        if self._ever and not isinstance(failure, LakeConflict):
            self._record_state("ended", failure)


class Capturing:
    """A capture whose progress a stage waits for: of this process, or of another one if `running` is None.

    `awaited` is set meanwhile: a capture of this process then records its progress at once.
    """

    def __init__(self, lake: Lake, running: Future[None] | None, awaited: threading.Event | None = None) -> None:
        self._lake = lake
        self._running = running
        self._awaited = awaited or threading.Event()

    def await_passed(self, lsn: Lsn) -> None:
        """Wait until the lake holds everything before `lsn`, so that tables copied at it can be queried at once.

        Raises the error that ended the capture; SourceUnreachable, or LakeConflict if it is another process's, if it
        makes no progress for a while.
        """
        self._awaited.set()
        try:
            self._await_passed(lsn)
        finally:
            self._awaited.clear()

    def _await_passed(self, lsn: Lsn) -> None:
        reached, deadline = None, 0.0
        while (positions := read_positions(self._lake)) is None or positions.acknowledged < lsn:
            if self._running is not None and self._running.done():
                self._running.result()
            now = None if positions is None else positions.acknowledged
            if now != reached or not deadline:
                reached, deadline = now, time.monotonic() + _PASSING_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise self._stuck(reached, lsn)
            time.sleep(_POLL_S)

    def _stuck(self, reached: Lsn | None, lsn: Lsn) -> AuditlakeError:
        stuck = f"is at {reached or 'its beginning'} for {_PASSING_TIMEOUT_S:g} s, and the copy needs it to pass {lsn}"
        if self._running is None:
            return LakeConflict(
                f"capture, which runs in another process, {stuck}",
                "The tables are copied. auditlake status shows who reads the slot; end that process if it hangs.",
            )
        return SourceUnreachable(
            f"capture {stuck}", "The tables are copied. Start auditlake follow when the source answers again."
        )


@contextmanager
def capturing(
    source: CaptureSource, lake: Lake, control: psycopg.Connection[Row], report: Say, *, first: bool
) -> Iterator[Capturing]:
    """Run capture during the block, unless another process does; with `first`, the slot is new and used by no other."""
    state = None if first else read_slot(control, source.manifest.slot)
    if state is not None and state.active_pid is not None:
        report("capture runs in another process")
        yield Capturing(lake, None)
        return
    stop = threading.Event()
    with ExitStack() as held, ThreadPoolExecutor(1) as pool:
        try:
            held.enter_context(hold(lake, "bootstrap", Stage.CAPTURE))
        except LakeConflict:  # its process is reconnecting, so the slot looked idle
            report("capture runs in another process")
            yield Capturing(lake, None)
            return
        task = Task(source, lake, None, reports_start=False)
        try:  # an interrupt may come once the thread runs, and before the pool knows of it
            running = pool.submit(run_capture, task, stop, report)
            yield Capturing(lake, running, task.awaited)
        finally:
            stop.set()
        running.result()
