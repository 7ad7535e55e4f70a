"""Schedule the copy of tables under a held snapshot: bundles of ranges to workers, tables to commits.

  1. Workers copy bundles of ranges to files and commit nothing. The number of concurrent bundles, the smaller of
     workers and allowed connections, bounds connections and memory.
  2. After a table's last range, all of its files are committed here, with its position, in one durable Delta commit.
     Until then the table does not exist for readers, so half a table is never read.
  3. A table that fails does not stop the others; the next bootstrap copies it from the beginning.

A table is committed only if the session that holds its locks and the snapshot is still alive after its last range was
read. Otherwise a TRUNCATE or a rewrite may have happened in between, and ranges may lack rows
(`source.snapshot_session`).

A folder that a killed copy left behind is deleted when the table's copy begins again. In an object store it is emptied
by a commit instead: a process that was paused must not delete what its successor has committed (`lake/lease`).
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from auditlake.delta.log_writer import added_file, moved, put_commit
from auditlake.delta.table import place_of_table
from auditlake.errors import AuditlakeError, LakeUnusable
from auditlake.failpoints import After, reach
from auditlake.lake.column_names import as_stored
from auditlake.lake.history import OPEN_PART, open_history, recreate_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.relation import Column, TableName
from auditlake.snapshot.ctid_ranges import (
    WHOLE,
    CopiedFile,
    CopyTask,
    SnapshotMark,
    bundled,
    page_ranges,
    pages_per_range,
)
from auditlake.snapshot.progress import CopiedTable, Progress
from auditlake.snapshot.worker_pool import Workers
from auditlake.source.catalog import FollowedTable, TableSize
from auditlake.source.connection import for_other_machines, pinned_conninfo, unlimited
from auditlake.source.lock_waits import LOCK_TIMEOUT_S
from auditlake.source.snapshot_session import SnapshotHolder
from auditlake.store.failures import remedy_of
from auditlake.store.files import sync
from auditlake.store.place import Place
from auditlake.values.masks import ColumnMask

# A commit is a few small files: four at a time keep up with any number of small tables.
_COMMITS_AT_ONCE = 4
_LOOK_S = 0.2
"""How soon a signal is heard that did not wake the main thread."""
_MOST_ORDINALS = 2**31  # `_ordinal` is INT
_NOTHING = TableSize(0, 0, 0)
_AGAIN = "Run this again: it continues from here."


@dataclass(frozen=True, slots=True)
class SourceLoad:
    """Limits on the load of the source: concurrent connections, and bytes per second in total (None: unlimited)."""

    connections: int = 8
    bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An exported snapshot: the connection for its workers, its identifier, and the mark on its rows.

    `verify` raises an AuditlakeError that names the table, unless the session that holds the snapshot has held locks on
    the given relations, by OID, since the export. `explained` returns the reason for the failure of a reader.
    """

    conninfo: str = field(repr=False)
    snapshot_id: str
    mark: SnapshotMark
    verify: Callable[[TableName, Sequence[int]], None]
    explained: Callable[[AuditlakeError], AuditlakeError]


def exported(conninfo: str, holder: SnapshotHolder, snapshot_id: str, mark: SnapshotMark) -> Snapshot:
    """Describe the snapshot that `holder` has exported again, for the workers."""
    # A session that waits for ACCESS EXCLUSIVE waits for our lock, and our later readers queue behind it: a deadlock
    # that PostgreSQL cannot detect. The holder gives way to it, and readers have a lock_timeout.
    version = holder.connection.info.server_version
    waits = {"lock_timeout": f"{int(LOCK_TIMEOUT_S * 1000)}ms", **unlimited(version)}
    complete = for_other_machines(conninfo, holder.connection)
    readers = pinned_conninfo(complete, waits, application_name=holder.readers_name)
    return Snapshot(readers, snapshot_id, mark, holder.verify, holder.explained)


class Destination(Protocol):
    """Where copied tables go."""

    def folder(self, name: TableName) -> Place:
        """Return the folder for a table's files."""

    def columns(self, table: FollowedTable) -> tuple[Column, ...]:
        """Return the columns of a table under the names in which they are written."""

    def begin(self, name: TableName, columns: tuple[Column, ...], oid: int) -> None:
        """Prepare the folder before the first range of a table is copied; raises LakeUnusable."""

    def commit(self, name: TableName, files: Sequence[CopiedFile], mark: SnapshotMark) -> None:
        """Take all files of a table, whose locks and snapshot were held until now; raises LakeUnusable."""


class _Job:
    """A table being copied: its tasks, and the files written so far."""

    def __init__(self, table: FollowedTable, columns: tuple[Column, ...], tasks: Sequence[CopyTask]) -> None:
        self.name = table.name
        self.oids = tuple(part.relation.oid for part in (table.table, *table.members))
        self.columns = columns
        self.tasks = tasks
        self.files: list[CopiedFile] = []
        self.failed = False
        self.lock = threading.Lock()
        self.begun_at: float | None = None


