"""Copy tables under a held snapshot: as many ranges at once as there are workers, or may be connections.

Workers copy bundles of ranges to files and commit nothing; here the files of a table become part of the lake, all in
one commit, as soon as its last range is there. A table that fails does not keep the others from finishing, and is begun
again by the next bootstrap. Connections and memory are bounded by the number of bundles at a time.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from deltalake import DeltaTable

from auditlake.errors import AuditlakeError
from auditlake.lake.history import RESERVED
from auditlake.lake.layout import Lake
from auditlake.lake.names import as_stored
from auditlake.postgres.catalog import TableSize
from auditlake.postgres.followed import FollowedTable
from auditlake.relation import Column, TableName
from auditlake.snapshot.commit import begin_table, commit_table
from auditlake.snapshot.progress import CopiedTable, Progress
from auditlake.snapshot.ranges import bundled, page_ranges, pages_per_range
from auditlake.snapshot.task import CopiedFile, CopyTask, SnapshotMark
from auditlake.snapshot.workers import Workers

# A commit is a few small files: some of them at a time keep up with any number of small tables.
_COMMITS_AT_ONCE = 4
_MOST_ORDINALS = 2**31  # `_ordinal` is INT
_NOTHING = TableSize(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the copy may take of the source: connections at a time, and bytes per second of all of them (None: all)."""

    connections: int = 8
    bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that workers can import: where, its identifier, and the mark that its rows carry."""

    conninfo: str
    snapshot_id: str
    mark: SnapshotMark


class _Job:
    """One table on its way: what is to be copied of it, and the files that are there."""

    def __init__(self, table: FollowedTable, columns: tuple[Column, ...], tasks: Sequence[CopyTask]) -> None:
        self.name = table.name
        self.columns = columns
        self.tasks = tasks
        self.files: list[CopiedFile] = []
        self.failed = False
        self.lock = threading.Lock()
        self.delta: DeltaTable | None = None
        self.begun_at = 0.0


class Copier:
    """Copies the tables of one lake under one snapshot."""

    def __init__(self, workers: Workers, lake: Lake, snapshot: Snapshot, limits: Limits, progress: Progress) -> None:
        self._workers = workers
        self._lake = lake
        self._snapshot = snapshot
        self._at_once = max(1, min(limits.connections, workers.at_once))
        self._bytes_per_s = None if limits.bytes_per_s is None else limits.bytes_per_s / self._at_once
        self._progress = progress
        self._commits = ThreadPoolExecutor(_COMMITS_AT_ONCE)
        self._committing: list[Future[None]] = []

    def copy(self, tables: Sequence[FollowedTable], sizes: Mapping[int, TableSize]) -> None:
        """Copy all; a table that fails does not keep the others from finishing, and is told to `progress`."""
        jobs = [self._plan(table, sizes) for table in tables]
        bundles = bundled([(job, task) for job in jobs for task in job.tasks], lambda each: each[1].source_bytes)
        with self._commits, ThreadPoolExecutor(self._at_once) as copies:
            running = [copies.submit(self._copy, bundle) for bundle in bundles]
            for job in jobs:
                if not job.tasks and self._begun(job):  # a partitioned table without a partition
                    self._take(job, [])
            try:
                for each in running:
                    each.result()
            except KeyboardInterrupt:
                copies.shutdown(wait=False, cancel_futures=True)
                self._workers.cancel()
                raise
        for each in self._committing:
            each.result()

    def _plan(self, table: FollowedTable, sizes: Mapping[int, TableSize]) -> _Job:
        """Plan one range for each part that is empty or small, more for a large one."""
        parts = [(part.name, sizes.get(part.relation.oid, _NOTHING)) for part in table.parts]
        guesses = [size.rows for _, size in parts]
        self._progress.expect(
            table.name,
            sum(size.size_bytes for _, size in parts),
            None if None in guesses else sum(guess or 0 for guess in guesses),
        )
        columns = as_stored(table.relation.columns, RESERVED)
        return _Job(table, columns, self._tasks(table, columns, parts))

    def _tasks(
        self, table: FollowedTable, columns: tuple[Column, ...], parts: Sequence[tuple[TableName, TableSize]]
    ) -> list[CopyTask]:
        ranges = [
            (name, size, pages)
            for name, size in parts
            for pages in page_ranges(size.pages, pages_per_range(size.pages, size.size_bytes))
        ]
        has_key = any(column.key for column in columns)
        return [
            CopyTask(
                self._snapshot.conninfo,
                self._snapshot.snapshot_id,
                name,
                columns,
                pages,
                self._lake.history(table.name),
                self._snapshot.mark,
                row_filter=table.row_filter,
                # Interleaved: how many rows a range holds is not known before it is read.
                ordinals=None if has_key else range(number, _MOST_ORDINALS, len(ranges)),
                source_bytes=pages.share(size.pages, size.size_bytes),
                bytes_per_s=self._bytes_per_s,
            )
            for number, (name, size, pages) in enumerate(ranges)
        ]

    def _copy(self, bundle: Sequence[tuple[_Job, CopyTask]]) -> None:
        wanted = [(job, task) for job, task in bundle if self._begun(job)]
        if not wanted:
            return
        tasks = [task for _, task in wanted]
        for (job, task), result in zip(wanted, self._workers.run(tasks), strict=True):
            if isinstance(result, AuditlakeError):
                self._fail(job, result)
            else:
                self._progress.advance(job.name, result.rows, task.source_bytes)
                self._take(job, [result])

    def _begun(self, job: _Job) -> bool:
        """Make the empty table before its first range; False where it is not wanted any more."""
        with job.lock:
            if job.delta is None and not job.failed:
                job.begun_at = time.monotonic()
                self._progress.begin(job.name)
                try:
                    job.delta = begin_table(self._lake, job.name, job.columns)
                except AuditlakeError as exc:
                    job.failed = True
                    self._progress.fail(job.name, exc)
        return not job.failed

    def _take(self, job: _Job, files: Iterable[CopiedFile]) -> None:
        """Add files; the last one puts the table into the lake."""
        with job.lock:
            job.files += files
            whole = len(job.files) == len(job.tasks) and not job.failed
        if whole:
            self._committing.append(self._commits.submit(self._commit, job))

    def _commit(self, job: _Job) -> None:
        assert job.delta is not None  # noqa: S101 - begun before its first range
        try:
            commit_table(job.delta, job.files, self._snapshot.mark)
        except AuditlakeError as exc:
            self._fail(job, exc)
            return
        rows, size_bytes = sum(file.rows for file in job.files), sum(file.size_bytes for file in job.files)
        seconds = time.monotonic() - job.begun_at
        self._progress.finish(CopiedTable(job.name, rows, size_bytes, seconds, self._snapshot.mark.lsn))

    def _fail(self, job: _Job, why: AuditlakeError) -> None:
        with job.lock:
            first, job.failed = not job.failed, True
        if first:
            self._progress.fail(job.name, why)
