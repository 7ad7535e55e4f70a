r"""Output of query results: a table for people, or CSV, JSON lines or Parquet with exact values.

    table    aligned; NULL is a dim word, control characters are escaped; a new table after 10,000 rows. One value a
             line on a terminal that is too narrow, or with `Layout.expanded`
    csv      RFC 4180 quoting, with a header; NULL is empty, '' is ""; lines end in \n, as psql's do
    json     one object a line; numbers keep all their digits; NaN and the infinities are strings, as in PostgreSQL
    parquet  one file of typed columns, instants in UTC

Values, exactly: decimals and integers keep every digit; floats have the shortest text that reads back equal, and 4-byte
floats are converted before they would gain digits as 8-byte ones. Instants come as ISO text computed from their
microseconds, because they may be outside of Python's years: in UTC, in a table in the reader's zone. LSNs are integers,
in a table `0/16B3748`. Binary is PostgreSQL's hex, `\x…`. In csv and table, arrays, maps and structs are JSON.

Arrow's CSV writer would be faster, but refuses arrays, structs, maps and binary (2026-11-22, bench/own_code.py).

Every format is streamed: memory does not grow with the result. A file appears whole, by a rename, or not at all.
Several results follow each other, in CSV after an empty line; a Parquet file holds one.
"""

import codecs
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from auditlake.errors import BadUsage
from auditlake.lsn import Lsn
from auditlake.query.statement import JSON_TEXT, LSN, Rows
from auditlake.temporal.when import format_us
from auditlake.terminal import console_for, show
from auditlake.values.escapes import visible

if TYPE_CHECKING:  # pyspark takes a second to import
    from pyspark.sql import DataFrame

    Results = Sequence[DataFrame | Rows]


class Json(str):
    """JSON text, written as it is."""

    __slots__ = ()


def plain_text(value: Any) -> str:  # noqa: ANN401, PLR0911 - any value of a row, one line per type
    """Format a value that is not NULL."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return _float(value)
        case Decimal():
            return f"{value:f}"
        case datetime():
            return _time(value)
        case bytes() | bytearray():
            return "\\x" + value.hex()
        case list() | tuple() | Mapping():
            return json_text(value)
        case _:
            return str(value)


def json_text(value: Any) -> str:  # noqa: ANN401, PLR0911 - any value of a row, one line per type
    """Format a value as JSON; NaN and the infinities become strings, because JSON has no such numbers."""
    match value:
        case None:
            return "null"
        case Json() | bool() | Decimal() | int():
            return plain_text(value)
        case float() if math.isfinite(value):
            return plain_text(value)
        case tuple() if hasattr(value, "asDict"):  # a Row of Spark
            return json_text(value.asDict(recursive=False))
        case Mapping():
            entries = (f"{json_text(plain_text(name))}: {json_text(item)}" for name, item in value.items())
            return "{" + ", ".join(entries) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(json_text, value)) + "]"
        case _:
            return json.dumps(plain_text(value), ensure_ascii=False)


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _time(value: datetime) -> str:
    return value.isoformat() if value.tzinfo is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")


Convert = Callable[[Any], Any]


def rows_of(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], reader: tzinfo | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows, columns in the schema's order.

    `reader` is the time zone of a person, for whom LSNs are formatted too; None for a program.
    """
    for batch in batches:
        yield from zip(*(_values(field, batch.column(at), reader) for at, field in enumerate(schema)), strict=True)


def _values(field: pa.Field, column: pa.Array, reader: tzinfo | None) -> list[Any]:
    if field.metadata and JSON_TEXT in field.metadata:
        return [None if value is None else Json(value) for value in column.to_pylist()]
    if reader is not None and field.metadata and LSN in field.metadata:
        return [None if value is None else str(Lsn(value)) for value in column.to_pylist()]
    if pa.types.is_timestamp(field.type) and field.type.tz:
        zone = reader or UTC
        return [None if value is None else format_us(value, zone) for value in column.cast(pa.int64()).to_pylist()]
    convert = _converter(field.type)
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType) -> Convert | None:
    """Return the conversion that a value read from this type still needs, if any."""
    if pa.types.is_float32(kind):
        return _real
    if pa.types.is_list(kind):
        return _each(_converter(kind.value_type))
    if pa.types.is_map(kind):
        return _items(_converter(kind.item_type))
    if pa.types.is_struct(kind):
        return _fields({field.name: _converter(field.type) for field in kind})
    return None


