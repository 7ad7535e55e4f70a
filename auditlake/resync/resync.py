"""Resync: take a new snapshot of tables of a lake, and continue their histories with it.

The snapshot of a table at S is compared with the open versions of its history. Versions that differ end or begin at
S; the range between the last certain LSN and S is a gap. Later changes are applied from S on, while capture and apply
go on.

Order of effects:
  1. Check that source and slot are the lake's, and that the tables are published. A refusal leaves nothing behind.
  2. Hold the tables (`hold`): from here on, apply folds none of them past its last certain LSN.
  3. Add missing tables to the publication, lock the tables, and record again how they are published and partitioned.
     From here on, capture compares the catalog with these records, and parks the table again if anything changes later.
  4. Take the snapshot through a temporary slot, as bootstrap does for late tables, and copy it into a folder of its
     own. Release the snapshot.
  5. Wait until the lake has every commit up to S, for tables whose stream is complete.
  6. Supersede the open versions, one Delta commit per table (`supersede`). Now is refused until the lake has every
     commit up to S, so a run of its own waits for that.
After a kill at any point, held tables stay as they are, known up to the last certain LSN, and other tables are not
affected. The same command, or a running `follow`, takes another snapshot of them; tables that reached 6 are done.

Changes of a table up to S that came through the stream stay in `changes`. Those after the last certain LSN are not
folded: the snapshot has their result, and what the table was between two of them is unknown.
"""

from __future__ import annotations  # types of Spark are imported for mypy only

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg

from auditlake.capture.masking import bind_copies, prepare_masks
from auditlake.capture.partition_watch import find_unlogged, read_parts, record_partitions
from auditlake.capture.preconditions import (
    CaptureSource,
    check_main_slot,
    check_timeline,
    current_manifest,
    require_primary,
)
from auditlake.capture.supervisor import Capturing, capturing
from auditlake.engine import Engine
from auditlake.errors import AuditlakeError, BadUsage, ConfigError, SourceUnready
from auditlake.failpoints import After, reach
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, require_manifest
from auditlake.lake.parking import read_parked
from auditlake.lake.positions import read_positions
from auditlake.lake.records import read_recorded, record_tables
from auditlake.lake.stage_lock import Stage
from auditlake.lake.stage_lock import hold as locked
from auditlake.lsn import Lsn
from auditlake.messages import Say
from auditlake.relation import Column, Relation, TableName
from auditlake.resync.hold import Hold, held_tables, hold_tables, release
from auditlake.resync.renewal import Renewal, renew_slot, renew_source
from auditlake.resync.supersede import Copied, Resynced, supersede
from auditlake.schema.catalog_snapshot import save_first_snapshots
from auditlake.schema.evolution import reshaped
from auditlake.settings.mask_rules import Masking
from auditlake.settings.streaming_mode import Streaming
from auditlake.snapshot.ctid_ranges import CopiedFile, SnapshotMark
from auditlake.snapshot.plan import CopyPlan, publish, read_source
from auditlake.snapshot.progress import Progress
from auditlake.snapshot.scheduler import Copier, SourceLoad, exported
from auditlake.snapshot.worker_pool import Workers, closed_at_end
from auditlake.source.catalog import FollowedTable, TableSize, choose, read_sizes
from auditlake.source.catalog import Source as CatalogSource
from auditlake.source.connection import Row, connect, connect_replication_beside
from auditlake.source.lock_waits import LOCK_TIMEOUT_S
from auditlake.source.publication import create_publication, read_membership
from auditlake.source.server import wal_end
from auditlake.source.slot import CreatedSlot, Waiting, create_slot, ensure_failover
from auditlake.source.snapshot_session import SnapshotHolder
from auditlake.store.files import remove_folder
from auditlake.store.place import Place
from auditlake.temporal.table_lookup import find_table
from auditlake.values.masks import ColumnMask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SLOT_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class ResyncTarget:
    """Source and lake of a resync; `limits` bound the copy.

    `capture` is that of this process; without it, one runs during the copy, unless another process captures. With
    `renewal`, which the operator has confirmed, the lake goes on with the source that it describes, under a new slot.
    Standbys keep a copy of that if `failover` is set and the server supports it (17). `engine` folds what is not
    applied yet.
    """

    conninfo: str
    lake: Lake
    streaming: Streaming = field(default_factory=Streaming)
    limits: SourceLoad = field(default_factory=SourceLoad)
    capture: Capturing | None = None
    renewal: Renewal | None = None
    failover: bool = True
    masking: Masking = field(default_factory=Masking)
    engine: Engine = Engine.AUTO

    @property
    def manifest(self) -> Manifest:
        """Return the manifest of the lake, or the one that it gets."""
        return require_manifest(self.lake) if self.renewal is None else self.renewal.manifest


