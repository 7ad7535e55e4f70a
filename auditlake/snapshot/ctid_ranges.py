"""Copy tasks: cut tables into page ranges, bundle small ranges, and describe tasks and their results. Pure.

A range is `[first_page, end_page)` by ctid, so that several workers can copy one table in parallel. The last range of a
table is open-ended: pages added after its size was read may hold rows of the snapshot (of an update in flight), and
rows outside the snapshot are invisible anyway.

`CopyTask` and `CopiedFile` are picklable values: a task goes to a worker process or a Spark task, its result returns.

Authority: postgresql.org/docs/current/ddl-system-columns.html, ctid; TID range scans since PostgreSQL 14
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName
from auditlake.store.place import Place
from auditlake.values.masks import ColumnMask

# A few seconds of copying, so that workers finish at about the same time, and a Parquet file of a good size.
_RANGE_BYTES = 64 << 20
# A Spark task and a connection cost as much as copying a megabyte, so small ranges share one up to this size.
_BUNDLE_BYTES = 8 << 20
# Most ranges of tiny tables in one bundle: a quarter of a second of queries, after which their commits can begin. Or
# this share of all ranges: a connection costs more the more tables there are, because the driver reads all types, and
# each table has two.
_BUNDLE_COUNT, _BUNDLE_SHARE = 16, 1 / 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageRange:
    """Pages from `first_page` (inclusive) to `end_page` (exclusive, or None for the end of the table)."""

    first_page: int
    end_page: int | None

    def condition(self, row_filter: str | None = None) -> str:
        """Return the WHERE clause for the range's rows that pass the filter; empty for a whole table without one."""
        bounds = [f"({row_filter})"] if row_filter else []
        bounds += [f"ctid >= '({self.first_page},0)'"] if self.first_page else []
        if self.end_page is not None:
            bounds.append(f"ctid < '({self.end_page},0)'")
        return f" where {' and '.join(bounds)}" if bounds else ""

    def share(self, pages: int, size_bytes: int) -> int:
        """Return the range's share of `size_bytes`, for a table of `pages` pages; the last range may hold more."""
        return size_bytes * ((self.end_page or pages) - self.first_page) // max(pages, 1)


def page_ranges(pages: int, pages_per_range: int) -> tuple[PageRange, ...]:
    """Cover a table of `pages` pages, and any pages added later, without gap or overlap."""
    count = max(1, -(-pages // pages_per_range))
    cuts = [pages * i // count for i in range(count)]
    return tuple(PageRange(first, end) for first, end in zip(cuts, [*cuts[1:], None], strict=True))


WHOLE = PageRange(0, None)


def pages_per_range(pages: int, size_bytes: int) -> int:
    """Return the number of pages in a range of the usual size; `size_bytes` is the table's size with TOAST."""
    return max(1, _RANGE_BYTES * pages // max(size_bytes, 1))


def bundled(items: Iterable[T], size_of: Callable[[T], int]) -> list[list[T]]:
    """Order items by size, the largest first, and bundle the small ones."""
    bundles: list[list[T]] = []
    room_bytes = 0
    ordered = sorted(items, key=size_of, reverse=True)
    most = max(_BUNDLE_COUNT, int(len(ordered) * _BUNDLE_SHARE))
    for item in ordered:
        size_bytes = size_of(item)
        if not bundles or size_bytes > room_bytes or len(bundles[-1]) == most:
            bundles.append([])
            room_bytes = _BUNDLE_BYTES
        bundles[-1].append(item)
        room_bytes -= size_bytes
    return bundles


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """The mark on every row of a snapshot: its LSN, and the server's time in microseconds since 1970."""

    lsn: Lsn
    time_us: int


@dataclass(frozen=True, slots=True)
class CopyTask:
    """One range to copy. `conninfo` may hold a password: it travels to the worker and is never printed.

    `name` is the table that holds the rows: the followed table, or one of its partitions. `row_filter` is the
    publication's row filter as SQL, None for all rows. `ordinals` are assigned to the rows as `_ordinal`, None if the
    table has a key. `source_bytes` is the range's approximate size in the source; `bytes_per_s` limits the rate.
    `masks` are by the names of columns. `of_stranger`: it is read as a whole, without a query (`snapshot.text_copy`).
    """

    conninfo: str = field(repr=False)
    snapshot_id: str
    name: TableName
    columns: tuple[Column, ...]
    pages: PageRange
    folder: Place
    mark: SnapshotMark
    row_filter: str | None = None
    ordinals: range | None = None
    source_bytes: int = 0
    bytes_per_s: float | None = None
    masks: Mapping[str, ColumnMask] = field(default_factory=dict)
    of_stranger: bool = False


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A written file that is not committed yet; `path` is relative to the table's folder. No rows: no file exists."""

    name: TableName
    path: str
    size_bytes: int
    rows: int
    stats: str
    crc32: int | None = None
