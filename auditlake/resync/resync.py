"""Resync: take a new snapshot of tables of a lake, and continue their histories with it.

The snapshot of a table at S is compared with the open versions of its history. Versions that differ end or begin at
S; the range between the last certain LSN and S is a gap. Later changes are applied from S on, while capture and apply
go on.

Order of effects:
  1. Check that source and slot are the lake's, and that the role may read the tables. A refusal leaves nothing behind.
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

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg

from auditlake.cancellation import Cancelled
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
from auditlake.snapshot.plan import CopyPlan, find_unreadable, publish, read_source
from auditlake.snapshot.progress import Progress
from auditlake.snapshot.scheduler import Copier, SourceLoad, exported
from auditlake.snapshot.worker_pool import Workers, closed_at_end
from auditlake.source.catalog import FollowedTable, choose, read_row_filters, read_sizes
from auditlake.source.catalog import Source as CatalogSource
from auditlake.source.connection import Row, connect, connect_replication_beside
from auditlake.source.lock_waits import LOCK_TIMEOUT_S
from auditlake.source.publication import read_membership
from auditlake.source.server import wal_end
from auditlake.source.slot import CreatedSlot, Waiting, create_slot, ensure_failover
from auditlake.source.snapshot_session import SnapshotHolder
from auditlake.store.files import remove_folder
from auditlake.store.place import Place
from auditlake.temporal.table_lookup import find_table, split_name
from auditlake.values.masks import ColumnMask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SLOT_TIMEOUT_S = 120.0
_AGAIN = "Run auditlake resync again."


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
    """Functions that start Spark, to fold changes that are not applied yet, and the workers, to copy.

    `stop` ends what Spark folds.
    """

    spark: Callable[[], SparkSession]
    workers: Callable[[], Workers]
    stop: threading.Event | None = None


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
        run = _Resync(target, control, report, progress, start)
        holds = run.hold(run.check(names))
        reach(After.HELD)
        try:
            with ThreadPoolExecutor(1) as starter, closed_at_end(starter.submit(start.workers)) as workers:
                done = run.take(holds, workers)
        finally:
            release(target.lake, holds.values())
    progress.state().require_all()
    return done


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of the source that belong to histories: by OID, and by name if the source is another one."""

    by_oid: Mapping[int, TableName]
    by_name: Mapping[TableName, TableName]

    def history_of(self, relation: Relation) -> TableName | None:
        """Return the name of the table's history; None if it has none of these."""
        return self.by_oid.get(relation.oid) or self.by_name.get(relation.name)


def _oids(tables: Mapping[TableName, FollowedTable]) -> dict[TableName, int]:
    return {name: table.relation.oid for name, table in tables.items()}


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


