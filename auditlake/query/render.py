r"""Write the rows of a query: as a table to look at, or as CSV or JSON lines to read exactly.

    table   aligned, NULL as a dim NULL, control characters escaped; held in memory as a whole, because of the alignment
    csv     RFC 4180 quoting, with a header; NULL is empty, '' is ""; lines end in \n, as psql's do
    json    one object a line; numbers keep all their digits; NaN and the infinities are texts, as in PostgreSQL

Times with a zone are ISO in UTC; binary is PostgreSQL's hex, `\x…`. In csv and table, arrays, maps and structs are
JSON. csv and json are streamed, a partition at a time.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TextIO

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.types import DataType, FloatType, TimestampType
from rich.console import Console
from rich.table import Table
from rich.text import Text

from auditlake.errors import BadUsage
from auditlake.query.failure import statement_errors
from auditlake.query.text import Json, json_text, plain_text
from auditlake.query.when import format_us

FORMATS = ("table", "csv", "json")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CSV_SPECIAL = re.compile(r'[",\r\n]')
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def render(rows: DataFrame, form: str, out: TextIO | None = None) -> int:
    """Run the query, write its rows to `out` (stdout) in one of `FORMATS` and return how many there were.

    Raises BadUsage where the query fails on some row.
    """
    return write_rows(rows.columns, _fetch(rows), form, out or sys.stdout)


def write_rows(columns: Sequence[str], rows: Iterator[tuple[Any, ...]], form: str, out: TextIO) -> int:
    """Write rows that are Python values already."""
    match form:
        case "json":
            return _json_lines(columns, rows, out)
        case "csv":
            return _csv(columns, rows, out)
        case "table":
            return _table(columns, list(rows), out)
        case _:
            raise BadUsage(f"{form!r} is no format", f"Choose one of {', '.join(FORMATS)}.")


def _fetch(rows: DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the rows, with what pyspark would alter on the way to Python sent in another form."""
    names = [f"c{index}" for index in range(len(rows.columns))]  # two may have one name
    carriers = [_carrier(field.dataType) for field in rows.schema.fields]
    renamed = rows.toDF(*names)
    columns = [carrier.send(F.col(name)) for carrier, name in zip(carriers, names, strict=True)]
    with statement_errors({}):
        for row in renamed.select(*columns).toLocalIterator(prefetchPartitions=True):
            yield tuple(
                None if value is None else carrier.receive(value) for carrier, value in zip(carriers, row, strict=True)
            )


@dataclass(frozen=True, slots=True)
class _Carrier:
    """How values of one column travel to Python."""

    send: Callable[[Column], Column]
    receive: Callable[[Any], Any]


_AS_IS = _Carrier(lambda column: column, lambda value: value)
# pyspark gives an instant in the machine's own zone.
_INSTANT = _Carrier(F.unix_micros, format_us)
_JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "timeZone": "UTC", "ignoreNullFields": "false"}
_NESTED_INSTANT = _Carrier(lambda column: F.to_json(column, _JSON_OPTIONS), Json)
# A 4-byte float read as 8 bytes shows digits that it never had.
_REAL = _Carrier(lambda column: column, lambda value: float(str(np.float32(value))))


def _carrier(kind: DataType) -> _Carrier:
    if isinstance(kind, TimestampType):
        return _INSTANT
    if isinstance(kind, FloatType):
        return _REAL
    if '"timestamp"' in kind.json():
        return _NESTED_INSTANT
    return _AS_IS


def _json_lines(columns: Sequence[str], rows: Iterator[tuple[Any, ...]], out: TextIO) -> int:
    repeated = {name for name in columns if columns.count(name) > 1}
    if repeated:
        raise BadUsage(
            f"several columns are called {', '.join(sorted(repeated))}, an object can have one",
            "Give them aliases: select a.id as a_id, b.id as b_id.",
        )
    count = 0
    keys = [json_text(name) for name in columns]
    for row in rows:
        fields = ", ".join(f"{key}: {json_text(value)}" for key, value in zip(keys, row, strict=True))
        out.write(f"{{{fields}}}\n")
        count += 1
    return count


def _csv(columns: Sequence[str], rows: Iterator[tuple[Any, ...]], out: TextIO) -> int:
    out.write(",".join(map(_csv_field, columns)) + "\n")
    count = 0
    for row in rows:
        out.write(",".join(map(_csv_field, row)) + "\n")
        count += 1
    return count


def _csv_field(value: Any) -> str:  # noqa: ANN401 - any value of a row
    if value is None:
        return ""
    text = plain_text(value)
    if not text or _CSV_SPECIAL.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text


def _table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], out: TextIO) -> int:
    table = Table(show_lines=False)
    for index, name in enumerate(columns):
        numeric = any(isinstance(row[index], int | float | Decimal) for row in rows)
        table.add_column(Text(_visible(name)), overflow="fold", justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*map(_cell, row))
    console = Console(file=out, highlight=False)
    if not console.is_terminal:  # a file has no width: nothing may wrap there
        console.width = sys.maxsize
    console.print(table)
    return len(rows)


def _cell(value: Any) -> Text:  # noqa: ANN401 - any value of a row
    return Text("NULL", style="dim italic") if value is None else Text(_visible(plain_text(value)))


def _visible(text: str) -> str:
    """Escape what would move the cursor or speak to the terminal: the text comes from somebody's rows."""
    return _CONTROL.sub(lambda match: _NAMED.get(match[0]) or f"\\u{ord(match[0]):04x}", text)