@dataclass(frozen=True, slots=True)
class Starters:
    """Functions that start Spark, to fold changes that are not applied yet, and the workers, to copy."""

    spark: Callable[[], SparkSession]
    workers: Callable[[], Workers]


def resync(
    target: ResyncTarget,
    names: Collection[TableName],
    start: Starters,
    report: Say,
    progress: Progress | None = None,
) -> list[Resynced]:
    """Take a new snapshot of these tables; return the changes of each that succeeded.

    Raises:
        BadUsage, SourceUnready, WrongSource, LakeUnusable: before anything was written.
        LakeConflict: if another resync is running.
        AuditlakeError: names the tables that were not done, after all others were.
    """
    progress = progress or Progress(report)
    prepare_masks(target.conninfo, target.lake, target.masking)
    stages = (Stage.RESYNC,) if target.renewal is None else (Stage.RESYNC, Stage.CAPTURE, Stage.BOOTSTRAP)
    offset = target.manifest.lsn_offset
    with locked(target.lake, "resync", *stages), connect(target.conninfo, offset) as control:
        run = _Run(target, control, report, progress, start)
        tables = _check(run, names)
        holds = _hold(run, tables)
        reach(After.HELD)
        try:
            with ThreadPoolExecutor(1) as starter, closed_at_end(starter.submit(start.workers)) as workers:
                done = _take(run, holds, workers)
        finally:
            release(target.lake, holds.values())
    progress.state().require_all()
    return done


@dataclass(frozen=True, slots=True)
class _Run:
    target: ResyncTarget
    control: psycopg.Connection[Row]
    report: Say
    progress: Progress
    start: Starters


def _check(run: _Run, names: Collection[TableName]) -> list[HistoryTable]:
    """Check source and slot, and return the histories of the tables."""
    lake = run.target.lake
    require_primary(run.control)
    if run.target.renewal is None:
        _check_source(run, require_manifest(lake))
    histories = {table.name: table for table in list_histories(lake)}
    if unknown := [str(name) for name in names if name not in histories]:
        raise BadUsage(f"{', '.join(unknown)} has no history in this lake", "auditlake status lists the tables.")
    parked = read_parked(lake, histories.values())
    if ended := [str(name) for name in names if name in parked and parked[name].ended]:
        raise SourceUnready(f"{', '.join(ended)} was dropped at the source", "Its history up to then can be queried.")
    return [histories[name] for name in sorted(names)]


def _check_source(run: _Run, manifest: Manifest) -> None:
    current = current_manifest(run.control, manifest.slot, manifest.publication)
    check_timeline(run.target.conninfo, manifest, current)
    check_main_slot(run.control, run.target.lake, manifest.slot)


def _hold(run: _Run, tables: Sequence[HistoryTable]) -> dict[TableName, Hold]:
    """Hold the tables, at the position that the lake has after the end of the log was read."""
    until, positions = wal_end(run.control).lsn, read_positions(run.target.lake)
    assert positions is not None  # noqa: S101 - `check_main_slot` found a slot, which bootstrap records
    why = {} if run.target.renewal is None else {"problem": run.target.renewal.problem}
    return hold_tables(run.target.lake, tables, positions, until, **why)