@dataclass(frozen=True, slots=True)
class _Resync:
    """One run; the methods are in the order of its effects."""

    target: ResyncTarget
    control: psycopg.Connection[Row]
    report: Say
    progress: Progress
    start: Starters

    @property
    def _lake(self) -> Lake:
        return self.target.lake

    def check(self, names: Collection[TableName]) -> list[HistoryTable]:
        """Check source and slot, and return the histories of the tables."""
        lake = self._lake
        require_primary(self.control)
        if self.target.renewal is None:
            self._check_source(require_manifest(lake))
        histories = {table.name: table for table in list_histories(lake)}
        if unknown := [str(name) for name in names if name not in histories]:
            raise BadUsage(f"{', '.join(unknown)} has no history in this lake", "auditlake status lists the tables.")
        parked = read_parked(lake, histories.values())
        if ended := [str(name) for name in names if name in parked and parked[name].ended]:
            raise SourceUnready(
                f"{', '.join(ended)} was dropped at the source", "Its history up to then can be queried."
            )
        unreadable = self._unreadable(names) if self.target.renewal is None else set[TableName]()
        return [histories[name] for name in sorted(names) if name not in unreadable]

    def _unreadable(self, names: Collection[TableName]) -> set[TableName]:
        """Report the tables that the role may not copy, and return the names of their histories."""
        chosen = self._chosen(names, read_source(self.control, require_manifest(self._lake).publication))
        denied = find_unreadable(chosen.values(), self.control.info.user)
        for name, why in denied.items():
            self.progress.fail(name, why)
        return {history for history, table in chosen.items() if table.name in denied}

    def _check_source(self, manifest: Manifest) -> None:
        current = current_manifest(self.control, manifest.slot, manifest.publication)
        check_timeline(self.target.conninfo, manifest, current)
        check_main_slot(self.control, self._lake, manifest.slot)

    def hold(self, tables: Sequence[HistoryTable]) -> dict[TableName, Hold]:
        """Hold the tables, at the position that the lake has after the end of the log was read."""
        until, positions = wal_end(self.control).lsn, read_positions(self._lake)
        assert positions is not None  # noqa: S101 - `check_main_slot` found a slot, which bootstrap records
        why = {} if self.target.renewal is None else {"problem": self.target.renewal.problem}
        return hold_tables(self._lake, tables, positions, until, **why)

    def take(self, holds: dict[TableName, Hold], workers: Future[Workers]) -> list[Resynced]:
        """Take a snapshot of the held tables, and continue their histories with it; return those that succeeded."""
        chosen = self._published(holds.keys())
        with ExitStack() as beside:
            staging, capture = self._copy(chosen, holds, workers, beside)
            reach(After.COPIED_AGAIN)
            done = [self._superseded(holds[name], copied) for name, copied in sorted(staging.copied.items())]
            resynced = [each for each in done if each is not None]
            if resynced and self.target.capture is None:  # until then, now is before the snapshot
                capture.await_passed(Lsn(resynced[0].lsn + 1))
        _remove(self._lake.root / "resync")
        return resynced

    def _published(self, names: Collection[TableName]) -> dict[TableName, FollowedTable]:
        """Publish the tables that are not published, and return all of them, by the names of their histories."""
        name = require_manifest(self._lake).publication
        source = read_source(self.control, name)
        chosen = self._chosen(names, source)
        for lacking in sorted({*names} - chosen.keys()):
            why = f"table {lacking} is not at the source, or cannot be published"
            self.progress.fail(
                lacking, SourceUnready(why, "auditlake check says why; its history can still be queried.")
            )
        if source.publication is None and self.target.renewal is None:
            raise SourceUnready(
                f"publication {name} is gone", "Run auditlake resync --all: it creates the publication."
            )
        tables = tuple(chosen.values())
        unpublished = tuple(table for table in tables if source.published(table.name) is None)
        locked = publish(self.control, name, CopyPlan(name, tables, unpublished, source.publication, None, ()))
        if locked is None:
            raise SourceUnready(f"publication {name}, or a table for it, changed meanwhile", _AGAIN)
        for table, lock in locked.items():
            self.progress.fail(table, lock)
        published = self._chosen(names, read_source(self.control, name))
        return {history: table for history, table in published.items() if table.name not in locked}

    def _chosen(self, names: Collection[TableName], source: CatalogSource) -> dict[TableName, FollowedTable]:
        """Return the tables of the source that have these histories, by the names of the histories."""
        known = self._tables_of(names)
        chosen = choose(source, lambda table: known.history_of(table.relation) is not None)
        found = ((known.history_of(table.relation), table) for table in chosen)
        return {history: table for history, table in found if history is not None}

    def _tables_of(self, names: Collection[TableName]) -> _Tables:
        lake, renewal = self._lake, self.target.renewal
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

    def _copy(
        self,
        todo: dict[TableName, FollowedTable],
        holds: dict[TableName, Hold],
        workers: Future[Workers],
        beside: ExitStack,
    ) -> tuple[_Staging, Capturing]:
        """Copy the tables under one snapshot, and release it; capture runs until the end of `beside`."""
        target = self.target
        with SnapshotHolder(target.conninfo) as holder:
            todo = self._locked(holder, todo)
            if target.renewal is not None:
                renew_source(self.control, target.lake, target.renewal, _oids(todo))
            self._record_again(todo, holds)
            masks = self._masks(todo)  # before the snapshot: what capture parks a table for until then ends with it
            todo = {name: table for name, table in todo.items() if table.name in masks}
            with closing(connect_replication_beside(self.control, target.conninfo)) as replication:
                created = self._slot(replication)
                snapshot_id = holder.import_snapshot(created.snapshot_id)
                self.progress.record_snapshot()
                mark = SnapshotMark(created.snapshot_lsn, self._time_us(holder))
                columns = self._comparable(todo, holder, created)
            if target.renewal is not None:
                slot = target.renewal.manifest.slot
                ensure_failover(self.control, target.conninfo, slot, wanted=target.failover, report=self.report)
            todo = {name: table for name, table in todo.items() if name in columns}
            with holder.catalog() as conn:
                sizes = read_sizes(conn, [part.relation.oid for table in todo.values() for part in table.parts])
                row_filters = read_row_filters(conn, require_manifest(target.lake).publication, todo.values())
            staging = _Staging(target.lake, columns, todo)
            snapshot = exported(target.conninfo, holder, snapshot_id, mark)
            capture = self._capture(beside)
            copier = Copier(workers.result(), staging, snapshot, target.limits, self.progress, masks)
            copier.copy(list(todo.values()), sizes, row_filters)
        if any(holds[name].is_complete for name in staging.copied):
            capture.await_passed(created.consistent_point)
        return staging, capture

    def _locked(self, holder: SnapshotHolder, todo: dict[TableName, FollowedTable]) -> dict[TableName, FollowedTable]:
        """Lock the tables, and return those locked in time; the others stay held."""
        failed = holder.lock({table.name: table.locked for table in todo.values()}, LOCK_TIMEOUT_S)
        for name, why in failed.items():
            self.progress.fail(name, why)
        return {n: table for n, table in todo.items() if table.name not in failed and self._is_logged(table)}

    def _is_logged(self, table: FollowedTable) -> bool:
        """Return whether the stream has every change in a table's partitions, with the row's key; report it if not."""
        parts = read_parts(self.control, table.relation.oid) if table.members else {}
        problem = find_unlogged(self.control, table.relation.oid, parts) if parts else None
        if problem is not None:
            fix = "Give the partition the table's REPLICA IDENTITY, SET LOGGED or detach it; then run auditlake resync."
            self.progress.fail(table.name, SourceUnready(f"{table.name}: {problem}", fix))
        return problem is None

    def _record_again(self, todo: dict[TableName, FollowedTable], holds: dict[TableName, Hold]) -> None:
        """Record how the tables are published and partitioned: the snapshot, which is later, has all rows of that."""
        lake, oids = self._lake, _oids(todo)
        membership = read_membership(self.control, require_manifest(lake).publication)
        if membership is None:
            raise SourceUnready("the publication was dropped meanwhile", _AGAIN)
        record_tables(lake, membership, oids)
        record_partitions(self.control, lake, oids)
        # The stream of a complete table may have a new column, which the catalog must not show as an old one.
        save_first_snapshots(self.control, lake, {n: oid for n, oid in oids.items() if not holds[n].is_complete})

    def _masks(self, todo: Mapping[TableName, FollowedTable]) -> dict[TableName, Mapping[str, ColumnMask]]:
        """Record what is masked in the tables, before they are copied; tables that cannot be masked stay held."""
        masks = dict[TableName, Mapping[str, ColumnMask]]()
        for table in todo.values():
            try:
                masks |= bind_copies(self.control, self._lake, self.target.masking, [table.relation])
            except ConfigError as exc:
                self.progress.fail(table.name, exc)
        return masks

    def _slot(self, replication: psycopg.Connection[Row]) -> CreatedSlot:
        """Create a temporary slot for its snapshot; if the lake's own slot is lost, a new one in its place."""
        waiting = Waiting(_SLOT_TIMEOUT_S, self.report)
        if self.target.renewal is not None:
            return renew_slot(self.control, replication, self._lake, waiting)
        slot = require_manifest(self._lake).slot
        name = f"{slot[:40]}_resync_{replication.info.backend_pid}"
        return create_slot(replication, self.control, name, temporary=True, waiting=waiting)

    def _time_us(self, holder: SnapshotHolder) -> int:
        """Return when the snapshot was taken, or just after every time in the lake if another source's is behind."""
        positions = read_positions(self._lake)
        if self.target.renewal is None or positions is None:
            return holder.time_us()
        return max(holder.time_us(), positions.current_us + 1)

    def _comparable(
        self, todo: dict[TableName, FollowedTable], holder: SnapshotHolder, created: CreatedSlot
    ) -> dict[TableName, tuple[Column, ...]]:
        """Return the columns in which each table is compared with its history, as it is under the snapshot."""
        histories = {table.name: table for table in list_histories(self._lake)}
        with holder.catalog() as conn:
            source = read_source(conn, require_manifest(self._lake).publication)
        names = {table.name for table in todo.values()}
        now = {table.name: table for table in choose(source, lambda table: table.name in names)}
        columns = {}
        for name, table in todo.items():
            if table.name not in now or now[table.name].shape != table.shape:
                why = f"table {table.name} changed while it was being locked"
                self.progress.fail(table.name, SourceUnready(why, _AGAIN))
                continue
            physical = reshaped(histories[name], table.relation, created.snapshot_lsn)
            columns[name] = tuple(column for column in physical if column.exists_at(created.snapshot_lsn))
        return columns

    def _capture(self, beside: ExitStack) -> Capturing:
        """Run capture beside the copy, so that the slot does not retain WAL, unless this process captures already."""
        target = self.target
        if target.capture is not None:
            return target.capture
        manifest = require_manifest(target.lake)
        source = CaptureSource(target.conninfo, manifest, target.streaming, masking=target.masking)
        first = target.renewal is not None
        return beside.enter_context(capturing(source, target.lake, self.control, self.report, first=first))

    def _superseded(self, hold: Hold, copied: Copied) -> Resynced | None:
        try:
            is_asked = self.target.capture is None
            engine, stop = self.target.engine, self.start.stop
            done = supersede(self.start.spark, self._lake, hold, copied, engine, is_asked=is_asked, stop=stop)
        except Cancelled:
            raise
        except AuditlakeError as exc:
            self.progress.fail(copied.name, exc)
            return None
        self.report(str(done))
        return done


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
        return sorted({find_table(split_name(text), names) for text in given})
    parked = read_parked(lake, histories)
    ended = {name for name, record in parked.items() if record.ended}
    if not restarts and (unfinished := held_tables(lake, histories)):
        return unfinished
    chosen = [table.name for table in histories] if every else list(parked)
    return sorted(name for name in chosen if name not in ended)
