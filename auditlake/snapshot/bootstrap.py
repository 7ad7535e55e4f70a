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

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg.pq.abc import PGconn
from pyspark.sql import SparkSession

from auditlake.capture.capture import Capture
from auditlake.capture.mainslot import main_slot
from auditlake.capture.opening import Source
from auditlake.capture.sameness import current_manifest
from auditlake.errors import InvariantBroken, SourceUnready, WrongSource
from auditlake.failpoints import After, reach
from auditlake.lake.changes import CaptureLog
from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, read_manifest, write_manifest
from auditlake.lake.membership import record_tables
from auditlake.lake.positions import read_positions
from auditlake.postgres.connection import Row, connect, connect_replication, pinned_conninfo
from auditlake.postgres.followed import FollowedTable
from auditlake.postgres.holder import SnapshotHolder
from auditlake.postgres.membership import read_membership
from auditlake.postgres.publication import add_tables, create_publication
from auditlake.postgres.slot import CreatedSlot, alter_failover, create_slot, read_slot
from auditlake.postgres.streaming import Streaming
from auditlake.snapshot.copy import SnapshotMark
from auditlake.snapshot.plan import Plan, chosen_of, make_plan, read_source
from auditlake.snapshot.tables import CopiedTable, Copier, Snapshot

_LOCK_TIMEOUT_S = 30.0
_SLOT_TIMEOUT_S = 120.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Target:
    """What to bootstrap: from which source into which lake; `patterns` choose tables, None takes all.

    With `failover` standbys keep a copy of the slot, where the server can do that (17).
    """

    conninfo: str
    lake: Lake
    slot: str
    publication: str
    patterns: tuple[str, ...] | None
    failover: bool = True
    streaming: Streaming = field(default_factory=Streaming)


Say = Callable[[str], None]


def bootstrap(target: Target, start_spark: Callable[[], SparkSession], say: Say) -> list[CopiedTable]:
    """Give every chosen table a history; returns those copied now.

    Raises SourceUnready, WrongSource or LakeUnusable before anything was written; an error of single tables after the
    others were finished.
    """
    with connect(target.conninfo) as control:
        manifest = current_manifest(control, target.slot, target.publication)
        is_ours = _is_ours(target.lake, manifest)
        plan = make_plan(control, target.patterns, target.publication, target.slot)
        for remark in plan.remarks:
            say(remark)
        if is_ours:
            main_slot(control, target.lake, target.slot)
        else:
            _claim(target.lake, manifest, plan)
        _publish(control, target, plan)
        reach(After.PUBLICATION)
        todo = [table for table in plan.chosen if open_history(target.lake, table.name) is None]
        if not todo:
            _ensure_started(control, target)
            _ensure_failover(control, target, say)
            return []
        _record_published(control, target, todo)
        with ThreadPoolExecutor(1) as starter:
            spark = starter.submit(start_spark)
            return _copy_all(
                _Run(target, Source(target.conninfo, manifest, target.streaming), control, say), todo, spark
            )


def _is_ours(lake: Lake, manifest: Manifest) -> bool:
    """Whether the folder is this source's lake; False where it is none yet."""
    recorded = read_manifest(lake)
    if recorded is not None:
        recorded.check_same(manifest)
    return recorded is not None


def _claim(lake: Lake, manifest: Manifest, plan: Plan) -> None:
    """Make the folder this source's lake."""
    if plan.slot is not None:
        what = f"{plan.slot.plugin or 'physical'}, database {plan.slot.database or '-'}"
        raise WrongSource(
            f"slot {manifest.slot} exists already ({what}), and {lake.root} has no record of it",
            f"Choose another slot, or drop that one: select pg_drop_replication_slot('{manifest.slot}').",
        )
    write_manifest(lake, manifest)


def _publish(control: psycopg.Connection[Row], target: Target, plan: Plan) -> None:
    if plan.publication is None:
        create_publication(control, target.publication, [table.name for table in plan.chosen])
    elif plan.unpublished:
        add_tables(control, target.publication, [table.name for table in plan.unpublished])


@dataclass(frozen=True, slots=True)
class _Run:
    target: Target
    source: Source
    control: psycopg.Connection[Row]
    say: Say


def _copy_all(run: _Run, todo: Sequence[FollowedTable], spark: Future[SparkSession]) -> list[CopiedTable]:
    target = run.target
    with ExitStack() as held:
        holder = held.enter_context(SnapshotHolder(target.conninfo))
        holder.lock([name for table in todo for name in table.locked], _LOCK_TIMEOUT_S)
        replication = connect_replication(target.conninfo)
        held.callback(replication.finish)
        created = _create_slot(run, replication)
        snapshot_id = holder.import_snapshot(created.snapshot_id)
        mark = SnapshotMark(created.snapshot_lsn, holder.time_us())
        source = read_source(holder.connection, target.publication)
        _see_unchanged(todo, chosen_of(source, target.patterns))
        replication.finish()
        _ensure_failover(run.control, target, run.say)
        with _capturing(run, created) as capturing:
            snapshot = Snapshot(pinned_conninfo(target.conninfo), snapshot_id, mark)
            copied = Copier(spark.result(), target.lake, snapshot, run.say).copy(todo)
            _await_capture(target.lake, created, capturing)
        return copied


def _create_slot(run: _Run, replication: PGconn) -> CreatedSlot:
    """Create the main slot, or a temporary one where the main one is there, for its snapshot."""
    target = run.target
    main = _ensure_started(run.control, target)
    name = f"{target.slot[:40]}_snapshot_{replication.backend_pid}" if main else target.slot
    created = create_slot(replication, run.control, name, temporary=main, timeout_s=_SLOT_TIMEOUT_S)
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


def _see_unchanged(expected: Sequence[FollowedTable], found: Sequence[FollowedTable]) -> None:
    """See that no table changed its shape, its partitions or what is published of it between the check and the lock.

    `found` is as the snapshot has it: a partition attached later is not among it, and its rows are not copied.
    """
    shapes = {table.name: table.shape for table in found}
    for table in expected:
        if shapes.get(table.name) != table.shape:
            raise SourceUnready(f"table {table.name} changed while it was being locked", "Run it again.")


@contextmanager
def _capturing(run: _Run, created: CreatedSlot) -> Iterator[Future[None] | None]:
    """Run capture beside the copy, unless another process does (a `follow` that goes on)."""
    state = read_slot(run.control, run.target.slot)
    if state is not None and state.active_pid is not None and created.name != run.target.slot:
        run.say("capture runs in another process")
        yield None
        return
    stop = threading.Event()
    capture = Capture(run.source, run.target.lake, stop)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(capture.run, None)
        try:
            yield running
        finally:
            stop.set()
        running.result()


def _await_capture(lake: Lake, created: CreatedSlot, capturing: Future[None] | None) -> None:
    """Wait until capture has passed the snapshot, so that the new tables can be asked for at once."""
    deadline = time.monotonic() + _SLOT_TIMEOUT_S
    while (positions := read_positions(lake)) is None or positions.acknowledged < created.consistent_point:
        if capturing is not None and capturing.done():
            capturing.result()
        if time.monotonic() > deadline:
            raise InvariantBroken(f"capture did not pass {created.consistent_point} in {_SLOT_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)
