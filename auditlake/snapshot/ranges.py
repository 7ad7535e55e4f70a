"""Cut tables into ranges of pages that can be copied side by side. Pure.

A range is `[first_page, end_page)` by ctid. The last range of a table is open-ended: pages added after its size was
read may hold rows of the snapshot (an update that was in flight), and rows outside the snapshot are invisible anyway.

Authority: postgresql.org/docs/current/ddl-system-columns.html, ctid; TID range scans since PostgreSQL 14
"""

from dataclasses import dataclass

# 64 MB of 8 kB pages: some seconds of copying, so that workers end together, and a Parquet file of a good size.
PAGES_PER_RANGE = 8192


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


def page_ranges(pages: int, pages_per_range: int = PAGES_PER_RANGE) -> tuple[PageRange, ...]:
    """Cover a table of `pages` pages, and all that may lie beyond, without gap or overlap."""
    count = max(1, -(-pages // pages_per_range))
    cuts = [pages * i // count for i in range(count)]
    return tuple(PageRange(first, end) for first, end in zip(cuts, [*cuts[1:], None], strict=True))
