"""Follow: capture and apply together, until stopped or until a target is in `history`.

Capture runs in a thread (it waits in select, which releases the interpreter), apply in the caller's. They share nothing
but the lake, so they can also run as two processes (`auditlake capture`, `auditlake apply`).
"""

from __future__ import annotations  # a resync and new tables are imported when there are some

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from auditlake.apply.apply import Applied, FoldedBy, Reached, apply_pending, next_window
from auditlake.apply.tails import read_watermark
from auditlake.cancellation import Cancelled
from auditlake.capture.supervisor import Capturing, Task, run_capture
from auditlake.counters import Beat, Mark, advance, beat, begin
from auditlake.engine import Engine
from auditlake.erasure.retention import Retaining
from auditlake.lake.belonging import require_together
from auditlake.lake.erasure_gate import at_work
from auditlake.lake.histories import Histories
from auditlake.lake.layout import Lake
from auditlake.lake.maintenance import Upkeep
from auditlake.lake.parking import Parked, SegmentState, check_reached, read_saved
from auditlake.lake.positions import read_positions
from auditlake.lake.records import write_last_batch
from auditlake.lake.stage_lock import Stage, hold, holder_lives
from auditlake.lsn import Lsn
from auditlake.messages import Event, Notice, Say
from auditlake.relation import TableName
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.store.files import fingerprint
from auditlake.store.place import by_requests

if TYPE_CHECKING:
    from auditlake.resync.automatic import AutomaticResync
    from auditlake.snapshot.new_tables import Job

# Even a small batch costs seconds: let changes gather, for at least as long as the last batch took.
_BATCH_INTERVAL_S = 2.0
_LONGEST_INTERVAL_S = 30.0
# A target is reached sooner with one batch than with two, unless capture takes longer than this.
_GATHERED_FOR_TARGET_S = 30.0
_LARGE_BATCH = 20_000
_POLL_S = 0.1
_IDLE_S_PER_TABLE = 0.005
"""While nothing is captured, new tables and new snapshots are looked for this often: 10,000 tables every 50 s."""
_PASSING, _LONG_S = frozenset({SegmentState.WAITING, SegmentState.HELD}), 60.0
"""States that end by themselves while capture or a resync runs, and after how long they are reported all the same."""
_IDLE_S_IN_STORE = 60.0
"""At least so long in a store, where each look is some requests."""


