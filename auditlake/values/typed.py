"""Typed Arrow columns from PostgreSQL's text: the inverse of `exact_text`, and what a fold in Spark stores. Pure.

A value that its type cannot represent (`types.DOES_NOT_FIT`) is NULL, and its text belongs in `_raw`: `outside`. Any
other text that is not a value of its type raises ArrowInvalid or ValueError, and never becomes NULL. The text is that
of the stream's settings: datestyle ISO, timezone UTC, bytea_output hex.

Tests hold this equal to `apply.typing`, which says the same in Spark SQL.
"""

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.values.exact_text import elements
from auditlake.values.types import DATE_LENGTH, NOT_FINITE, YEAR_LENGTH, ColumnType, Kind

_SCALARS = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_type(held: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column of a history."""
    if held.element is not None:
        return pa.list_(arrow_type(held.element))
    if held.kind is Kind.DECIMAL:
        precision, scale = held.delta.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return _SCALARS[held.delta]


def typed_values(texts: pa.Array, held: ColumnType) -> pa.Array:
    """Return the typed values; NULL for NULL, and for a value that the type cannot represent."""
    if held.may_not_fit:
        texts = pc.if_else(fits(texts, held), texts, pa.scalar(None, pa.string()))
    match held.kind:
        case Kind.TEXT:
            return texts
        case Kind.BOOLEAN:
            return _booleans(texts)
        case Kind.BYTEA:
            return pa.array([None if text is None else _bytes(text) for text in texts.to_pylist()], pa.binary())
        case Kind.ARRAY:
            return _arrays(texts, held)
        case _:
            return texts.cast(arrow_type(held))


def outside(texts: pa.Array, held: ColumnType) -> pa.Array:
    """Return the texts of the values that the type cannot represent, else NULL."""
    if not held.may_not_fit:
        return pa.nulls(len(texts), pa.string())
    return pc.if_else(fits(texts, held), pa.scalar(None, pa.string()), texts)


def fits(texts: pa.Array, held: ColumnType) -> pa.Array:
    """Return whether the type can represent these values; NULL for NULL."""
    match held.kind:
        case Kind.DECIMAL:
            found = pc.invert(pc.is_in(texts, pa.array(NOT_FINITE)))
            return pc.if_else(pc.is_valid(texts), found, pa.scalar(None, pa.bool_()))
        case Kind.DATE:
            return pc.equal(pc.binary_length(texts), DATE_LENGTH)
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            after_year = pc.equal(pc.find_substring(texts, "-"), YEAR_LENGTH)
            return pc.and_(after_year, pc.invert(pc.ends_with(texts, " BC")))
        case Kind.ARRAY:
            return pa.array(
                [None if text is None else _array_fits(text, held) for text in texts.to_pylist()], pa.bool_()
            )
        case _:
            return pc.if_else(pc.is_valid(texts), pa.scalar(True), pa.scalar(None, pa.bool_()))


def _booleans(texts: pa.Array) -> pa.Array:
    if not pc.all(pc.is_in(texts.drop_null(), pa.array(["t", "f"]))).as_py() and len(texts.drop_null()):
        raise ValueError("a boolean is neither t nor f")
    return pc.equal(texts, "t")


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("a bytea is not in hex form")
    return bytes.fromhex(text[2:])


def _array_fits(text: str, held: ColumnType) -> bool:
    parts, element = elements(text), held.element
    if parts is None or element is None:
        return False
    return not element.may_not_fit or pc.all(fits(pa.array(parts, pa.string()), element)).as_py() is not False


def _arrays(texts: pa.Array, held: ColumnType) -> pa.Array:
    if held.element is None:
        raise ValueError(held.delta)
    offsets: list[int | None] = []
    flat: list[str | None] = []
    for text in texts.to_pylist():
        offsets.append(None if text is None else len(flat))
        flat += [] if text is None else elements(text) or []
    offsets.append(len(flat))
    values = typed_values(pa.array(flat, pa.string()), held.element)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
