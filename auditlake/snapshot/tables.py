"""Copy tables under a held snapshot, several at once, each by as many Spark tasks as it has ranges.

Spark tasks copy ranges to files and commit nothing; here the files of a table become part of the lake, all in one
commit. A table that fails does not keep the others from finishing, and is begun again by the next bootstrap.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from pyspark.sql import SparkSession

from auditlake.errors import AuditlakeError
from auditlake.lake.history import RESERVED
from auditlake.lake.layout import Lake
from auditlake.lake.names import as_stored
from auditlake.postgres.followed import FollowedTable
from auditlake.relation import Column, TableName
from auditlake.snapshot.commit import begin_table, commit_table
from auditlake.snapshot.copy import CopiedFile, CopyTask, SnapshotMark, copy_range
from auditlake.snapshot.ranges import page_ranges

# While one table is planned and committed the tasks of others keep the cores busy.
_TABLES_AT_ONCE = 4
_MOST_ORDINALS = 2**31  # `_ordinal` is INT


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """One table as it was copied."""

    name: TableName
    rows: int
    size_bytes: int
    seconds: float
    snapshot_lsn: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that workers can import: where, its identifier, and the mark that its rows carry."""

    conninfo: str
    snapshot_id: str
    mark: SnapshotMark


class Copier:
    """Copies the tables of one lake under one snapshot."""

    def __init__(self, spark: SparkSession, lake: Lake, snapshot: Snapshot, say: Callable[[str], None]) -> None:
        self._spark = spark
        self._lake = lake
        self._snapshot = snapshot
        self._say = say

    def copy(self, tables: Sequence[FollowedTable]) -> list[CopiedTable]:
        """Copy all; a table that fails does not keep the others from finishing."""
        copied: list[CopiedTable] = []
        failed: list[AuditlakeError] = []
        largest_first = sorted(tables, key=lambda table: -table.pages)
        with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
            for future in as_completed([pool.submit(self._copy_table, table) for table in largest_first]):
                try:
                    done = future.result()
                except AuditlakeError as exc:
                    failed.append(exc)
                    self._say(f"failed: {exc.message}")
                else:
                    copied.append(done)
                    self._say(f"copied {done.name}: {done.rows:,} rows in {done.seconds:.1f} s")
        if failed:
            raise failed[0]
        return sorted(copied, key=lambda table: table.name)

    def _copy_table(self, table: FollowedTable) -> CopiedTable:
        started = time.monotonic()
        snapshot, columns = self._snapshot, as_stored(table.relation.columns, RESERVED)
        delta = begin_table(self._lake, table.name, columns)
        files = self._run(self._tasks(table, columns))
        commit_table(delta, files, snapshot.mark)
        rows, size_bytes = sum(file.rows for file in files), sum(file.size_bytes for file in files)
        return CopiedTable(table.name, rows, size_bytes, time.monotonic() - started, snapshot.mark.lsn)

    def _tasks(self, table: FollowedTable, columns: tuple[Column, ...]) -> list[CopyTask]:
        """One for each range of each table that holds rows; a table that is empty has one, too."""
        snapshot = self._snapshot
        folder = self._lake.history(table.name)
        ranges = [(part.name, pages) for part in table.parts for pages in page_ranges(part.pages)]
        has_key = any(column.key for column in columns)
        return [
            CopyTask(
                snapshot.conninfo,
                snapshot.snapshot_id,
                part,
                columns,
                pages,
                folder,
                snapshot.mark,
                row_filter=table.row_filter,
                # Interleaved: how many rows a range holds is not known before it is read.
                ordinals=None if has_key else range(number, _MOST_ORDINALS, len(ranges)),
            )
            for number, (part, pages) in enumerate(ranges)
        ]

    def _run(self, tasks: Sequence[CopyTask]) -> list[CopiedFile]:
        if not tasks:  # a partitioned table without a partition
            return []
        results = self._spark.sparkContext.parallelize(tasks, len(tasks)).map(_attempt).collect()
        for result in results:
            if isinstance(result, AuditlakeError):
                raise result
        return [result for result in results if isinstance(result, CopiedFile)]


def _attempt(task: CopyTask) -> CopiedFile | AuditlakeError:
    """Copy, giving a failure back as a value: Spark would wrap it, and try again what cannot succeed."""
    try:
        return copy_range(task)
    except AuditlakeError as exc:
        return exc
