"""Bootstrap: create a lake that `follow` can continue, or complete a lake whose bootstrap was interrupted.

Order of effects:
  1. Check everything that can be checked. A refusal leaves nothing behind.
  2. Write lake.json: from here on, the slot and publication that it names are ours. Record the rules of [mask].
  3. Create the publication, which must be older than the slot.
  4. Lock the tables, create the slot with its snapshot, import the snapshot into a session that stays open
     (`source.snapshot_session` argues this order).
  5. Record in `changes` where the slot starts, and run capture, so that WAL does not pile up during the copy.
  6. Copy. A table's files and its position appear in one commit, if the snapshot session was alive until then.
  7. If the copy gave way to a session that waited for a table, begin again at 1 with the tables that are missing, a
     little later; end with the failure if seven attempts in a row copied no table.

After a kill at any point, the same command continues. Tables with a position are kept. The others get a snapshot at an
LSN of their own, through a temporary slot; the main slot stays as it is. After a kill between 4 and 5, the slot's
confirmed_flush_lsn is still the point at which it was created, so 5 is done then.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace

import psycopg

from auditlake.capture.change_log import CaptureLog
from auditlake.capture.ddl_recorder import record_first_trigger
from auditlake.capture.masking import bind_copies, check_fit, check_rules
from auditlake.capture.partition_watch import record_partitions
from auditlake.capture.preconditions import CaptureSource, check_main_slot, current_manifest
from auditlake.capture.shape_watch import record_shapes
from auditlake.capture.supervisor import capturing
from auditlake.errors import LakeConflict, SourceUnready
from auditlake.failpoints import After, reach
from auditlake.lake.histories import list_histories
from auditlake.lake.history import new_history, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, read_lsn_offset, record_created_publication
from auditlake.lake.masks import check_effect, is_changed, settle
from auditlake.lake.positions import read_positions
from auditlake.lake.records import record_tables
from auditlake.lake.stage_lock import Stage, hold
from auditlake.lsn import Lsn
from auditlake.messages import Say
from auditlake.relation import TableName
from auditlake.schema.catalog_snapshot import save_first_snapshots
from auditlake.settings.mask_rules import Masking
from auditlake.settings.streaming_mode import Streaming
from auditlake.snapshot.ctid_ranges import SnapshotMark
from auditlake.snapshot.plan import CopyPlan, Wanted, chosen_of, claim, is_ours, make_plan, publish, read_source
from auditlake.snapshot.progress import CopiedTable, CopyState, Progress
from auditlake.snapshot.scheduler import Copier, NewHistories, SourceLoad, exported
from auditlake.snapshot.worker_pool import Workers, closed_at_end
from auditlake.source import lock_waits as blockers
from auditlake.source.catalog import FollowedTable, read_row_filters, read_sizes
from auditlake.source.connection import Row, connect, connect_replication_beside
from auditlake.source.lock_waits import GaveWay
from auditlake.source.publication import read_membership
from auditlake.source.server import wal_end
from auditlake.source.slot import CreatedSlot, Waiting, create_slot, ensure_failover
from auditlake.source.snapshot_session import SnapshotHolder
from auditlake.store.files import read_each

_SLOT_TIMEOUT_S = 120.0
# Between copies that gave way to other sessions; without a table copied in all of them, bootstrap ends.
_PAUSES_S = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Target:
    """Source, lake, and tables of a bootstrap: those that are `wanted`, None takes all.

    `limits` bound the copy. With `failover`, standbys keep a copy of the slot, if the server supports it (17).
    """

    conninfo: str
    lake: Lake
    slot: str
    publication: str
    wanted: Wanted | None
    failover: bool = True
    streaming: Streaming = field(default_factory=Streaming)
    limits: SourceLoad = field(default_factory=SourceLoad)
    masking: Masking = field(default_factory=Masking)


def bootstrap(
    target: Target, start_workers: Callable[[], Workers], report: Say, progress: Progress | None = None
) -> list[CopiedTable]:
    """Copy every chosen table that has no history yet; return the tables copied by this run, in name order.

    Raises:
        SourceUnready, WrongSource, LakeUnusable: before anything was written.
        LakeConflict: if another bootstrap is running.
        AuditlakeError: names the tables that were not copied, after all others were; `progress` lists both.
    """
    progress, pauses = progress or Progress(report), Pauses()
    with hold(target.lake, "bootstrap", Stage.BOOTSTRAP):
        _bootstrap(target, start_workers, report, progress)
        while pause_s := pauses.next_s(progress.state()):
            report(f"tables that are missing are copied under a later snapshot, in {pause_s:g} s")
            time.sleep(pause_s)
            progress.begin_again()
            _bootstrap(target, start_workers, report, progress)
    state = progress.state()
    state.require_all()
    return sorted(state.copied, key=lambda table: table.name)


def _bootstrap(target: Target, start_workers: Callable[[], Workers], report: Say, progress: Progress) -> None:
    """Copy the missing tables under one snapshot; record in `progress` which were copied and which failed."""
    with connect(target.conninfo, read_lsn_offset(target.lake)) as control:
        manifest = current_manifest(control, target.slot, target.publication)
        plan = _plan(control, target, manifest, report)
        source = CaptureSource(target.conninfo, manifest, target.streaming, masking=target.masking)
        run = _Run(target, source, control, report, progress)
        plan = _publish(run, plan)
        reach(After.PUBLICATION)
        todo = _readable(run, plan)
        if todo:
            _record_published(control, target, todo)
            with ThreadPoolExecutor(1) as starter, closed_at_end(starter.submit(start_workers)) as workers:
                try:
                    _copy_all(run, todo, workers)
                except GaveWay as exc:  # outside the copy of a table
                    _fail_missing(progress, todo, exc)
        else:
            _ensure_slot(run)
            ensure_failover(control, target.conninfo, target.slot, wanted=target.failover, report=report)


def _plan(control: psycopg.Connection[Row], target: Target, manifest: Manifest, report: Say) -> CopyPlan:
    """Plan the copy and check it; then make the lake if there is none, and put the rules for masks in force."""
    ours = is_ours(target.lake, manifest)
    plan = make_plan(control, target.wanted, target.publication, target.slot)
    _check_masks(control, target, plan, ours=ours)
    for remark in plan.remarks:
        report(remark)
    for advice in plan.advice:
        report(f"warning: {advice}. {advice.fix}")
    if ours:
        check_main_slot(control, target.lake, target.slot)
    else:
        claim(target.lake, manifest, plan)
    settle(target.lake, target.masking)
    return plan


def _check_masks(control: psycopg.Connection[Row], target: Target, plan: CopyPlan, *, ours: bool) -> None:
    """Require that the rules of the settings fit the lake, and the tables to copy; raises ConfigError."""
    known = {history.oid for history in list_histories(target.lake)} if ours else set()
    new = [table.relation for table in plan.chosen if table.relation.oid not in known]
    if is_changed(target.lake, target.masking):
        check_effect(target.lake, target.masking)
        check_rules(control, target.masking, new)
    elif target.masking:
        check_fit(control, target.masking, new)


@dataclass(slots=True)
class Pauses:
    """Pauses between copies that gave way; they grow while no table is copied."""

    copied: int = 0
    fruitless: int = 0

    def next_s(self, state: CopyState) -> float | None:
        """Return the pause before the next copy; None if there is no reason for another, or too many were fruitless."""
        self.fruitless = 0 if len(state.copied) > self.copied else self.fruitless + 1
        self.copied = len(state.copied)
        again = any(isinstance(why, GaveWay) for _, why in state.failed) and self.fruitless <= len(_PAUSES_S)
        return _PAUSES_S[max(0, self.fruitless - 1)] if again else None


def _fail_missing(progress: Progress, todo: Sequence[FollowedTable], why: GaveWay) -> None:
    state = progress.state()
    ended = {table.name for table in state.copied} | {name for name, _ in state.failed}
    for table in todo:
        if table.name not in ended:
            progress.fail(table.name, why)


def _publish(run: "_Run", plan: CopyPlan) -> CopyPlan:
    """Publish the plan's tables; return the plan without those that were dropped since it was made, or are locked."""
    target = run.target
    if plan.publication is None and not isinstance(target.wanted, frozenset):  # some of the tables that it was made for
        # before it exists: `drop` removes only a recorded publication
        record_created_publication(target.lake, target.wanted)
    while (locked := publish(run.control, target.publication, plan)) is None:
        before, plan = plan, make_plan(run.control, target.wanted, target.publication, target.slot)
        for name in sorted({table.name for table in before.chosen} - {table.name for table in plan.chosen}):
            why = f"table {name} was dropped before it could be published"
            run.progress.fail(name, SourceUnready(why, "Run auditlake bootstrap again."))
    for name, reason in locked.items():
        run.progress.fail(name, reason)
    return replace(plan, chosen=tuple(table for table in plan.chosen if table.name not in locked))