def _take(run: _Run, holds: dict[TableName, Hold], workers: Future[Workers]) -> list[Resynced]:
    target = run.target
    chosen = _published(run, holds.keys())
    with ExitStack() as beside:
        staging, capture = _copy(run, chosen, holds, workers, beside)
        reach(After.COPIED_AGAIN)
        done = [_superseded(run, holds[name], copied) for name, copied in sorted(staging.copied.items())]
        resynced = [each for each in done if each is not None]
        if resynced and target.capture is None:  # until then, now is before the snapshot
            capture.await_passed(Lsn(resynced[0].lsn + 1))
    _remove(target.lake.root / "resync")
    return resynced


def _superseded(run: _Run, hold: Hold, copied: Copied) -> Resynced | None:
    try:
        is_asked = run.target.capture is None
        done = supersede(run.start.spark, run.target.lake, hold, copied, run.target.engine, is_asked=is_asked)
    except AuditlakeError as exc:
        run.progress.fail(copied.name, exc)
        return None
    run.report(str(done))
    return done


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of the source that belong to histories: by OID, and by name if the source is another one."""

    by_oid: Mapping[int, TableName]
    by_name: Mapping[TableName, TableName]

    def history_of(self, relation: Relation) -> TableName | None:
        """Return the name of the table's history; None if it has none of these."""
        return self.by_oid.get(relation.oid) or self.by_name.get(relation.name)


def _tables_of(run: _Run, names: Collection[TableName]) -> _Tables:
    lake, renewal = run.target.lake, run.target.renewal
    histories = [table for table in list_histories(lake) if table.name in names]
    if renewal is not None and renewal.is_another(require_manifest(lake)):  # its tables have other OIDs
        return _Tables({}, {table.last_name: table.name for table in histories})
    recorded = read_recorded(lake)
    if recorded is None:
        oids = {table.name: table.oid for table in histories}
    else:  # of the source recorded last; a history has its OIDs only from the new snapshot on
        oids = {name: member.relation for name, member in recorded.tables.items()}
    by_oid = {oid: table.name for table in histories if (oid := oids.get(table.name)) is not None}
    return _Tables(by_oid, {table.last_name: table.name for table in histories if oids.get(table.name) is None})


def _published(run: _Run, names: Collection[TableName]) -> dict[TableName, FollowedTable]:
    """Publish the tables that are not published, and return all of them, by the names of their histories."""
    name, tables = require_manifest(run.target.lake).publication, _tables_of(run, names)

    def choose_from(source: CatalogSource) -> dict[TableName, FollowedTable]:
        chosen = choose(source, lambda table: tables.history_of(table.relation) is not None)
        found = ((tables.history_of(table.relation), table) for table in chosen)
        return {history: table for history, table in found if history is not None}

    source = read_source(run.control, name)
    chosen = choose_from(source)
    for lacking in sorted({*names} - chosen.keys()):
        why = f"table {lacking} is not at the source, or cannot be published"
        run.progress.fail(lacking, SourceUnready(why, "auditlake check says why; its history can still be queried."))
    if source.publication is None and run.target.renewal is None:
        raise SourceUnready(f"publication {name} is gone", "Run auditlake resync --all: it creates the publication.")
    if source.publication is None:
        create_publication(run.control, name, [table.name for table in chosen.values()])
        return choose_from(read_source(run.control, name))
    unpublished = tuple(table for table in chosen.values() if source.published(table.name) is None)
    publish(run.control, name, CopyPlan(name, tuple(chosen.values()), unpublished, source.publication, None, ()))
    return choose_from(read_source(run.control, name))


