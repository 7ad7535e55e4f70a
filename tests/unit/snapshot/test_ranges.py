"""Page ranges cover a table without gap or overlap."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from auditlake.snapshot.ranges import PageRange, page_ranges


@given(pages=st.integers(0, 10_000), per_range=st.integers(1, 500))
def test_ranges_meet_and_the_last_is_open(pages: int, per_range: int) -> None:
    """Each range begins where the one before ends; the first at page 0, and the last has no end."""
    ranges = page_ranges(pages, per_range)
    assert ranges[0].first_page == 0
    assert ranges[-1].end_page is None
    for one, following in pairwise(ranges):
        assert one.end_page == following.first_page
        assert one.first_page < following.first_page


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