class ParkedReports:
    """Reports tables that are parked, or followed again; one that capture or resync holds, after a minute."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._shown: Mapping[TableName, Parked] = {}
        self._since_s: Mapping[TableName, float] = {}

    def update(self, parked: Mapping[TableName, Parked]) -> None:
        """Report what differs from the last update."""
        now_s = time.monotonic()
        self._since_s = {name: self._since_s.get(name, now_s) for name in parked}
        shown = {name: each for name, each in parked.items() if self._is_shown(each, now_s)}
        for name, each in shown.items():
            before = self._shown.get(name)
            if before is None or (before.lsn, before.reason) != (each.lsn, each.reason):
                self._say(Notice(Event.TABLE_PARKED, f"{each}; all other tables are followed. {each.remedy}"))
        for name in self._shown.keys() - parked.keys():
            self._say(Notice(Event.TABLE_FOLLOWED, f"{name} is followed again"))
        self._shown = shown

    def _is_shown(self, record: Parked, now_s: float) -> bool:
        name = record.table
        return record.state not in _PASSING or name in self._shown or now_s - self._since_s[name] > _LONG_S


class Applier:
    """Apply batch after batch; keeps the LSN up to which idle tables were searched for changes."""

    def __init__(self, lake: Lake, spark: SparkOnDemand, say: Say, retaining: Retaining | None = None) -> None:
        """Prepare to apply; Spark starts when something is left to it. `retaining` lets versions expire."""
        self.lake = lake
        self.spark = spark
        self._say = say
        self._window_end: Lsn | None = None
        self._histories = Histories(lake)
        self._reached: Mapping[TableName, Reached] = {}
        self._reports = ParkedReports(say)
        self._explained: object = None
        self._seen: object = None
        self._recorded: FoldedBy | None = None
        self._next_s = 0.0
        self._upkeep: Upkeep | None = None
        self._retaining = retaining
        self._moved: set[TableName] = set()
        self._resynced = 0
        self.interval_s = _BATCH_INTERVAL_S
        """Seconds for changes to gather before the next batch."""

    def apply(self, stop: threading.Event | None = None) -> None:
        """Apply what `changes` holds now, or until `stop`; raises LakeUnusable if a table is older than the rest."""
        with at_work(self.lake), suppress(Cancelled):  # by `stop`, while Spark folded
            self._apply(stop)

    def _apply(self, stop: threading.Event | None) -> None:
        begin(Beat.APPLY)
        beat(Beat.APPLY)
        begun_s, begun_at = time.monotonic(), time.time()
        seen = (_explained(self.lake), read_watermark(self.lake))
        if seen == self._seen and begun_s < self._next_s:
            advance(Mark.APPLIED_TIME, begun_at)
            return
        explained, _ = seen
        if self._seen is None:
            self._require_together()
        self._begin_again_after_resync()
        window = next_window(self.lake, self._window_end, self._histories)
        while window is not None:
            freed = self._apply_upto(window.upto, retry=explained != self._explained, stop=stop)
            # A freed table continues from its own position, so the windows start again.
            self._window_end = None if freed else window.upto
            if stop is not None and stop.is_set():
                return
            if not (freed or window.more):
                break
            window = next_window(self.lake, self._window_end, self._histories)
        self._explained = explained
        advance(Mark.APPLIED_TIME, begun_at)
        self._histories.save()
        self._seen = seen
        least_s = _IDLE_S_IN_STORE if by_requests(self.lake.root) else 0.0
        self._next_s = begun_s + max(least_s, len(self._histories.names) * _IDLE_S_PER_TABLE)

    def _require_together(self) -> None:
        """Require that no table is older than the rest, which would be waited for in vain; raises LakeUnusable."""
        if (positions := read_positions(self.lake)) is not None:
            require_together(self.lake, positions, read_saved(self.lake, self._histories)[0])

    def _begin_again_after_resync(self) -> None:
        """Cut new windows if a table got a new snapshot, from whose LSN on its changes are to be applied."""
        resynced = max((table.resynced for table in read_saved(self.lake, self._histories)[0]), default=0)
        if resynced != self._resynced:
            self._resynced, self._window_end = resynced, None

    @property
    def parked(self) -> Mapping[TableName, Parked]:
        """The tables that are parked now."""
        return read_saved(self.lake, self._histories)[1]

    def _apply_upto(self, upto: Lsn, *, retry: bool, stop: threading.Event | None) -> bool:
        """Apply one window; return whether a parked table was freed, which continues from its position."""
        begun_s = time.monotonic()
        applied = apply_pending(
            self.spark,
            self.lake,
            upto,
            self._reached,
            retry=retry,
            histories=self._histories,
            engine=self.spark.engine,
            stop=stop,
        )
        self._reached = applied.upto
        _mark_reached(applied)
        self._reports.update(applied.parked)
        self._moved |= applied.rows.keys()
        self._record_engine(applied)
        for table, rows in ((name, rows) for name, rows in applied.rows.items() if name not in applied.parked):
            self._say(Notice(Event.CHANGES_APPLIED, f"applied {rows:,} changes to {table} in {applied.by[table]}"))
        self.interval_s = next_interval_s(time.monotonic() - begun_s, sum(applied.rows.values()))
        return bool(applied.freed)

    def _record_engine(self, applied: Applied) -> None:
        """Record the engine of the batch for `status`: Spark if a table needed it, and the first reason of these."""
        by = [applied.by[name] for name in sorted(applied.rows)]
        if by:
            shown = max(by, key=lambda each: each.engine is Engine.SPARK)
            if shown != self._recorded:
                write_last_batch(self.lake, shown.engine, shown.reason or None)
                self._recorded = shown

    def require_reached(self, target: Lsn) -> None:
        """Require that no table is parked before a target; raises Unsupported if one is."""
        check_reached(self.parked.values(), target)

    def maintain(self) -> None:
        """Compact and expire files of the tables that were written, if that is worth its time; let versions expire."""
        moved, self._moved = self._moved, set()
        if moved:
            self._upkeep = self._upkeep or Upkeep(self.spark, self.lake, self._say)
            with at_work(self.lake):
                self._upkeep.after(moved)
        if self._retaining is not None:
            self._retaining.tend()


def _mark_reached(applied: Applied) -> None:
    """Record the LSN up to which every table that is not parked is applied."""
    reached = [place.upto for name, place in applied.upto.items() if name not in applied.parked]
    if reached:
        advance(Mark.APPLIED_LSN, min(reached))


def _explained(lake: Lake) -> object:
    """Return what changes with `added`: a table that waits for a missing value is retried then."""
    return fingerprint(lake.added / "_delta_log")


def next_interval_s(took_s: float, rows: int) -> float:
    """Return the pause after a batch: none if it was large, else so that at most half the time is work."""
    if rows >= _LARGE_BATCH:
        return 0.0
    return min(max(_BATCH_INTERVAL_S, took_s), _LONGEST_INTERVAL_S) if rows else _BATCH_INTERVAL_S


def run_apply(applier: Applier, stop: threading.Event, *, once: bool) -> None:
    """Apply what `changes` holds, once or until `stop`; raises LakeConflict if another process applies to this lake."""
    with hold(applier.lake, "apply", Stage.APPLY):
        _apply_alone(applier, stop, once=once)


def _apply_alone(applier: Applier, stop: threading.Event, *, once: bool) -> None:
    applier.apply(stop)
    if once:
        _await_decisions(applier, stop)
        positions = read_positions(applier.lake)
        if positions is not None:
            applier.require_reached(Lsn(positions.watermark + 1))
        return
    while not stop.is_set():
        applier.maintain()
        applier.spark.rest()
        if stop.wait(applier.interval_s):
            return
        applier.apply(stop)


def _await_decisions(applier: Applier, stop: threading.Event) -> None:
    """Apply again, for a minute at most, while a capture beside this process has yet to decide what changed a table."""
    until_s = time.monotonic() + _LONG_S
    while any(each.state is SegmentState.WAITING for each in applier.parked.values()):
        if not holder_lives(applier.lake, Stage.CAPTURE) or time.monotonic() > until_s or stop.wait(_POLL_S):
            return
        applier.apply(stop)


@dataclass(frozen=True, slots=True)
class Beside:
    """Background work of a run without a target.

    Copy new tables, resync those that changed without row events, let versions expire. A run with a target does the
    second before it ends.
    """

    new_tables: Job | None = None
    resync: AutomaticResync | None = None
    retaining: Retaining | None = None


def follow(task: Task, spark: SparkOnDemand, stop: threading.Event, say: Say, beside: Beside | None = None) -> None:
    """Capture and apply until the task's target is in `history`, or until `stop`; with `beside`, also that."""
    beside = beside or Beside()
    with ExitStack() as held, ThreadPoolExecutor(1) as pool:
        held.enter_context(hold(task.lake, "follow", Stage.CAPTURE, Stage.APPLY))
        if beside.resync is not None:
            held.callback(beside.resync.close)
        tried = threading.Event()
        capturing = pool.submit(run_capture, task, stop, say, tried)
        capturing.add_done_callback(lambda _: tried.set())
        try:
            tried.wait()
            if capturing.done():
                capturing.result()  # a refusal does not wait for a JVM
            if task.until is None and beside.new_tables is not None:
                from auditlake.snapshot.new_tables import watch  # noqa: PLC0415 - a run with a target starts sooner

                arguments = (beside.new_tables, stop, say)
                threading.Thread(target=watch, args=arguments, name="new-tables", daemon=True).start()
            applier = Applier(task.lake, spark, say, beside.retaining)
            _apply_beside(capturing, task, stop, applier, beside.resync)
            capturing.result()
        except BaseException:
            stop.set()
            raise
        if not stop.is_set():
            applier.apply(stop)
        if not stop.is_set():
            _finish(task, applier, beside.resync, pool, say)