def _copy(
    run: _Run,
    todo: dict[TableName, FollowedTable],
    holds: dict[TableName, Hold],
    workers: Future[Workers],
    beside: ExitStack,
) -> tuple[_Staging, Capturing]:
    """Copy the tables under one snapshot, and release it; capture runs until the end of `beside`."""
    target = run.target
    with SnapshotHolder(target.conninfo) as holder:
        todo = _locked(run, holder, todo)
        if run.target.renewal is not None:
            renew_source(run.control, target.lake, run.target.renewal, _oids(todo))
        _record_again(run, todo, holds)
        masks = _masks(run, todo)  # before the snapshot: what capture parks a table for until then ends with it
        todo = {name: table for name, table in todo.items() if table.name in masks}
        with closing(connect_replication_beside(run.control, target.conninfo)) as replication:
            created = _slot(run, replication)
            snapshot_id = holder.import_snapshot(created.snapshot_id)
            run.progress.record_snapshot()
            mark = SnapshotMark(created.snapshot_lsn, _time_us(run, holder))
            columns = _comparable(run, todo, holder, created)
        if target.renewal is not None:
            slot = target.renewal.manifest.slot
            ensure_failover(run.control, target.conninfo, slot, wanted=target.failover, report=run.report)
        todo = {name: table for name, table in todo.items() if name in columns}
        sizes = _sizes(holder, todo.values())
        staging = _Staging(target.lake, columns, todo)
        snapshot = exported(target.conninfo, holder, snapshot_id, mark)
        capture = _capture(run, beside)
        copier = Copier(workers.result(), staging, snapshot, target.limits, run.progress, masks)
        copier.copy(list(todo.values()), sizes)
    if any(holds[name].is_complete for name in staging.copied):
        capture.await_passed(created.consistent_point)
    return staging, capture


def _masks(run: _Run, todo: Mapping[TableName, FollowedTable]) -> dict[TableName, Mapping[str, ColumnMask]]:
    """Record what is masked in the tables, before anything of them is copied; those that cannot be masked stay held."""
    target, masks = run.target, dict[TableName, Mapping[str, ColumnMask]]()
    for table in todo.values():
        try:
            masks |= bind_copies(target.lake, target.masking, [table.relation])
        except ConfigError as exc:
            run.progress.fail(table.name, exc)
    return masks


def _sizes(holder: SnapshotHolder, tables: Iterable[FollowedTable]) -> dict[int, TableSize]:
    with holder.catalog() as conn:
        return read_sizes(conn, [part.relation.oid for table in tables for part in table.parts])


def _time_us(run: _Run, holder: SnapshotHolder) -> int:
    """Return when the snapshot was taken; after every time that the lake knows, although another clock is behind."""
    positions = read_positions(run.target.lake)
    if run.target.renewal is None or positions is None:
        return holder.time_us()
    return max(holder.time_us(), positions.current_us + 1)


def _capture(run: _Run, beside: ExitStack) -> Capturing:
    """Run capture beside the copy, so that the slot does not retain WAL, unless this process captures already."""
    target = run.target
    if target.capture is not None:
        return target.capture
    manifest = require_manifest(target.lake)
    source = CaptureSource(target.conninfo, manifest, target.streaming, masking=target.masking)
    first = run.target.renewal is not None
    return beside.enter_context(capturing(source, target.lake, run.control, run.report, first=first))


def _locked(run: _Run, holder: SnapshotHolder, todo: dict[TableName, FollowedTable]) -> dict[TableName, FollowedTable]:
    """Lock the tables, and return those locked in time; the others stay held."""
    failed = holder.lock({table.name: table.locked for table in todo.values()}, LOCK_TIMEOUT_S)
    for name, why in failed.items():
        run.progress.fail(name, why)
    return {n: table for n, table in todo.items() if table.name not in failed and _is_logged(run, table)}


def _is_logged(run: _Run, table: FollowedTable) -> bool:
    """Whether the stream has every change in a table's partitions, with the key of the row; report it if it has not."""
    parts = read_parts(run.control, table.relation.oid) if table.members else {}
    problem = find_unlogged(run.control, table.relation.oid, parts) if parts else None
    if problem is not None:
        fix = "Give the partition the table's REPLICA IDENTITY, SET LOGGED or detach it; then run auditlake resync."
        run.progress.fail(table.name, SourceUnready(f"{table.name}: {problem}", fix))
    return problem is None


def _oids(tables: Mapping[TableName, FollowedTable]) -> dict[TableName, int]:
    return {name: table.relation.oid for name, table in tables.items()}


def _record_again(run: _Run, todo: dict[TableName, FollowedTable], holds: dict[TableName, Hold]) -> None:
    """Record how the tables are published and partitioned: the snapshot, which is later, has all rows of that."""
    lake, oids = run.target.lake, _oids(todo)
    membership = read_membership(run.control, require_manifest(lake).publication)
    if membership is None:
        raise SourceUnready("the publication was dropped meanwhile", "Run auditlake resync again.")
    record_tables(lake, membership, oids)
    record_partitions(run.control, lake, oids)
    # The stream of a complete table may have a new column, which the catalog must not show as an old one.
    save_first_snapshots(run.control, lake, {n: oid for n, oid in oids.items() if not holds[n].is_complete})