def _real(value: float) -> float:
    return float(str(np.float32(value)))


def _each(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda values: [None if v is None else convert(v) for v in values]


def _items(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: {k: None if v is None else convert(v) for k, v in value.items()}


def _fields(convert: dict[str, Convert | None]) -> Convert | None:
    needed = {name: each for name, each in convert.items() if each is not None}
    if not needed:
        return None
    return lambda value: value | {n: each(value[n]) for n, each in needed.items() if value[n] is not None}


TEXT_FORMATS = ("table", "csv", "json")
FORMATS = (*TEXT_FORMATS, "parquet")
_TABLE_ROWS = 10_000
_CSV_SPECIAL = re.compile(r'[",\r\n]')


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of the table format: `expanded` None expands what does not fit; `width` is that of a pager's terminal.

    Instants are shown in `zone`.
    """

    expanded: bool | None = None
    width: int | None = None
    zone: tzinfo = UTC


_FITTING = Layout()


def _batches(rows: "DataFrame | Rows") -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    # A DataFrame of Spark Connect has an attribute of any name: a column.
    if isinstance(rows, Rows) and not type(rows).__module__.startswith("pyspark."):
        return rows.batches()
    from auditlake.query.spark_engine import batches  # noqa: PLC0415 - pyspark takes a second to import

    return batches(cast("DataFrame", rows))


def render(
    rows: "DataFrame | Rows",
    form: str,
    out: TextIO | None = None,
    layout: Layout = _FITTING,
    nulls: set[int] | None = None,
) -> int:
    """Run the query, write its rows to `out` (stdout) in one of `TEXT_FORMATS` and return their number.

    The indexes of columns that had a NULL are added to `nulls`. Raises BadUsage if the query fails on a row.
    """
    schema, fetched = _batches(rows)
    if nulls is not None:
        fetched = _find_nulls(fetched, nulls)
    reader = layout.zone if form == "table" else None
    return write_rows(rows.columns, rows_of(schema, fetched, reader), form, out or sys.stdout, layout)


def _find_nulls(fetched: Iterator[pa.RecordBatch], nulls: set[int]) -> Iterator[pa.RecordBatch]:
    for batch in fetched:
        nulls.update(at for at, column in enumerate(batch.columns) if column.null_count)
        yield batch


def write_rows(
    columns: Sequence[str], rows: Iterator[tuple[Any, ...]], form: str, out: TextIO, layout: Layout = _FITTING
) -> int:
    """Write rows that are Python values already."""
    match form:
        case "json":
            return _json_lines(columns, rows, out)
        case "csv":
            return _csv(columns, rows, out)
        case "table":
            return _tables(columns, rows, out, layout)
        case _:
            raise BadUsage(f"{form!r} is not a format", f"Choose one of {', '.join(TEXT_FORMATS)}.")


def write_parquet(rows: "DataFrame | Rows", out: BinaryIO) -> int:
    """Run the query, write its rows to `out` as one Parquet file and return their number."""
    schema, fetched = _batches(rows)
    need_distinct(rows.columns)
    count = 0
    with pq.ParquetWriter(_Forward(out), schema, compression="zstd") as writer:
        for batch in fetched:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


class _Forward:
    """Output that counts its bytes: Parquet's footer needs offsets, and a pipe has none."""

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
    need_distinct(columns)
    count = 0
    keys = [json_text(name) for name in columns]
    for row in rows:
        fields = ", ".join(f"{key}: {json_text(value)}" for key, value in zip(keys, row, strict=True))
        out.write(f"{{{fields}}}\n")
        count += 1
    return count


def need_distinct(columns: Sequence[str]) -> None:
    """Raise BadUsage if two columns have one name: JSON and Parquet would lose one of them."""
    repeated = {name for name in columns if columns.count(name) > 1}
    if repeated:
        raise BadUsage(
            f"several columns are named {', '.join(sorted(repeated))}; JSON and Parquet need distinct names",
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


def _tables(columns: Sequence[str], rows: Iterator[tuple[Any, ...]], out: TextIO, layout: Layout) -> int:
    to = console_for(out, terminal_width=layout.width)
    count = _table(columns, list(islice(rows, _TABLE_ROWS)), to, layout, 0)
    while more := list(islice(rows, _TABLE_ROWS)):
        count += _table(columns, more, to, layout, count)
    return count


def _table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], to: Console, layout: Layout, before: int) -> int:
    table = Table(show_lines=False)
    for index, name in enumerate(columns):
        numeric = any(isinstance(row[index], int | float | Decimal) for row in rows)
        table.add_column(Text(visible(name)), overflow="fold", justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*map(_cell, row))
    show(table, to, expanded=layout.expanded, first=before + 1)
    return len(rows)


def _cell(value: Any) -> Text:  # noqa: ANN401 - any value of a row
    return Text("NULL", style="dim italic") if value is None else Text(visible(plain_text(value)))


_UTF8 = codecs.getwriter("utf-8")


@dataclass(frozen=True, slots=True)
class Form:
    """One of `FORMATS`, and the file to write; None is standard output.

    `expanded` and `zone` are as in `Layout`; `paged`: use the pager on a terminal.
    """

    name: str
    path: Path | None
    expanded: bool | None = None
    paged: bool = False
    zone: tzinfo = UTC

    def check(self, statements: int) -> None:
        """Raise BadUsage if the results of this number of statements cannot be written in this form."""
        if self.name != "parquet":
            return
        if statements != 1:
            raise BadUsage(f"{statements} answers, and a Parquet file holds the rows of one", "Ask one at a time.")
        if self.path is None and sys.stdout.isatty():
            raise BadUsage("Parquet is not for a terminal", "Add --output FILE, or redirect standard output.")


Notes = Callable[[int, set[int]], None]
"""Called with the index of a result and the indexes of its columns that had a NULL, after all its rows are written."""


def answer(results: "Results", form: Form, *, first: bool = True, notes: Notes | None = None) -> int | None:
    """Write the rows of each result; return their number, None if a pager was closed before the last.

    `first`: nothing was written before; `notes` is called for tables. Raises BadUsage if a query fails on a
    row, two columns have one name in a format that needs distinct ones, or the file cannot be written.
    """
    for rows in results if form.name in {"json", "parquet"} else ():
        need_distinct(rows.columns)
    nulls: list[set[int]] = [set() for _ in results]
    paged = form.paged and form.path is None and sys.stdout.isatty() and _has_pager()
    count = _page(results, form, nulls, first=first) if paged else _stream(results, form, nulls, first=first)
    for number, columns in enumerate(nulls):
        if notes is not None and columns and form.name == "table":
            notes(number, columns)
    return count


def _stream(results: "Results", form: Form, nulls: Sequence[set[int]], *, first: bool) -> int:
    count = 0
    with _opened(form.path) as out:
        for number, rows in enumerate(results):
            if form.name == "parquet":
                count += write_parquet(rows, out)
                continue
            # Not a TextIOWrapper: if a query fails on a row it is collected, and closes standard output with it.
            text = cast("TextIO", _UTF8(out))
            _separate(form, text, first=first and not number)
            count += render(rows, form.name, text, Layout(form.expanded, zone=form.zone), nulls[number])
        out.flush()
    return count


def _separate(form: Form, out: TextIO, *, first: bool) -> None:
    if form.name == "csv" and not first:
        out.write("\n")


def _has_pager() -> bool:
    return bool(os.environ.get("PAGER")) or shutil.which("less") is not None


def _page(results: "Results", form: Form, nulls: Sequence[set[int]], *, first: bool) -> int | None:
    os.environ.setdefault("LESS", "-FRX")  # no pager for what fits the screen; colours; keep the text on leaving
    layout, count, complete = Layout(form.expanded, shutil.get_terminal_size().columns, form.zone), 0, False
    with click.get_pager_file() as pager:  # click expects that a pager may close the pipe early
        for number, rows in enumerate(results):
            _separate(form, pager, first=first and not number)
            count += render(rows, form.name, pager, layout, nulls[number])
        pager.flush()
        complete = True
    return count if complete else None


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        return
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        out = unfinished.open("wb")
    except OSError as exc:
        raise BadUsage(f"{path} cannot be written: {exc.strerror}", "Choose another --output.") from exc
    try:
        with out:
            yield out
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
