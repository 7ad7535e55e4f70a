"""Exact text of a value in a lake: PostgreSQL's own text, from the typed column if the value fits there, else `_raw`.

    exact_text(value, column_type, raw)       one Python value, as `to_pylist()` of a history returns it
    exact_texts(values, column_type, raws)    an Arrow column, as a history's data file has it

`column_type` is the column's type in the history (`lake.history.type_of(column)`, or `held_in` for an Arrow column),
`raw` its entry in `_raw`, by `column.stored`. The typed column is lossless for values that fit. The text equals the
output of PostgreSQL's output function under the settings of `postgres.connection.PINNED`, byte for byte. Starts no JVM.

Authority: postgresql.org/docs/current/datatype.html, "Output" of each type
"""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.values.arrays import array_text
from auditlake.values.floats import double_text, real_text
from auditlake.values.types import TEXT, ColumnType, Kind


def exact_text(value: Any, column_type: ColumnType, raw: str | None = None) -> str | None:  # noqa: ANN401 - of any type
    """Return the text of one value; None for SQL NULL."""
    if raw is not None or value is None:
        return raw
    return _writer(column_type)(value)


def exact_texts(values: pa.Array, column_type: ColumnType, raws: pa.Array | None = None) -> pa.Array:
    """Return the texts of a column of values; NULL for SQL NULL."""
    texts = _texts(values, column_type)
    return texts if raws is None else pc.coalesce(raws.cast(pa.string()), texts)


def held_in(arrow: pa.DataType) -> ColumnType:
    """Return the column type of a history's Arrow column, as precisely as its text requires."""
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        element = held_in(arrow.value_type)
        return ColumnType(Kind.ARRAY, f"array<{element.delta}>", element)
    if pa.types.is_timestamp(arrow):
        return _NAIVE if arrow.tz is None else _ZONED
    return next((column_type for is_type, column_type in _COLUMN_TYPES if is_type(arrow)), TEXT)


_NAIVE, _ZONED = ColumnType(Kind.TIMESTAMP, "timestamp_ntz"), ColumnType(Kind.TIMESTAMPTZ, "timestamp")
_COLUMN_TYPES = (
    (pa.types.is_boolean, ColumnType(Kind.BOOLEAN, "boolean")),
    (pa.types.is_integer, ColumnType(Kind.INTEGER, "bigint")),
    (pa.types.is_float32, ColumnType(Kind.FLOAT, "float")),
    (pa.types.is_float64, ColumnType(Kind.FLOAT, "double")),
    (pa.types.is_decimal, ColumnType(Kind.DECIMAL, "decimal")),
    (pa.types.is_date, ColumnType(Kind.DATE, "date")),
    (pa.types.is_binary, ColumnType(Kind.BYTEA, "binary")),
    (pa.types.is_binary_view, ColumnType(Kind.BYTEA, "binary")),
    (pa.types.is_large_binary, ColumnType(Kind.BYTEA, "binary")),
)


def _texts(values: pa.Array, column_type: ColumnType) -> pa.Array:
    match column_type.kind:
        case Kind.TEXT | Kind.INTEGER | Kind.DATE:
            return values.cast(pa.string())
        case Kind.BOOLEAN:
            return pc.if_else(values, "t", "f")
        case Kind.TIMESTAMP:
            return _timestamp_texts(values)
        case Kind.TIMESTAMPTZ:
            return pc.binary_join_element_wise(_timestamp_texts(values), "+00", "")
        case Kind.DECIMAL if column_type.element is None:
            return _decimal_texts(values, column_type)
        case _:
            return _each(values, column_type)


def _each(values: pa.Array, column_type: ColumnType) -> pa.Array:
    write = _writer(column_type)
    return pa.array([None if value is None else write(value) for value in values.to_pylist()], pa.string())


def _timestamp_texts(values: pa.Array) -> pa.Array:
    micros = values.cast(pa.timestamp("us")).cast(pa.string())  # always six digits
    return pc.replace_substring_regex(pc.replace_substring_regex(micros, "0+$", ""), r"\.$", "")


def _decimal_texts(values: pa.Array, column_type: ColumnType) -> pa.Array:
    texts = values.cast(pa.string())
    # Arrow formats small numbers with an exponent, numeric's output never has one.
    return _each(values, column_type) if pc.any(pc.match_substring(texts, "E")).as_py() else texts


def _writer(column_type: ColumnType) -> Callable[[Any], str]:
    if column_type.element is not None:
        return partial(_array, _writer(column_type.element))
    if column_type.kind is Kind.FLOAT:
        return real_text if column_type.delta == "float" else double_text
    return _WRITERS[column_type.kind]


def _array(write: Callable[[Any], str], values: list[Any]) -> str:
    return array_text(None if value is None else write(value) for value in values)


def _boolean(value: bool) -> str:  # noqa: FBT001 - the value itself
    return "t" if value else "f"


def _decimal(value: Decimal) -> str:
    return f"{value:f}"


def _date(value: date) -> str:
    return value.isoformat()


def _timestamp(value: datetime) -> str:
    text = value.isoformat(sep=" ")
    return text.rstrip("0") if value.microsecond else text


def _timestamptz(value: datetime) -> str:
    return f"{_timestamp(value.astimezone(UTC).replace(tzinfo=None))}+00"


def _bytea(value: bytes) -> str:
    return f"\\x{value.hex()}"


_WRITERS: dict[Kind, Callable[[Any], str]] = {
    Kind.TEXT: str,
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: str,
    Kind.DECIMAL: _decimal,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMPTZ: _timestamptz,
    Kind.BYTEA: _bytea,
}
