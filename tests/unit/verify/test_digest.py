"""Tests of digest sums: equal for equal rows in any order and in any parts, different for any difference."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlake.values.exact_text import double_text
from auditlake.verify.digest import (
    SIDE_SCHEMA,
    Digest,
    KeyDifference,
    Sums,
    chosen_buckets,
    differing_keys,
    rows_of_buckets,
)

_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "NULL"]))
_ROWS = st.lists(st.tuples(st.sampled_from("123456789"), _TEXTS, _TEXTS), unique_by=lambda row: row[0])
Rows = Sequence[tuple[str | None, ...]]


def _columns(rows: Rows) -> list[pa.Array]:
    return [pa.array([row[place] for row in rows], pa.string()) for place in range(3)]


def _sums(digest: Digest, *parts: Rows) -> Sums:
    sums = Sums(digest.buckets)
    for rows in parts:
        part = Sums(digest.buckets)
        part.add_rows(digest, digest.of_rows(_columns(rows), len(rows)))
        sums.add(part)
    return sums


def _found(digest: Digest, lake: Rows, source: Rows) -> list[KeyDifference]:
    buckets = chosen_buckets(_sums(digest, lake), _sums(digest, source), 3)
    sides = []
    for rows in (lake, source):
        batch = rows_of_buckets(digest, digest.of_rows(_columns(rows), len(rows)), _columns(rows), buckets)
        sides.append(pa.Table.from_batches([batch], SIDE_SCHEMA))
    return list(differing_keys(sides[0], sides[1], keyed=bool(digest.key)))


@settings(deadline=None)  # the first example imports pandas
@given(_ROWS, st.integers(0, 9))
def test_sums_do_not_depend_on_order_or_parts(rows: Rows, cut: int) -> None:
    """The same rows, in another order and cut into two parts, have the same sums."""
    digest = Digest.of_table([0], len(rows))
    others = rows[::-1]
    whole, parts = _sums(digest, rows), _sums(digest, others[:cut], others[cut:])
    assert not len(whole.differing(parts))
    assert whole.total == len(rows)


@settings(deadline=None)
@given(_ROWS, _ROWS)
def test_every_difference_is_found_and_named(lake: Rows, source: Rows) -> None:
    """The report equals a direct comparison of the rows."""
    digest = Digest.of_table([0], 5)
    here, there = ({row[0]: row[1:] for row in side} for side in (lake, source))
    expected: dict[tuple[str | None, ...] | None, tuple[str, tuple[int, ...]]]
    expected = {(key,): ("missing", ()) for key in there.keys() - here.keys()}
    expected |= {(key,): ("extra", ()) for key in here.keys() - there.keys()}
    for key in here.keys() & there.keys():
        if here[key] != there[key]:
            expected[key,] = "different", tuple(p + 1 for p in range(2) if here[key][p] != there[key][p])
    assert {each.key: (each.kind, each.columns) for each in _found(digest, lake, source)} == expected


def test_exchanged_values_do_not_cancel_out() -> None:
    """Exchanged between rows, between columns, and NULL with the text NULL."""
    digest = Digest.of_table([0], 2)
    rows: Rows = [("1", "a", "b"), ("2", "b", "a")]
    for other in ([("1", "b", "a"), ("2", "a", "b")], [("1", "a", "a"), ("2", "b", "b")]):
        assert [each.kind for each in _found(digest, rows, other)] == ["different", "different"]
    assert _found(digest, [("1", None, "")], [("1", "NULL", "")])
    assert _found(digest, [("1", None, "")], [("1", "", None)])


def test_a_duplicate_row_is_reported() -> None:
    """A key with two rows is reported, with equal and with different values."""
    digest = Digest.of_table([0], 2)
    (found,) = _found(digest, [("1", "a", None)] * 3, [("1", "a", None)])
    assert found == KeyDifference("duplicate", ("1",), count=2)
    kinds = [each.kind for each in _found(digest, [("1", "a", None), ("1", "b", None)], [("1", "a", None)])]
    assert kinds == ["duplicate", "different"]


def test_rows_without_a_key_are_compared_as_a_multiset() -> None:
    """Copies count; a changed row is one missing and one extra row."""
    digest = Digest.of_table([], 2)
    assert not _found(digest, [("1", "a", None), ("1", "a", None)], [("1", "a", None)] * 2)
    assert _found(digest, [("1", "a", None)], [("1", "a", None)] * 3) == [KeyDifference("missing", None, count=2)]
    kinds = sorted(each.kind for each in _found(digest, [("1", "a", None)], [("1", "b", None)]))
    assert kinds == ["extra", "missing"]


def test_only_buckets_that_fit_into_memory_are_compared() -> None:
    """If all buckets differ, only some of them are read."""
    digest = Digest.of_table([0], 10_000_000)
    rows = [(str(number), None, None) for number in range(1000)]
    lake, source = _sums(digest, rows), _sums(digest, [])
    assert len(chosen_buckets(lake, source, 3)) == len(lake.differing(source))
    few = chosen_buckets(lake, source, 400_000)
    assert 1 <= len(few) < 20
    assert set(few) <= set(np.flatnonzero(lake.rows))


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(width=64))))
def test_numbers_are_hashed_as_their_texts(numbers: list[float | None]) -> None:
    """A number equals PostgreSQL's text of it; two numbers are equal if their texts are."""
    digest = Digest("0" * 12, (), 16, {0: pa.float64()})
    texts = [None if number is None else double_text(number) for number in numbers]
    as_numbers = digest.of_rows([pa.array(numbers, pa.float64())], len(numbers)).digests
    as_texts = digest.of_rows([pa.array(texts, pa.string())], len(numbers)).digests
    assert as_numbers.tolist() == as_texts.tolist()
    assert len(set(as_numbers.tolist())) == len(set(texts))


def test_single_precision_is_hashed_as_such() -> None:
    """The text of a real differs from the text of the nearest double."""
    digest = Digest("0" * 12, (), 16, {0: pa.float32()})
    numbers = pa.array([0.1, 3.4028235e38, 1e-45, -0.0, None], pa.float32())
    texts = pa.array(["0.1", "3.4028235e+38", "1e-45", "-0", None])
    assert digest.of_rows([numbers], 5).digests.tolist() == digest.of_rows([texts], 5).digests.tolist()
    assert digest.of_rows([texts], 5).digests[3] != digest.of_rows([pa.array(["0"] * 5)], 5).digests[3]
