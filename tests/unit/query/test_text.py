"""Rows as CSV, JSON lines and tables: every digit, and NULL distinct from ''."""

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.errors import BadUsage, NotAnswerable
from auditlake.query.formats import json_of, plain_text, python_rows
from auditlake.query.output import write_python_rows


def written(form: str, columns: list[str], rows: list[tuple[Any, ...]]) -> str:
    """Render rows of Python values."""
    out = io.StringIO()
    assert write_python_rows(columns, iter(rows), form, out) == len(rows)
    return out.getvalue()


@pytest.mark.parametrize(
    ("value", "text", "as_json"),
    [
        (True, "true", "true"),
        (-(2**63), "-9223372036854775808", "-9223372036854775808"),
        (Decimal("1E-7"), "0.0000001", "0.0000001"),
        (Decimal("10.50"), "10.50", "10.50"),
        (Decimal("12345678901234567890123456789012345.678"), *["12345678901234567890123456789012345.678"] * 2),
        (0.1, "0.1", "0.1"),
        (float("nan"), "NaN", '"NaN"'),
        (float("-inf"), "-Infinity", '"-Infinity"'),
        (date(2026, 11, 21), "2026-11-21", '"2026-11-21"'),
        (datetime(2026, 11, 21, 9, 30), "2026-11-21T09:30:00", '"2026-11-21T09:30:00"'),  # noqa: DTZ001 - has no zone
        (
            datetime(2026, 11, 21, 9, 30, 0, 1, tzinfo=timezone(timedelta(hours=1))),
            "2026-11-21T08:30:00.000001Z",
            '"2026-11-21T08:30:00.000001Z"',
        ),
        (b"\x00\xff", "\\x00ff", '"\\\\x00ff"'),
        (["a", None, ""], '["a", null, ""]', '["a", null, ""]'),
        ({"k": Decimal("1.0")}, '{"k": 1.0}', '{"k": 1.0}'),
        ("", "", '""'),
        ('é"\n', 'é"\n', '"é\\"\\n"'),
    ],
)
def test_a_value_of_each_type_is_exact(value: object, text: str, as_json: str) -> None:
    """As text and as JSON."""
    assert plain_text(value) == text
    assert json_of(value) == as_json


def test_csv_distinguishes_null_from_empty() -> None:
    """NULL is an empty field, '' is a pair of quotes; RFC 4180 quoting for the rest."""
    rows = [(1, None, ""), (2, 'say "x", y', "two\nlines")]
    assert written("csv", ["id", "a", "b,c"], rows) == 'id,a,"b,c"\n1,,""\n2,"say ""x"", y","two\nlines"\n'


def test_csv_of_one_column_does_not_end_at_the_end_of_data_of_copy() -> None:
    r"""COPY of PostgreSQL before 18 takes a line that is \. for the end, and ignores what follows it."""
    assert written("csv", ["a"], [("\\.",), ("\\..",)]) == 'a\n"\\."\n\\..\n'


@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), max_size=5))
def test_csv_reads_back(rows: list[tuple[str, str]]) -> None:
    """Python's reader returns the same texts."""
    text = written("csv", ["a", "b"], rows)
    assert [tuple(row) for row in csv.reader(io.StringIO(text, newline=""))] == [("a", "b"), *rows]


def test_json_is_one_object_a_line() -> None:
    """Numbers keep their digits, NULL is null."""
    text = written("json", ["id", "a b"], [(1, None), (2, Decimal("0.10"))])
    assert text == '{"id": 1, "a b": null}\n{"id": 2, "a b": 0.10}\n'


@given(st.lists(st.tuples(st.none() | st.text() | st.integers() | st.booleans()), max_size=5))
def test_json_reads_back(rows: list[tuple[Any]]) -> None:
    """Python's reader returns the same values."""
    lines = written("json", ["v"], rows).split("\n")[:-1]
    assert [json.loads(line)["v"] for line in lines] == [row[0] for row in rows]


def test_json_refuses_two_columns_of_one_name() -> None:
    """An object would silently lose one of the values."""

    def rows() -> Iterator[tuple[Any, ...]]:
        yield (1, 2)

    with pytest.raises(BadUsage, match="id"):
        write_python_rows(["id", "id"], rows(), "json", io.StringIO())


def test_a_table_shows_null_and_escapes_control_characters() -> None:
    """A value cannot command the terminal, and a file has no width."""
    wide = "x" * 300
    text = written("table", ["id", "note"], [(1, None), (2, ""), (3, "\x1b[31mred\n"), (4, wide)])
    assert "NULL" in text
    assert "\x1b" not in text
    assert "\\u001b[31mred\\n" in text
    assert wide in text


def test_a_time_with_a_zone_is_shown_in_utc() -> None:
    """In every format for programs."""
    assert plain_text(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (pa.date32(), -719_162, 2_932_896),
        (pa.timestamp("us"), -719_162 * 86_400_000_000, 2_932_897 * 86_400_000_000 - 1),
        (pa.timestamp("us", "UTC"), -719_162 * 86_400_000_000, 2_932_897 * 86_400_000_000 - 1),
    ],
)
def test_a_time_outside_of_the_years_is_refused(kind: pa.DataType, first: int, last: int) -> None:
    """Spark and DuckDB have such times, Python has none; also in arrays."""

    def shown(*numbers: int | None) -> list[tuple[Any, ...]]:
        column = pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
        lists = pa.ListArray.from_arrays(list(range(len(column) + 1)), column)
        batch = pa.record_batch([lists], ["a"])
        flat = pa.record_batch([column], ["a"])
        return [*python_rows(batch.schema, [batch]), *python_rows(flat.schema, [flat])]

    assert len(shown(first, last, None)) == 6
    for outside in (first - 1, last + 1):
        with pytest.raises(NotAnswerable, match="the year is not between 1 and 9999"):
            shown(outside)
