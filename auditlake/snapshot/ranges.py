"""Cut tables into ranges of pages that can be copied side by side, and put what is small together. Pure.

A range is `[first_page, end_page)` by ctid. The last range of a table is open-ended: pages added after its size was
read may hold rows of the snapshot (an update that was in flight), and rows outside the snapshot are invisible anyway.

Authority: postgresql.org/docs/current/ddl-system-columns.html, ctid; TID range scans since PostgreSQL 14
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

# Some seconds of copying, so that workers end together, and a Parquet file of a good size.
_RANGE_BYTES = 64 << 20
# A Spark task and a connection cost as much as copying a megabyte: small ranges share one, up to this much of them.
_BUNDLE_BYTES = 8 << 20
# What one task takes of tiny tables: a quarter of a second of queries, and their commits begin as often.
_BUNDLE_COUNT = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageRange:
    """Pages from `first_page` (inclusive) to `end_page` (exclusive); None: to the end of the table."""

    first_page: int
    end_page: int | None

    def condition(self, row_filter: str | None = None) -> str:
        """Return the WHERE clause for the range's rows that the filter lets through, empty for a whole table."""
        bounds = [f"({row_filter})"] if row_filter else []
        bounds += [f"ctid >= '({self.first_page},0)'"] if self.first_page else []
        if self.end_page is not None:
            bounds.append(f"ctid < '({self.end_page},0)'")
        return f" where {' and '.join(bounds)}" if bounds else ""

    def share(self, pages: int, size_bytes: int) -> int:
        """Which part of `size_bytes` is the range's, of a table of `pages` pages; the last one may hold more."""
        return size_bytes * ((self.end_page or pages) - self.first_page) // max(pages, 1)


def page_ranges(pages: int, pages_per_range: int) -> tuple[PageRange, ...]:
    """Cover a table of `pages` pages, and all that may lie beyond, without gap or overlap."""
    count = max(1, -(-pages // pages_per_range))
    cuts = [pages * i // count for i in range(count)]
    return tuple(PageRange(first, end) for first, end in zip(cuts, [*cuts[1:], None], strict=True))


def pages_per_range(pages: int, size_bytes: int) -> int:
    """How many pages make a range of the usual size, where a table with what it keeps out of line has `size_bytes`."""
    return max(1, _RANGE_BYTES * pages // max(size_bytes, 1))


def bundled(items: Iterable[T], size_of: Callable[[T], int]) -> list[list[T]]:
    """Put items of less than a bundle's size together, and all in order of size, the largest first."""
    bundles: list[list[T]] = []
    room_bytes = 0
    for item in sorted(items, key=size_of, reverse=True):
        size_bytes = size_of(item)
        if not bundles or size_bytes > room_bytes or len(bundles[-1]) == _BUNDLE_COUNT:
            bundles.append([])
            room_bytes = _BUNDLE_BYTES
        bundles[-1].append(item)
        room_bytes -= size_bytes
    return bundles