@dataclass(frozen=True, slots=True)
class _Run:
    target: Target
    source: CaptureSource
    control: psycopg.Connection[Row]
    report: Say
    progress: Progress


def _readable(run: _Run, plan: CopyPlan) -> list[FollowedTable]:
    """Return the tables that have no history yet and can be read; record the unreadable ones as failed."""
    known = {history.oid for history in list_histories(run.target.lake)}  # also under a former name
    new = [table for table in plan.chosen if table.relation.oid not in known]
    names = _history_names(run.target.lake, new)
    histories = read_each(run.target.lake.root, lambda table: open_history(run.target.lake, names[table.name]), new)
    todo = [table for table, history in zip(new, histories, strict=True) if history is None]
    for table in todo:
        if table.name in plan.unreadable:
            run.progress.fail(table.name, plan.unreadable[table.name])
    return [table for table in todo if table.name not in plan.unreadable]


def _copy_all(run: _Run, todo: Sequence[FollowedTable], workers: Future[Workers]) -> None:
    target = run.target
    with SnapshotHolder(target.conninfo) as holder:
        todo = _locked(run, holder, todo)
        names = _history_names(target.lake, todo)
        oids = _oids(names, todo)
        record_partitions(run.control, target.lake, oids)
        record_shapes(run.control, target.lake, oids)
        record_first_trigger(run.control, target.lake)
        with closing(connect_replication_beside(run.control, target.conninfo)) as replication:
            created = _create_slot(run, replication)
            snapshot_id = holder.import_snapshot(created.snapshot_id)
            run.progress.record_snapshot()
            mark = SnapshotMark(created.snapshot_lsn, holder.time_us())
            with holder.catalog() as conn:
                todo = _unchanged(run, todo, chosen_of(read_source(conn, target.publication), target.wanted))
                sizes = read_sizes(conn, [part.relation.oid for table in todo for part in table.parts])
                row_filters = read_row_filters(conn, target.publication, todo)
        ensure_failover(run.control, target.conninfo, target.slot, wanted=target.failover, report=run.report)
        masks = bind_copies(run.control, target.lake, target.masking, [table.relation for table in todo])
        is_first = created.name == target.slot
        with capturing(run.source, target.lake, run.control, run.report, first=is_first) as capture:
            copier = Copier(
                workers.result(),
                NewHistories(target.lake, names),
                exported(target.conninfo, holder, snapshot_id, mark),
                target.limits,
                run.progress,
                masks,
            )
            copier.copy(todo, sizes, row_filters)
            capture.await_passed(created.consistent_point)


