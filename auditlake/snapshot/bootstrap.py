"""Bootstrap: from nothing to a lake that `follow` can keep, or from half a lake to a whole one.

Order of effects:
  1. check everything that can be checked; a refusal leaves nothing behind;
  2. write lake.json: from here on slot and publication of these names are ours;
  3. create the publication, which must be older than the slot;
  4. lock the tables, create the slot with its snapshot, hold the snapshot (`postgres.holder` argues this order);
  5. record in `changes` where the slot starts, and let capture run, so that the log does not pile up during the copy;
  6. copy; each table appears whole, with its position, in one commit.
Killed anywhere, the same command goes on: a table with a position stays, the others get a snapshot of their own
through a temporary slot, at their own LSN, while the main slot stays as it is. Killed between 4 and 5, the slot's
confirmed_flush is still the point where it was created, so 5 can be made up for.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg.pq.abc import PGconn

from auditlake.capture.claiming import Source
from auditlake.capture.looks import first_look
from auditlake.capture.mainslot import main_slot
from auditlake.capture.sameness import current_manifest
from auditlake.errors import SourceUnready, all_in_one
from auditlake.failpoints import After, reach
from auditlake.lake.changes import CaptureLog
from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.membership import record_tables
from auditlake.lake.positions import read_positions
from auditlake.postgres import blockers
from auditlake.postgres.catalog import read_sizes
from auditlake.postgres.connection import Row, connect, connect_replication, pinned_conninfo, unlimited
from auditlake.postgres.creation import CreatedSlot, Waiting, create_slot
from auditlake.postgres.followed import FollowedTable
from auditlake.postgres.holder import SnapshotHolder
from auditlake.postgres.membership import read_membership
from auditlake.postgres.slot import alter_failover, read_slot
from auditlake.postgres.streaming import Streaming
from auditlake.snapshot.capturing import capturing
from auditlake.snapshot.claim import claim, is_ours
from auditlake.snapshot.plan import Plan, chosen_of, make_plan, read_source
from auditlake.snapshot.progress import CopiedTable, Progress
from auditlake.snapshot.publishing import publish
from auditlake.snapshot.tables import Copier, Limits, Snapshot
from auditlake.snapshot.task import SnapshotMark
from auditlake.snapshot.workers import Workers

_SLOT_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Target:
    """What to bootstrap: from which source into which lake; `patterns` choose tables, None takes all.

    `limits` are for the copy. With `failover` standbys keep a copy of the slot, where the server can do that (17).
    """

    conninfo: str
    lake: Lake
    slot: str
    publication: str
    patterns: tuple[str, ...] | None
    failover: bool = True
    streaming: Streaming = field(default_factory=Streaming)
    limits: Limits = field(default_factory=Limits)


Say = Callable[[str], None]


def bootstrap(
    target: Target, start_workers: Callable[[], Workers], say: Say, progress: Progress | None = None
) -> list[CopiedTable]:
    """Give every chosen table a history; returns those copied now, in name order.

    Raises SourceUnready, WrongSource or LakeUnusable before anything was written; an error that names the tables that
    were not copied after the others were finished: `progress` has those then.
    """
    told = progress or Progress(say)
    with connect(target.conninfo) as control:
        manifest = current_manifest(control, target.slot, target.publication)
        ours = is_ours(target.lake, manifest)
        plan = make_plan(control, target.patterns, target.publication, target.slot)
        for remark in plan.remarks:
            say(remark)
        if ours:
            main_slot(control, target.lake, target.slot)
        else:
            claim(target.lake, manifest, plan)
        run = _Run(target, Source(target.conninfo, manifest, target.streaming), control, say, told)
        plan = _publish(run, plan)
        reach(After.PUBLICATION)
        todo = _readable(run, plan)
        if todo:
            _record_published(control, target, todo)
            with ThreadPoolExecutor(1) as starter, _started(starter.submit(start_workers)) as workers:
                _copy_all(run, todo, workers)
        else:
            _ensure_started(control, target)
            _ensure_failover(control, target, say)
    state = told.state()
    if state.failed:
        raise all_in_one([why for _, why in sorted(state.failed)])
    return sorted(state.copied, key=lambda table: table.name)


def _publish(run: "_Run", plan: Plan) -> Plan:
    """Publish the tables of the plan; gives the plan without those that were dropped since it was made."""
    target = run.target
    while not publish(run.control, target.publication, plan):
        before, plan = plan, make_plan(run.control, target.patterns, target.publication, target.slot)
        for name in sorted({table.name for table in before.chosen} - {table.name for table in plan.chosen}):
            why = f"table {name} was dropped before it could be published"
            run.progress.fail(name, SourceUnready(why, "Run it again."))
    return plan


@dataclass(frozen=True, slots=True)
class _Run:
    target: Target
    source: Source
    control: psycopg.Connection[Row]
    say: Say
    progress: Progress


def _readable(run: _Run, plan: Plan) -> list[FollowedTable]:
    """Choose the tables that have no history yet and can be read."""
    todo = [table for table in plan.chosen if open_history(run.target.lake, table.name) is None]
    for table in todo:
        if table.name in plan.unreadable:
            run.progress.fail(table.name, plan.unreadable[table.name])
    return [table for table in todo if table.name not in plan.unreadable]


@contextmanager
def _started(workers: Future[Workers]) -> Iterator[Future[Workers]]:
    """Let workers start beside the block, and go after it."""
    try:
        yield workers
    finally:
        if workers.exception() is None:
            workers.result().close()


def _copy_all(run: _Run, todo: Sequence[FollowedTable], workers: Future[Workers]) -> None:
    target = run.target
    with ExitStack() as held:
        holder = held.enter_context(SnapshotHolder(target.conninfo))
        todo = _locked(run, holder, todo)
        replication = connect_replication(target.conninfo)
        held.callback(replication.finish)
        created = _create_slot(run, replication)
        snapshot_id = holder.import_snapshot(created.snapshot_id)
        run.progress.hold()
        mark = SnapshotMark(created.snapshot_lsn, holder.time_us())
        source = read_source(holder.connection, target.publication)
        todo = _unchanged(run, todo, chosen_of(source, target.patterns))
        sizes = read_sizes(holder.connection, [part.relation.oid for table in todo for part in table.parts])
        replication.finish()
        _ensure_failover(run.control, target, run.say)
        is_first = created.name == target.slot
        with capturing(run.source, target.lake, run.control, run.say, first=is_first) as capture:
            copier = Copier(
                workers.result(), target.lake, _snapshot(run, snapshot_id, mark), target.limits, run.progress
            )
            copier.copy(todo, sizes)
            capture.await_passed(created.consistent_point)


def _snapshot(run: _Run, snapshot_id: str, mark: SnapshotMark) -> Snapshot:
    # Whoever waits for ACCESS EXCLUSIVE waits for us, and a reader that comes later waits behind them: for ever.
    waits = {"lock_timeout": f"{int(blockers.LOCK_TIMEOUT_S * 1000)}ms", **unlimited(run.control.info.server_version)}
    return Snapshot(pinned_conninfo(run.target.conninfo, waits), snapshot_id, mark)


def _locked(run: _Run, holder: SnapshotHolder, todo: Sequence[FollowedTable]) -> list[FollowedTable]:
    """Lock the tables; those that cannot be had are left to the next run."""
    failed = holder.lock({table.name: table.locked for table in todo}, blockers.LOCK_TIMEOUT_S)
    for name, why in failed.items():
        run.progress.fail(name, why)
    return [table for table in todo if table.name not in failed]


def _create_slot(run: _Run, replication: PGconn) -> CreatedSlot:
    """Create the main slot, or a temporary one where the main one is there, for its snapshot."""
    target = run.target
    main = _ensure_started(run.control, target)
    name = f"{target.slot[:40]}_snapshot_{replication.backend_pid}" if main else target.slot
    waiting = Waiting(_SLOT_TIMEOUT_S, run.say)
    created = create_slot(replication, run.control, name, temporary=main, waiting=waiting)
    reach(After.SLOT)
    if not main:
        CaptureLog(target.lake).start_at(created.consistent_point)
    return created


def _ensure_started(control: psycopg.Connection[Row], target: Target) -> bool:
    """Whether the main slot is there and recorded; records it where a crash came in between.

    Raises WrongSource where it cannot serve this lake.
    """
    confirmed = main_slot(control, target.lake, target.slot)
    if confirmed is None:
        return False
    if read_positions(target.lake) is None:
        CaptureLog(target.lake).start_at(confirmed)
    return True


def _ensure_failover(control: psycopg.Connection[Row], target: Target, say: Say) -> None:
    """Make the slot a failover slot or none, as the setting has it; one that is read now stays as it is."""
    slot = read_slot(control, target.slot)
    if slot is None or slot.failover is None or slot.failover == target.failover:
        return
    if slot.active_pid is not None:
        say(f"slot {target.slot} is being read: run bootstrap again without that reader to set failover")
        return
    replication = connect_replication(target.conninfo)
    try:
        alter_failover(replication, target.slot, failover=target.failover)
    finally:
        replication.finish()


def _record_published(control: psycopg.Connection[Row], target: Target, todo: Sequence[FollowedTable]) -> None:
    """Record how the tables are published, before their snapshot: from there on no change may fail to come."""
    found = read_membership(control, target.publication)
    if found is None:
        raise SourceUnready(f"publication {target.publication} was dropped meanwhile", "Run it again.")
    record_tables(target.lake, found, {table.name for table in todo})
    first_look(control, target.lake, {table.name: table.relation.oid for table in todo})
    reach(After.MEMBERSHIP)


def _unchanged(run: _Run, expected: Sequence[FollowedTable], found: Sequence[FollowedTable]) -> list[FollowedTable]:
    """Leave out a table that changed its shape, its partitions or what is published of it between check and lock.

    `found` is as the snapshot has it: a partition attached later is not among it, and its rows are not copied.
    """
    shapes = {table.name: table.shape for table in found}
    for table in expected:
        if shapes.get(table.name) != table.shape:
            changed = f"table {table.name} changed while it was being locked"
            run.progress.fail(table.name, SourceUnready(changed, "Run auditlake bootstrap again."))
    return [table for table in expected if shapes.get(table.name) == table.shape]