def _apply_beside(
    capturing: Future[None], task: Task, stop: threading.Event, applier: Applier, again: AutomaticResync | None
) -> None:
    """Apply batch after batch until capture has ended, or `stop`."""
    if task.until is None:
        applier.apply(stop)
    while not _capture_ended(capturing, stop, _interval_s(task, applier)):
        applier.apply(stop)
        if task.until is None:  # a target waits for neither of them
            applier.maintain()
            if again is not None:
                again.tend(applier.parked, applier.spark, Capturing(task.lake, capturing, task.awaited))
            if again is None or not again.is_running:
                applier.spark.rest()


def _finish(task: Task, applier: Applier, again: AutomaticResync | None, pool: ThreadPoolExecutor, say: Say) -> None:
    """Require that the target is reached.

    A table that changed without row events gets a new snapshot, which is later than the target. Capture passes that,
    too, so that now is exact.
    """
    if task.until is None:
        return
    if again is not None and again.is_needed(parked := applier.parked):
        try:
            with _capturing_on(task, pool, say) as capture:
                again.finish(parked, applier.spark, capture)
        finally:
            applier.apply()
    applier.require_reached(task.until.lsn)


@contextmanager
def _capturing_on(task: Task, pool: ThreadPoolExecutor, say: Say) -> Iterator[Capturing]:
    """Capture during the block, beyond the target that is reached."""
    stop = threading.Event()
    running = pool.submit(run_capture, replace(task, until=None, reports_start=False), stop, say)
    try:
        yield Capturing(task.lake, running, task.awaited)
    finally:
        stop.set()
    running.result()


def _interval_s(task: Task, applier: Applier) -> float:
    return applier.interval_s if task.until is None else _GATHERED_FOR_TARGET_S


def _capture_ended(capturing: Future[None], stop: threading.Event, interval_s: float) -> bool:
    """Wait until it is time for the next batch (False), or capture or the run has ended (True)."""
    waited_s = 0.0
    while waited_s < interval_s and not (capturing.done() or stop.is_set()):
        wait([capturing], _POLL_S)
        waited_s += _POLL_S
    return capturing.done() or stop.is_set()