def _slot(run: _Run, replication: psycopg.Connection[Row]) -> CreatedSlot:
    """Create a temporary slot for its snapshot; if the lake's own slot is lost, a new one in its place."""
    waiting = Waiting(_SLOT_TIMEOUT_S, run.report)
    if run.target.renewal is not None:
        return renew_slot(run.control, replication, run.target.lake, waiting)
    slot = require_manifest(run.target.lake).slot
    name = f"{slot[:40]}_resync_{replication.info.backend_pid}"
    return create_slot(replication, run.control, name, temporary=True, waiting=waiting)


def _comparable(
    run: _Run, todo: dict[TableName, FollowedTable], holder: SnapshotHolder, created: CreatedSlot
) -> dict[TableName, tuple[Column, ...]]:
    """Return the columns in which each table is compared with its history, as it is under the snapshot."""
    histories = {table.name: table for table in list_histories(run.target.lake)}
    with holder.catalog() as conn:
        source = read_source(conn, require_manifest(run.target.lake).publication)
    names = {table.name for table in todo.values()}
    now = {table.name: table for table in choose(source, lambda table: table.name in names)}
    columns = {}
    for name, table in todo.items():
        if table.name not in now or now[table.name].shape != table.shape:
            why = f"table {table.name} changed while it was being locked"
            run.progress.fail(table.name, SourceUnready(why, "Run auditlake resync again."))
            continue
        physical = reshaped(histories[name], table.relation, created.snapshot_lsn)
        columns[name] = tuple(column for column in physical if column.exists_at(created.snapshot_lsn))
    return columns


def _remove(folder: Place) -> None:
    """Remove a folder of copied files; what stays is removed by the next run."""
    with suppress(OSError):
        remove_folder(folder)


class _Staging:
    """Destination of the copy: a folder per table beside the histories; `copied` is by the histories' names."""

    def __init__(
        self, lake: Lake, columns: dict[TableName, tuple[Column, ...]], tables: Mapping[TableName, FollowedTable]
    ) -> None:
        self._lake = lake
        self._tables = tables
        self._names = {table.name: name for name, table in tables.items()}
        self._columns = columns
        self._begun: dict[TableName, tuple[Column, ...]] = {}
        self.copied: dict[TableName, Copied] = {}

    def folder(self, name: TableName) -> Place:
        return self._lake.copied_again(self._names[name])

    def columns(self, table: FollowedTable) -> tuple[Column, ...]:
        return self._columns[self._names[table.name]]

    def begin(self, name: TableName, columns: tuple[Column, ...], oid: int) -> None:  # noqa: ARG002 - of the interface
        _remove(self.folder(name))
        self._begun[name] = columns

    def commit(self, name: TableName, files: Sequence[CopiedFile], mark: SnapshotMark) -> None:
        history, columns = self._names[name], self._begun[name]
        relation = self._tables[history].relation
        self.copied[history] = Copied(history, relation, self.folder(name), columns, tuple(files), mark)


def choose_tables(
    lake: Lake, histories: Sequence[HistoryTable], given: Sequence[str], *, every: bool, restarts: bool = False
) -> list[TableName]:
    """Choose the tables named; with `every` all, or those that an earlier run did not finish; else the parked ones.

    With `restarts`, the stream begins again, for all tables. Tables that were dropped at the source are left out
    unless they are named.

    Raises BadUsage.
    """
    if given and every:
        raise BadUsage("--table and --all exclude each other", "Use one of them, or neither.")
    if given:
        names = [table.name for table in histories]
        return sorted({find_table(text.split("."), names) for text in given})
    parked = read_parked(lake, histories)
    ended = {name for name, record in parked.items() if record.ended}
    if not restarts and (unfinished := held_tables(lake, histories)):
        return unfinished
    chosen = [table.name for table in histories] if every else list(parked)
    return sorted(name for name in chosen if name not in ended)
