"""Tests of page ranges, their sizes and their bundles."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from auditlake.snapshot.ctid_ranges import PageRange, bundled, page_ranges, pages_per_range


@settings(deadline=None)
@given(pages=st.integers(0, 10_000), per_range=st.integers(1, 500))
def test_ranges_cover_a_table_without_gap_or_overlap(pages: int, per_range: int) -> None:
    """The first range begins at page 0, each next one at the end of its predecessor; the last has no end."""
    ranges = page_ranges(pages, per_range)
    assert ranges[0].first_page == 0
    assert ranges[-1].end_page is None
    for before, after in pairwise(ranges):
        assert before.end_page == after.first_page
        assert before.first_page < after.first_page


@settings(deadline=None)
@given(pages=st.integers(1, 10_000), per_range=st.integers(1, 500))
def test_no_range_exceeds_the_requested_size(pages: int, per_range: int) -> None:
    """The last range is measured up to the table's known end."""
    ends = [pages if r.end_page is None else r.end_page for r in page_ranges(pages, per_range)]
    assert all(end - r.first_page <= per_range for end, r in zip(ends, page_ranges(pages, per_range), strict=True))


def test_conditions_are_half_open() -> None:
    """A range over the whole table has no condition."""
    assert PageRange(0, None).condition() == ""
    assert PageRange(0, 5).condition() == " where ctid < '(5,0)'"
    assert PageRange(5, 9).condition() == " where ctid >= '(5,0)' and ctid < '(9,0)'"
    assert PageRange(9, None).condition() == " where ctid >= '(9,0)'"


@given(pages=st.integers(0, 10_000), per_range=st.integers(1, 500), size_bytes=st.integers(0, 1 << 40))
def test_shares_add_up_to_the_size_of_the_table(pages: int, per_range: int, size_bytes: int) -> None:
    """Each share loses less than a byte to rounding."""
    shares = [part.share(pages, size_bytes) for part in page_ranges(pages, per_range)]
    assert not pages or size_bytes - len(shares) <= sum(shares) <= size_bytes


def test_toast_reduces_the_pages_of_a_range() -> None:
    """A range is 64 MB of heap, or a hundredth of that if 99 % of the table is TOAST."""
    assert pages_per_range(100_000, 100_000 * 8192) == 8192
    assert pages_per_range(1000, 100 * 1000 * 8192) == 81
    assert pages_per_range(0, 0) == 1


@given(sizes=st.lists(st.integers(0, 20 << 20), max_size=60))
def test_bundles_keep_every_item_and_bound_size_and_count(sizes: list[int]) -> None:
    """The largest items come first, each in a bundle of its own."""
    bundles = bundled(sizes, lambda size: size)
    assert [size for bundle in bundles for size in bundle] == sorted(sizes, reverse=True)
    assert all(len(bundle) == 1 or (sum(bundle) <= 8 << 20 and len(bundle) <= 16) for bundle in bundles)


def test_ten_thousand_tables_need_few_connections() -> None:
    """A connection reads all types of the database, which each table adds to."""
    assert len(bundled(range(10_000), lambda _: 8192)) <= 33
