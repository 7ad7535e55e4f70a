"""Page ranges cover a table without gap or overlap."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from auditlake.snapshot.ranges import PageRange, bundled, page_ranges, pages_per_range


@settings(deadline=None)
@given(pages=st.integers(0, 10_000), per_range=st.integers(1, 500))
def test_ranges_meet_and_the_last_is_open(pages: int, per_range: int) -> None:
    """Each range begins where the one before ends; the first at page 0, and the last has no end."""
    ranges = page_ranges(pages, per_range)
    assert ranges[0].first_page == 0
    assert ranges[-1].end_page is None
    for one, following in pairwise(ranges):
        assert one.end_page == following.first_page
        assert one.first_page < following.first_page


@settings(deadline=None)
@given(pages=st.integers(1, 10_000), per_range=st.integers(1, 500))
def test_no_range_is_larger_than_asked(pages: int, per_range: int) -> None:
    """Every bounded range has at most so many pages, and the last starts at most so many before the end."""
    ends = [pages if r.end_page is None else r.end_page for r in page_ranges(pages, per_range)]
    assert all(end - r.first_page <= per_range for end, r in zip(ends, page_ranges(pages, per_range), strict=True))


def test_conditions() -> None:
    """A whole table needs no condition; bounds are half-open."""
    assert PageRange(0, None).condition() == ""
    assert PageRange(0, 5).condition() == " where ctid < '(5,0)'"
    assert PageRange(5, 9).condition() == " where ctid >= '(5,0)' and ctid < '(9,0)'"
    assert PageRange(9, None).condition() == " where ctid >= '(9,0)'"


@given(pages=st.integers(0, 10_000), per_range=st.integers(1, 500), size_bytes=st.integers(0, 1 << 40))
def test_shares_make_up_the_table(pages: int, per_range: int, size_bytes: int) -> None:
    """What the ranges are said to hold is the table's size, but for roundings."""
    shares = [each.share(pages, size_bytes) for each in page_ranges(pages, per_range)]
    assert not pages or size_bytes - len(shares) <= sum(shares) <= size_bytes


def test_ranges_of_a_table_with_large_values_are_short() -> None:
    """64 MB of heap are one range; where the heap is a hundredth of the table, so is a range's share of pages."""
    assert pages_per_range(100_000, 100_000 * 8192) == 8192
    assert pages_per_range(1000, 100 * 1000 * 8192) == 81
    assert pages_per_range(0, 0) == 1


@given(sizes=st.lists(st.integers(0, 20 << 20), max_size=60))
def test_bundles(sizes: list[int]) -> None:
    """Nothing is lost, the largest come first, and what shares a bundle is small, and not too many."""
    bundles = bundled(sizes, lambda size: size)
    assert [size for bundle in bundles for size in bundle] == sorted(sizes, reverse=True)
    assert all(len(bundle) == 1 or (sum(bundle) <= 8 << 20 and len(bundle) <= 16) for bundle in bundles)
