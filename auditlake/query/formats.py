r"""Rows in a format for programs: CSV, JSON lines or Parquet, piece by piece, with exact values.

    csv      RFC 4180 quoting, with a header; NULL is empty, '' is ""; lines end in \n, as psql's do
    json     one object a line; numbers keep all their digits; NaN and the infinities are strings, as in PostgreSQL
    parquet  one file of typed columns, instants in UTC

Values, exactly: decimals and integers keep every digit; floats have the shortest text that reads back equal, and 4-byte
floats are converted before they would gain digits as 8-byte ones. Instants come as ISO text in UTC, as
microseconds since 1970 outside of the years 1 to 9999. CSV and JSON have no other time outside of these years: it is
refused. Binary is PostgreSQL's hex, `\x…`. In CSV, arrays, maps and structs are JSON.

Arrow's CSV writer would be faster, but refuses arrays, structs, maps and binary (2026-11-22, bench/own_code.py).
"""

import json
import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.errors import BadUsage
from auditlake.lsn import Lsn
from auditlake.query.statement import JSON_TEXT, LSN
from auditlake.query.years import require_years
from auditlake.temporal.when import format_us
from auditlake.values.exact_text import not_finite

_CSV_SPECIAL = re.compile(r'[",\r\n]|^\\\.$')
"""What needs quotes: also `\\.`, with which data of COPY ends before PostgreSQL 18."""
_quoted = json.JSONEncoder(ensure_ascii=False).encode
_LINES = 1_000
"""In a piece."""


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
            return json_of(value)
        case _:
            return str(value)


def json_of(value: Any) -> str:  # noqa: ANN401, PLR0911 - any value of a row, one line per type
    """Format a value as JSON; NaN and the infinities become strings, because JSON has no such numbers."""
    if type(value) is str:
        return _quoted(value)
    match value:
        case None:
            return "null"
        case Json() | bool() | Decimal() | int():
            return plain_text(value)
        case float() if math.isfinite(value):
            return plain_text(value)
        case tuple() if hasattr(value, "asDict"):  # a Row of Spark
            return json_of(value.asDict(recursive=False))
        case Mapping():
            entries = (f"{json_of(plain_text(name))}: {json_of(item)}" for name, item in value.items())
            return "{" + ", ".join(entries) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(json_of, value)) + "]"
        case _:
            return _quoted(plain_text(value))


def _float(value: float) -> str:
    return repr(value) if math.isfinite(value) else not_finite(value)


def _time(value: datetime) -> str:
    return value.isoformat() if value.tzinfo is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")


Convert = Callable[[Any], Any]


def parts(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch, or the rows of one that has more bytes.

    A statement may make a row of gigabytes, which takes several times as much in Python, and meanwhile no other thread
    of the process runs. So a caller with a limit checks the size of each part before it converts the values.
    """
    if batch.nbytes <= most_bytes:
        yield batch
    else:
        yield from (batch.slice(number, 1) for number in range(batch.num_rows))


def python_rows(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], reader: tzinfo | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows; `reader` is the time zone of a person, for whom LSNs are formatted too, None for a program."""
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
    require_years(column)
    convert = _converter(field.type)
    # With an argument, pyarrow converts value by value: 9 times slower for texts.
    nested = pa.types.is_nested(field.type)
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict") if nested else column.to_pylist()
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


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield a header, and a line for each row."""
    yield ",".join(map(_csv_field, columns)) + "\n"
    for row in rows:
        yield ",".join(map(_csv_field, row)) + "\n"


def json_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield an object for each row; raises BadUsage if two columns have one name."""
    need_distinct(columns)
    keys = [json_of(name) for name in columns]
    for row in rows:
        fields = ", ".join(f"{key}: {json_of(value)}" for key, value in zip(keys, row, strict=True))
        yield f"{{{fields}}}\n"


def _csv_field(value: Any) -> str:  # noqa: ANN401 - any value of a row
    if value is None:
        return ""
    text = value if type(value) is str else plain_text(value)
    if not text or _CSV_SPECIAL.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text


def need_distinct(columns: Sequence[str]) -> None:
    """Raise BadUsage if two columns have one name: JSON and Parquet would lose one of them."""
    repeated = {name for name in columns if columns.count(name) > 1}
    if repeated:
        raise BadUsage(
            f"several columns are named {', '.join(sorted(repeated))}; JSON and Parquet need distinct names",
            "Give them aliases: select a.id as a_id, b.id as b_id.",
        )


def pieces(form: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Generator[bytes, None, None]:
    """Yield rows as a file: csv, json or parquet; raises BadUsage if a name repeats and would be lost."""
    if form == "parquet":
        yield from _parquet_pieces(schema, batches)
        return
    lines = {"csv": csv_lines, "json": json_lines}[form](schema.names, python_rows(schema, batches))
    while some := list(islice(lines, _LINES)):
        yield "".join(some).encode()


def _parquet_pieces(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Generator[bytes, None, None]:
    need_distinct(schema.names)
    out = _Pieces()
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield out.taken()
    yield out.taken()


class _Pieces:
    """File whose written bytes are taken piece by piece; `tell` counts from its beginning, as Parquet's footer does."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        part = bytes(data)
        self._parts.append(part)
        self._written += len(part)
        return len(part)

    def flush(self) -> None:
        """Do nothing: the bytes are taken by `taken`."""

    def taken(self) -> bytes:
        """Return the bytes written since the last call."""
        found = b"".join(self._parts)
        self._parts.clear()
        return found