def _locked(run: _Run, holder: SnapshotHolder, todo: Sequence[FollowedTable]) -> list[FollowedTable]:
    """Lock the tables, and return those locked in time; the next run copies the others."""
    failed = holder.lock({table.name: table.locked for table in todo}, blockers.LOCK_TIMEOUT_S)
    for name, why in failed.items():
        run.progress.fail(name, why)
    return [table for table in todo if table.name not in failed]


def _create_slot(run: _Run, replication: psycopg.Connection[Row]) -> CreatedSlot:
    """Create the main slot or, if it exists, a temporary slot for its snapshot."""
    target = run.target
    main = _ensure_started(run.control, target)
    name = f"{target.slot[:40]}_snapshot_{replication.info.backend_pid}" if main else target.slot
    waiting, before_us = Waiting(_SLOT_TIMEOUT_S, run.report), wal_end(run.control).time_us
    created = create_slot(replication, run.control, name, temporary=main, waiting=waiting)
    reach(After.SLOT)
    if not main:
        _start_log(target.lake, created.consistent_point, before_us)
    return created


def _start_log(lake: Lake, consistent_point: Lsn, time_us: int = 0) -> None:
    """Record where the slot starts, and the time before that, if it is known.

    Raises LakeConflict if another process has, which took the slot for its own.
    """
    log = CaptureLog(lake)  # its commit is refused if another process commits from here on
    if log.acknowledged:
        raise LakeConflict(
            f"another process has started the log of {lake.root} meanwhile", "Run auditlake bootstrap again."
        )
    log.start_at(consistent_point, time_us)


