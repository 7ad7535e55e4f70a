"""What is selected for a type, and what becomes of values that their column cannot hold."""

from datetime import date

import pyarrow as pa
import pytest

from auditlake.errors import InvariantBroken
from auditlake.relation import Column, TableName
from auditlake.snapshot.select import OutOfRange, Selection, raw_map

_ID = Column("id", 23, -1, key=True)
_DAY = Column("d", 1082, -1, key=False)
_AMOUNT = Column("a", 1700, ((10 << 16) | 2) + 4, key=False)
_PAIR = Column('odd "name"', 99999, -1, key=False)


def test_names_are_quoted_and_inheritance_is_left_out() -> None:
    """Names with quotes survive; rows of inheriting tables are not this table's."""
    sql = Selection((_ID, _PAIR)).sql(TableName("s", 'T"x'), " where ctid < '(5,0)'")
    assert sql.endswith('from only "s"."T""x" where ctid < \'(5,0)\'')
    assert 'format(\'%s\', "odd ""name""")' in sql


def test_guarded_adds_the_exact_text_of_dates() -> None:
    """Only a guarded selection asks the server to judge dates, and for their text."""
    assert '"d"::pg_catalog.text' not in Selection((_ID, _DAY)).sql(TableName("s", "t"), "")
    assert '"d"::pg_catalog.text' in Selection((_ID, _DAY), guarded=True).sql(TableName("s", "t"), "")


def test_the_texts_of_a_guarded_read_go_to_raw() -> None:
    """They come in one array per row, in the order of the columns with dates and times."""
    days = pa.array([None, 0, None], pa.int32()).cast(pa.date32())
    exact = pa.array([["infinity", None], [None, "-infinity"], [None, None]])
    at = pa.array([None, None, 0], pa.timestamp("us"))
    batch = pa.record_batch({"d": days, "a": pa.array(["1.00"] * 3), "t": at, "exact": exact})
    moment = Column("t", 1114, -1, key=False)
    typed, raw = Selection((_DAY, _AMOUNT, moment), guarded=True).convert(batch)
    assert [column.null_count for column in typed] == [2, 0, 2]
    assert raw.to_pylist() == [[("d", "infinity")], [("t", "-infinity")], None]


def test_years_outside_1_to_9999_are_noticed() -> None:
    """The day after 9999-12-31 and the day before 0001-01-01 ask for a guarded read; the ends themselves do not."""
    first, last = (date(1, 1, 1) - date(1970, 1, 1)).days, (date(9999, 12, 31) - date(1970, 1, 1)).days
    inside = pa.record_batch({"d": pa.array([first, last, None], pa.int32()).cast(pa.date32())})
    typed, raw = Selection((_DAY,)).convert(inside)
    assert typed[0].to_pylist() == [date(1, 1, 1), date(9999, 12, 31), None]
    assert raw.null_count == 3
    for day in (first - 1, last + 1):
        with pytest.raises(OutOfRange):
            Selection((_DAY,)).convert(pa.record_batch({"d": pa.array([day], pa.int32()).cast(pa.date32())}))


def test_nan_goes_to_raw() -> None:
    """NaN and infinities of a numeric are NULL in the typed column and exact in `_raw`; other rows have no `_raw`."""
    typed, raw = Selection((_AMOUNT,)).convert(pa.record_batch({"a": ["1.50", "NaN", None, "-Infinity"]}))
    assert [None if v is None else str(v) for v in typed[0].to_pylist()] == ["1.50", None, None, None]
    assert raw.to_pylist() == [None, [("a", "NaN")], None, [("a", "-Infinity")]]


def test_a_numeric_that_cannot_be_is_a_bug() -> None:
    """A value beyond the column's precision is never turned into NULL."""
    with pytest.raises(InvariantBroken):
        Selection((_AMOUNT,)).convert(pa.record_batch({"a": ["12345678901.00"]}))


def test_raw_map_names_every_column() -> None:
    """A row may have several exact values."""
    texts = pa.array(["infinity", None])
    found = raw_map({"x": texts, "y": texts}, 2)
    assert found.to_pylist() == [[("x", "infinity"), ("y", "infinity")], None]
