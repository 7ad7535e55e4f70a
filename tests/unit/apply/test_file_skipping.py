"""Tests of key ranges: they contain every key, omit the largest gaps, and are used only if they skip enough files."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from auditlake.apply.merge import conditions, key_ranges, skipped
from auditlake.lake.history import whole_number_keys
from auditlake.relation import Column

ID = Column("order id", 20, -1, key=True)
DAY = Column("day", 1082, -1, key=True)
NOTE = Column("note", 25, -1, key=False)


def test_only_whole_number_keys_have_ranges() -> None:
    """A date may be infinite, and then its column is NULL."""
    assert whole_number_keys((ID, DAY, NOTE)) == [ID]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_every_key_is_in_a_range(values: list[int]) -> None:
    """Holds for any keys, including the extremes of bigint."""
    ranges = key_ranges(np.array(values, np.int64))
    assert all(any(low <= value <= high for low, high in ranges) for value in values)


def test_ranges_omit_the_largest_gaps() -> None:
    """Eight groups of keys have a range each; of nine groups the two nearest share one."""
    groups = [10_000 * 2**n for n in range(7)]
    assert key_ranges(np.array([1, 2, *groups])) == [(1, 2), *((each, each) for each in groups)]
    assert key_ranges(np.array([1, 500, *groups]))[0] == (1, 500)
    assert key_ranges(np.array([1, *groups, 10_500]))[1] == (10_000, 10_500)


def test_files_without_a_key_in_range_are_skipped() -> None:
    """Both ends of a file's statistics and of a range are inclusive."""
    assert skipped([(10, 20), (40, 40)], [(0, 9), (0, 10), (20, 30), (21, 39), (40, 50), (41, 50)]) == 3


def test_ranges_are_used_only_if_they_skip_enough_files() -> None:
    """They are not used if a batch touches most files anyway, or if the files have no statistics."""
    known = pa.table({"order id": [5, 7, 1000]})
    files = [(0, 99), (100, 199), (900, 1100)]
    assert conditions(known, (ID,), {"order id": files}) == [
        "(t.`order id` between 5 and 5 or t.`order id` between 7 and 7 or t.`order id` between 1000 and 1000)"
    ]
    assert conditions(known, (ID,), {"order id": [files[0], files[2]]}) == []
    assert conditions(known, (ID,), {}) == []
    assert conditions(known.slice(0, 0), (ID,), {"order id": files}) == []
