r"""Write the rows of a query: as a table to look at, or as CSV, JSON lines or Parquet to read exactly.

    table    aligned, NULL as a dim NULL, control characters escaped; after 10,000 rows another one begins
    csv      RFC 4180 quoting, with a header; NULL is empty, '' is ""; lines end in \n, as psql's do
    json     one object a line; numbers keep all their digits; NaN and the infinities are texts, as in PostgreSQL
    parquet  one file of typed columns, instants in UTC

Times with a zone are ISO in UTC; binary is PostgreSQL's hex, `\x…`. In csv and table, arrays, maps and structs are
JSON. All of them are streamed: memory does not grow with the result.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, BinaryIO, TextIO

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table
from rich.text import Text

from auditlake.errors import BadUsage
from auditlake.query.batches import batches
from auditlake.query.text import json_text, plain_text
from auditlake.query.values import rows_of
from auditlake.visible import visible

TEXT_FORMATS = ("table", "csv", "json")
FORMATS = (*TEXT_FORMATS, "parquet")
_TABLE_ROWS = 10_000
_CSV_SPECIAL = re.compile(r'[",\r\n]')


def render(rows: DataFrame, form: str, out: TextIO | None = None) -> int:
    """Run the query, write its rows to `out` (stdout) in one of `TEXT_FORMATS` and return how many there were.

    Raises BadUsage where the query fails on some row.
    """
    schema, fetched = batches(rows)
    return write_rows(rows.columns, rows_of(schema, fetched), form, out or sys.stdout)


def write_rows(columns: Sequence[str], rows: Iterator[tuple[Any, ...]], form: str, out: TextIO) -> int:
    """Write rows that are Python values already."""
    match form:
        case "json":
            return _json_lines(columns, rows, out)
        case "csv":
            return _csv(columns, rows, out)
        case "table":
            return _tables(columns, rows, out)
        case _:
            raise BadUsage(f"{form!r} is no format", f"Choose one of {', '.join(TEXT_FORMATS)}.")


def write_parquet(rows: DataFrame, out: BinaryIO) -> int:
    """Run the query, write its rows to `out` as one Parquet file and return how many there were."""
    schema, fetched = batches(rows)
    _need_distinct(rows.columns)
    count = 0
    with pq.ParquetWriter(_Forward(out), schema, compression="zstd") as writer:
        for batch in fetched:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


class _Forward:
    """Counts what it passes on: a pipe cannot tell its place, and Parquet's footer needs it."""

    closed = False

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._written = 0

    def tell(self) -> int:
        return self._written

    def write(self, data: bytes) -> int:
        self._written += len(data)
        return self._out.write(data)

    def flush(self) -> None:
        self._out.flush()


def _json_lines(columns: Sequence[str], rows: Iterator[tuple[Any, ...]], out: TextIO) -> int:
    _need_distinct(columns)
    count = 0
    keys = [json_text(name) for name in columns]
    for row in rows:
        fields = ", ".join(f"{key}: {json_text(value)}" for key, value in zip(keys, row, strict=True))
        out.write(f"{{{fields}}}\n")
        count += 1
    return count


def _need_distinct(columns: Sequence[str]) -> None:
    repeated = {name for name in columns if columns.count(name) > 1}
    if repeated:
        raise BadUsage(
            f"several columns are called {', '.join(sorted(repeated))}, JSON and Parquet tell them by name",
            "Give them aliases: select a.id as a_id, b.id as b_id.",
        )


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


def _tables(columns: Sequence[str], rows: Iterator[tuple[Any, ...]], out: TextIO) -> int:
    count = _table(columns, list(islice(rows, _TABLE_ROWS)), out)
    while more := list(islice(rows, _TABLE_ROWS)):
        count += _table(columns, more, out)
    return count


def _table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], out: TextIO) -> int:
    table = Table(show_lines=False)
    for index, name in enumerate(columns):
        numeric = any(isinstance(row[index], int | float | Decimal) for row in rows)
        table.add_column(Text(visible(name)), overflow="fold", justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*map(_cell, row))
    console = Console(file=out, highlight=False)
    if not console.is_terminal:  # a file has no width: nothing may wrap there
        console.width = sys.maxsize
    console.print(table)
    return len(rows)


def _cell(value: Any) -> Text:  # noqa: ANN401 - any value of a row
    return Text("NULL", style="dim italic") if value is None else Text(visible(plain_text(value)))
