"""Columns of Arrow as Python values that `text` writes exactly. Pure.

Two things need care on the way: an instant may lie outside Python's years, so it comes as ISO text made from its
microseconds; and a 4-byte float read as 8 bytes would show digits that it never had.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from auditlake.query.batches import JSON_TEXT
from auditlake.query.text import Json
from auditlake.query.when import format_us

Convert = Callable[[Any], Any]


def rows_of(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows, columns in the schema's order."""
    for batch in batches:
        yield from zip(*(_values(field, batch.column(at)) for at, field in enumerate(schema)), strict=True)


def _values(field: pa.Field, column: pa.Array) -> list[Any]:
    if field.metadata and JSON_TEXT in field.metadata:
        return [None if value is None else Json(value) for value in column.to_pylist()]
    if pa.types.is_timestamp(field.type) and field.type.tz:
        return [None if value is None else format_us(value) for value in column.cast(pa.int64()).to_pylist()]
    convert = _converter(field.type)
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType) -> Convert | None:
    """What a value read from this type still needs; None for nothing."""
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
