"""Rows too large for the heap: Spark copies a row again and again, so one needs thirty times its length.

Many rows of usual length need no more heap than few: Spark spills them. A single row cannot be spilled in parts, so
rows too large for the heap are found here, in the files of `changes` and of the history, before a job reads them.
Otherwise the JVM would run out of memory, and so would every later process, at the same place.

The footers of nearly all files show that none of their rows is large; the rows of the others are measured, in Python.
"""

from __future__ import annotations  # types of Spark are imported for mypy only

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.apply.tails import Tail, find_commits, open_log
from auditlake.delta.row_groups import GROUP_BYTES, largest_group, read_batches, row_bytes, row_groups
from auditlake.lake.history import OPEN_PART
from auditlake.lake.history_files import find_files
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.spark import connect
from auditlake.store.files import parquet
from auditlake.store.place import Place, session_of
from auditlake.store.session import Kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE_BYTES = 2 * GROUP_BYTES
"""Size above which only one row should be in work at a time."""
HEAP_PER_ROW = 30
"""Measured with a heap of 2 GB (Spark has 1820 MB of it): updates of rows of 60 MB were folded, of 90 MB were not."""
_MB = 1 << 20
_KEPT_BYTES, _FOUND_BYTES = 4 << 20, 128
_CHANGE = ["lsn", "relation", "old", "new"]
# One row after the other is read and sorted, by one task.
_ONE_ROW_AT_A_TIME = {
    "spark.sql.parquet.enableVectorizedReader": "false",  # it reserves twice the length of a value
    "spark.sql.shuffle.partitions": "1",
}


@dataclass(frozen=True, slots=True)
class LargeRow:
    """A row that needs more heap than there is, and the LSN of the first commit that cannot be folded for it."""

    lsn: Lsn
    row_bytes: int
    heap_bytes: int

    @property
    def reason(self) -> str:
        """The obstacle: the row and its size, the heap it needs and the heap there is."""
        needed, heap = HEAP_PER_ROW * self.row_bytes, self.heap_bytes
        return (
            f"a row of {self.row_bytes // _MB:,} MB in or before its commit at {self.lsn} needs a heap of "
            f"{-(-needed // _MB):,} MB, Spark has {heap // _MB:,} MB"
        )

    @property
    def remedy(self) -> str:
        """The setting to change."""
        gib = -(-HEAP_PER_ROW * self.row_bytes * 9 // 8 >> 30)  # the JVM keeps a part of the heap for itself
        return f"Set spark.driver.memory (driver.memory under [spark]) to {gib}g or more."


def heap_bytes(spark: SparkSession) -> int:
    """Return the heap of the driver, or of the executors of a cluster where theirs is smaller."""
    if connect.is_connected(spark):
        return connect.server_heap_bytes(spark)
    context: Any = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 - there is no public way to it
    driver = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    if context.master.startswith("local"):
        return driver
    set_to = context.getConf().get("spark.executor.memory", "1g")
    return min(driver, int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(set_to)))


def find_too_large(lake: Lake, tail: Tail, heap: int) -> LargeRow | None:
    """Find the first commit of a tail that cannot be folded with this heap; None if all can."""
    limit = heap // HEAP_PER_ROW
    reads_history = tail.shape is not None and not tail.shape.inserts_only
    if reads_history and (largest := _largest_open_row(tail, limit)) > limit and (log := open_log(lake)):
        return LargeRow(find_commits(log, tail)[0], largest, heap)
    found = [row for file in tail.files for row in _large_changes(file.path, limit) if _is_of(tail, row)]
    if not found:
        return None
    first = min(row.lsn for row in found)
    return LargeRow(Lsn(first), max(row.size_bytes for row in found if row.lsn == first), heap)


def has_large_rows(tail: Tail) -> bool:
    """Whether a file of `changes` has very large rows, of any table."""
    return largest_group(file.path for file in tail.files) > LARGE_BYTES


def has_large_changes(tail: Tail) -> bool:
    """Whether one of the tail's own changes is very large; others are in row groups that DuckDB skips."""
    return any(_is_of(tail, row) for file in tail.files for row in _in_large_groups(file.path))


@contextmanager
def one_row_at_a_time(spark: SparkSession) -> Iterator[None]:
    """Have a session of ours read and sort large rows one after the other, and as before from then on."""
    before = {name: spark.conf.get(name) for name in _ONE_ROW_AT_A_TIME}
    for name, value in _ONE_ROW_AT_A_TIME.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, held in before.items():
            spark.conf.set(name, str(held))


@dataclass(frozen=True, slots=True)
class _Change:
    lsn: Lsn
    relation: int
    size_bytes: int


def _is_of(tail: Tail, row: _Change) -> bool:
    return tail.table.position < row.lsn <= tail.upto and row.relation in tail.relations


class _Sizes(Kept):
    """By file, in a session: the changes larger than a limit, or the size of the largest row."""

    def __init__(self) -> None:
        super().__init__(_KEPT_BYTES)


def _large_changes(path: Place, limit: int) -> tuple[_Change, ...]:
    """Return the changes of a file that are larger than `limit`."""
    return (
        session_of(path)
        .part(_Sizes)
        .get((path, limit), lambda: _find_large(path, limit), lambda found: _FOUND_BYTES * (1 + len(found)))
    )


def _find_large(path: Place, limit: int) -> tuple[_Change, ...]:
    if largest_group([path]) <= limit:
        return ()
    return tuple(row for batch in read_batches(path, _CHANGE) for row in _large_rows(batch, limit))


def _in_large_groups(path: Place) -> Iterator[_Change]:
    """Yield the changes in very large row groups, which have one row each; values are not read."""
    for number, group in enumerate(row_groups(path)):
        if group.size_bytes > LARGE_BYTES:
            found = pq.ParquetFile(parquet(path)).read_row_group(number, columns=["lsn", "relation"])
            for row in found.to_pylist():
                yield _Change(Lsn(row["lsn"]), row["relation"], group.size_bytes)


def _large_rows(batch: pa.RecordBatch, limit: int) -> Iterator[_Change]:
    sizes = row_bytes(batch)
    for at in map(int, np.flatnonzero(sizes > limit)):
        lsn, relation = (batch[name][at].as_py() for name in ("lsn", "relation"))
        yield _Change(lsn, relation, int(sizes[at]))


def _largest_open_row(tail: Tail, limit: int) -> int:
    files = find_files(tail.table)
    paths = files.of_part(OPEN_PART).paths if files else []
    return max((_largest_row(path) for path in paths if largest_group([path]) > limit), default=0)


def _largest_row(path: Place) -> int:
    return session_of(path).part(_Sizes).get(path, lambda: _find_largest(path), lambda _: _FOUND_BYTES)


def _find_largest(path: Place) -> int:
    return max(int(row_bytes(batch).max()) for batch in read_batches(path) if batch.num_rows)
