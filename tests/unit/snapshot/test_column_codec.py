"""Tests of the select list of a copy, and of values that do not fit their typed column."""

from datetime import date

import pyarrow as pa
import pytest

from auditlake.errors import InvariantBroken
from auditlake.relation import Column, TableName
from auditlake.snapshot.column_codec import OutOfRange, SelectList
from auditlake.values.exact_text import raw_map

_ID = Column("id", 23, -1, key=True)
_DAY = Column("d", 1082, -1, key=False)
_AMOUNT = Column("a", 1700, ((10 << 16) | 2) + 4, key=False)
_PAIR = Column('odd "name"', 99999, -1, key=False)


def test_names_are_quoted_and_inheriting_tables_excluded() -> None:
    """Rows of inheriting tables do not belong to the table."""
    sql = SelectList((_ID, _PAIR)).sql(TableName("s", 'T"x'), " where ctid < '(5,0)'")
    assert sql.endswith('from only "s"."T""x" where ctid < \'(5,0)\'')
    assert 'format(\'%s\', "odd ""name""")' in sql


def test_only_a_guarded_selection_reads_the_text_of_dates() -> None:
    """The first read of a range doesn't pay for the rare case."""
    assert '"d"::pg_catalog.text' not in SelectList((_ID, _DAY)).sql(TableName("s", "t"), "")
    assert '"d"::pg_catalog.text' in SelectList((_ID, _DAY), guarded=True).sql(TableName("s", "t"), "")


def test_exact_texts_of_a_guarded_read_go_to_raw() -> None:
    """The server sends one array per row, in the order of the date and timestamp columns."""
    days = pa.array([None, 0, None], pa.int32()).cast(pa.date32())
    exact = pa.array([["infinity", None], [None, "-infinity"], [None, None]])
    at = pa.array([None, None, 0], pa.timestamp("us"))
    batch = pa.record_batch({"d": days, "a": pa.array(["1.00"] * 3), "t": at, "exact": exact})
    moment = Column("t", 1114, -1, key=False)
    typed, raw = SelectList((_DAY, _AMOUNT, moment), guarded=True).convert(batch)
    assert [column.null_count for column in typed] == [2, 0, 2]
    assert raw.to_pylist() == [[("d", "infinity")], [("t", "-infinity")], None]


def test_years_outside_1_to_9999_require_a_guarded_read() -> None:
    """The first and the last day of that range do not; the days beside it do."""
    first, last = (date(1, 1, 1) - date(1970, 1, 1)).days, (date(9999, 12, 31) - date(1970, 1, 1)).days
    inside = pa.record_batch({"d": pa.array([first, last, None], pa.int32()).cast(pa.date32())})
    typed, raw = SelectList((_DAY,)).convert(inside)
    assert typed[0].to_pylist() == [date(1, 1, 1), date(9999, 12, 31), None]
    assert raw.null_count == 3
    for day in (first - 1, last + 1):
        with pytest.raises(OutOfRange):
            SelectList((_DAY,)).convert(pa.record_batch({"d": pa.array([day], pa.int32()).cast(pa.date32())}))


def test_nan_and_infinities_of_numeric_go_to_raw() -> None:
    """The typed column is NULL there; other rows have no `_raw`."""
    typed, raw = SelectList((_AMOUNT,)).convert(pa.record_batch({"a": ["1.50", "NaN", None, "-Infinity"]}))
    assert [None if v is None else str(v) for v in typed[0].to_pylist()] == ["1.50", None, None, None]
    assert raw.to_pylist() == [None, [("a", "NaN")], None, [("a", "-Infinity")]]


def test_a_numeric_beyond_its_precision_raises() -> None:
    """Such a value is a bug, and never becomes NULL."""
    with pytest.raises(InvariantBroken):
        SelectList((_AMOUNT,)).convert(pa.record_batch({"a": ["12345678901.00"]}))


def test_raw_map_has_every_exact_value_of_a_row() -> None:
    """A row may have several; a row without any is NULL."""
    texts = pa.array(["infinity", None])
    raw = raw_map({"x": texts, "y": texts}, 2)
    assert raw.to_pylist() == [[("x", "infinity"), ("y", "infinity")], None]