class Copier:
    """Copy tables under one snapshot."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a copy needs
        self,
        workers: Workers,
        destination: Destination,
        snapshot: Snapshot,
        limits: SourceLoad,
        progress: Progress,
        masks: Mapping[TableName, Mapping[str, ColumnMask]],
    ) -> None:
        """Prepare a copy; `masks` are by the tables' names at the source, and by the names of columns."""
        self._workers = workers
        self._destination = destination
        self._snapshot = snapshot
        self._masks = masks
        self._at_once = max(1, min(limits.connections, workers.at_once))
        self._bytes_per_s = None if limits.bytes_per_s is None else limits.bytes_per_s / self._at_once
        self._progress = progress
        self._commits = ThreadPoolExecutor(_COMMITS_AT_ONCE)
        self._committing: list[Future[None]] = []
        self._interrupted = False

    def copy(
        self, tables: Sequence[FollowedTable], sizes: Mapping[int, TableSize], row_filters: Mapping[int, str]
    ) -> None:
        """Copy all tables; record a failed table in `progress` and continue with the others.

        `row_filters` are the SQL of the tables' row filters, by OID.
        """
        jobs = [self._plan(table, sizes, row_filters) for table in tables]
        bundles = bundled([(job, task) for job in jobs for task in job.tasks], lambda item: item[1].source_bytes)
        with self._commits, ThreadPoolExecutor(self._at_once) as copies:
            try:
                running = [copies.submit(self._copy, bundle) for bundle in bundles]
                for job in jobs:
                    if not job.tasks and self._begin(job):  # a partitioned table without a partition
                        self._add_files(job, [])
                _await(running)
            except KeyboardInterrupt:
                self._interrupted = True
                copies.shutdown(wait=False, cancel_futures=True)
                self._workers.close()
                raise
        for future in self._committing:
            future.result()

    def _plan(self, table: FollowedTable, sizes: Mapping[int, TableSize], row_filters: Mapping[int, str]) -> _Job:
        """Plan one range for each partition (or the table itself) that is empty or small, more for a large one."""
        parts = [(part.name, sizes.get(part.relation.oid, _NOTHING)) for part in table.parts]
        estimates = [size.rows for _, size in parts]
        self._progress.expect(
            table.name,
            sum(size.size_bytes for _, size in parts),
            None if None in estimates else sum(estimate or 0 for estimate in estimates),
        )
        columns = self._destination.columns(table)
        row_filter = None if table.row_filter is None else row_filters[table.relation.oid]
        return _Job(table, columns, self._tasks(table, columns, parts, row_filter))

    def _tasks(
        self,
        table: FollowedTable,
        columns: tuple[Column, ...],
        parts: Sequence[tuple[TableName, TableSize]],
        row_filter: str | None,
    ) -> list[CopyTask]:
        ranges = [
            (name, size, pages)
            for name, size in parts
            for pages in (
                [WHOLE] if size.of_stranger else page_ranges(size.pages, pages_per_range(size.pages, size.size_bytes))
            )
        ]
        has_key = any(column.key for column in columns)
        return [
            CopyTask(
                self._snapshot.conninfo,
                self._snapshot.snapshot_id,
                name,
                columns,
                pages,
                self._destination.folder(table.name),
                self._snapshot.mark,
                row_filter=row_filter,
                # Interleaved, because the number of rows in a range is unknown before it is read.
                ordinals=None if has_key else range(number, _MOST_ORDINALS, len(ranges)),
                source_bytes=pages.share(size.pages, size.size_bytes),
                bytes_per_s=self._bytes_per_s,
                masks=self._masks[table.name],
                of_stranger=size.of_stranger,
            )
            for number, (name, size, pages) in enumerate(ranges)
        ]

    def _copy(self, bundle: Sequence[tuple[_Job, CopyTask]]) -> None:
        wanted = [(job, task) for job, task in bundle if self._begin(job) and self._verify(job)]
        if not wanted:
            return
        tasks = [task for _, task in wanted]
        for (job, task), result in zip(wanted, self._workers.run(tasks), strict=True):
            if isinstance(result, AuditlakeError):
                if self._verify(job):  # else the lost snapshot is the reason, and already recorded
                    self._fail(job, self._snapshot.explained(result))
            else:
                self._progress.advance(job.name, result.rows, task.source_bytes)
                self._add_files(job, [result])

    def _begin(self, job: _Job) -> bool:
        """Prepare the destination before a table's first range; return False if the table has failed."""
        with job.lock:
            if job.begun_at is None and not job.failed:
                job.begun_at = time.monotonic()
                self._progress.begin(job.name)
                try:
                    self._destination.begin(job.name, job.columns, job.oids[0])
                except AuditlakeError as exc:
                    job.failed = True
                    self._progress.fail(job.name, exc)
        return not job.failed

    def _verify(self, job: _Job, oids: Sequence[int] = ()) -> bool:
        """Return whether the snapshot and the locks on `oids` are still held; if not, the table has failed."""
        try:
            self._snapshot.verify(job.name, oids)
        except AuditlakeError as exc:
            self._fail(job, exc)
            return False
        return True

    def _add_files(self, job: _Job, files: Iterable[CopiedFile]) -> None:
        """Add files to the table; commit it after the last one."""
        with job.lock:
            job.files += files
            complete = len(job.files) == len(job.tasks) and not job.failed
        if complete:
            self._committing.append(self._commits.submit(self._commit, job))

    def _commit(self, job: _Job) -> None:
        assert job.begun_at is not None  # noqa: S101 - begun before its first range
        if not self._verify(job, job.oids):
            return
        try:
            self._destination.commit(job.name, job.files, self._snapshot.mark)
        except AuditlakeError as exc:
            self._fail(job, exc)
            return
        rows, size_bytes = sum(file.rows for file in job.files), sum(file.size_bytes for file in job.files)
        seconds = time.monotonic() - job.begun_at
        self._progress.finish(CopiedTable(job.name, rows, size_bytes, seconds, self._snapshot.mark.lsn))

    def _fail(self, job: _Job, why: AuditlakeError) -> None:
        with job.lock:
            first, job.failed = not job.failed, True
        if first and not self._interrupted:  # else every running table fails, because its worker was ended
            self._progress.fail(job.name, why)