def _ensure_slot(run: _Run) -> None:
    """Create the main slot if it does not exist: a database without tables has nothing else to copy."""
    if not _ensure_started(run.control, run.target):
        with closing(connect_replication_beside(run.control, run.target.conninfo)) as replication:
            _create_slot(run, replication)


def _ensure_started(control: psycopg.Connection[Row], target: Target) -> bool:
    """Return whether the main slot exists, and record its start if a crash came before; raises WrongSource."""
    confirmed = check_main_slot(control, target.lake, target.slot)
    if confirmed is None:
        return False
    if read_positions(target.lake) is None:
        _start_log(target.lake, confirmed)
    return True


def _record_published(control: psycopg.Connection[Row], target: Target, todo: Sequence[FollowedTable]) -> None:
    """Record how the tables are published, before their snapshot: from there on no change may be missing."""
    membership = read_membership(control, target.publication)
    if membership is None:
        raise SourceUnready(f"publication {target.publication} was dropped meanwhile", "Run auditlake bootstrap again.")
    oids = _oids(_history_names(target.lake, todo), todo)
    record_tables(target.lake, membership, oids)
    save_first_snapshots(control, target.lake, oids)
    reach(After.MEMBERSHIP)


def _history_names(lake: Lake, todo: Sequence[FollowedTable]) -> dict[TableName, TableName]:
    """Return the name of the history that each table is to get."""
    names = read_each(lake.root, lambda table: new_history(lake, table.relation), todo)
    return {table.name: name for table, name in zip(todo, names, strict=True)}


def _oids(names: Mapping[TableName, TableName], todo: Sequence[FollowedTable]) -> dict[TableName, int]:
    """Return the OIDs of the tables by the names of their histories."""
    return {names[table.name]: table.relation.oid for table in todo}


def _unchanged(run: _Run, expected: Sequence[FollowedTable], locked: Sequence[FollowedTable]) -> list[FollowedTable]:
    """Leave out tables whose shape, partitions or published columns changed between check and lock.

    `locked` is read under the snapshot: it has no partition that was attached later, and no rows of such are copied.
    """
    shapes = {table.name: table.shape for table in locked}
    for table in expected:
        if shapes.get(table.name) != table.shape:
            changed = f"table {table.name} changed while it was being locked"
            run.progress.fail(table.name, SourceUnready(changed, "Run auditlake bootstrap again."))
    return [table for table in expected if shapes.get(table.name) == table.shape]