def _await(running: Sequence[Future[None]]) -> None:
    """Wait until all have ended, in the main thread; raises what one of them raised, and KeyboardInterrupt.

    A signal that comes just before the thread begins to wait, or that the system gives to another thread, does not wake
    it. So no wait is long, and none holds a lock that the futures need, which an interrupt might leave locked.
    """
    ended, left = SimpleQueue[Future[None]](), len(running)
    for future in running:
        future.add_done_callback(ended.put)
    while left:
        with suppress(Empty):
            ended.get(timeout=_LOOK_S).result()
            left -= 1


def begin_table(
    lake: Lake, name: TableName, columns: tuple[Column, ...], oid: int, called: TableName | None = None
) -> DeltaTable:
    """Create the empty history table, replacing the remains of an unfinished copy.

    `called` is the table's name at the source, if that is not `name`.

    Raises LakeUnusable.
    """
    if open_history(lake, name) is not None:
        raise LakeUnusable(f"{name} has a history already", "Another bootstrap was faster: run it again.")
    with _written(str(name)):
        table = recreate_history(lake, name, columns, oid, called)
    reach(After.HISTORY_CREATED)
    return table


def commit_table(table: DeltaTable, files: Iterable[CopiedFile], mark: SnapshotMark) -> None:
    """Add the files to the table, and set position and horizon to the snapshot LSN; raises LakeUnusable."""
    reach(After.FILES_COPIED)
    path, name = place_of_table(table), table.metadata().name
    added = [
        added_file(file.path, {"_part": OPEN_PART}, file.size_bytes, file.stats, file.crc32)
        for file in files
        if file.rows
    ]
    positions = {HISTORY_APP: mark.lsn, SNAPSHOT_APP: mark.lsn, SNAPSHOT_TIME_APP: mark.time_us}
    with _written(name):
        if added:
            sync(path / f"_part={OPEN_PART}", path)
        try:
            put_commit(path, table.version() + 1, "WRITE", [*added, *moved(positions)])
        except FileExistsError:
            raise LakeUnusable(f"another process committed to the history of {name}", _AGAIN) from None
    reach(After.TABLE_COPIED)


class NewHistories:
    """Destination of a copy: each table becomes a history, whose name `names` has by the table's own."""

    def __init__(self, lake: Lake, names: Mapping[TableName, TableName]) -> None:
        self._lake = lake
        self._names = names
        self._begun: dict[TableName, DeltaTable] = {}

    def folder(self, name: TableName) -> Place:
        """Return the folder of the history."""
        return self._lake.history(self._names[name])

    def columns(self, table: FollowedTable) -> tuple[Column, ...]:
        """Return the published columns."""
        return as_stored(table.relation.columns)

    def begin(self, name: TableName, columns: tuple[Column, ...], oid: int) -> None:
        """Create the empty history."""
        self._begun[name] = begin_table(self._lake, self._names[name], columns, oid, name)

    def commit(self, name: TableName, files: Sequence[CopiedFile], mark: SnapshotMark) -> None:
        """Add the files to the history, with position and horizon."""
        commit_table(self._begun[name], files, mark)


@contextmanager
def _written(name: str) -> Iterator[None]:
    """Turn failed writes into LakeUnusable, naming the table."""
    try:
        yield
    except (OSError, DeltaError) as exc:
        # deltalake's errors carry no errno; their text names files, never values of rows.
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else " ".join(str(exc).split())
        raise LakeUnusable(f"table {name} could not be written: {reason}", remedy_of(exc)) from exc
