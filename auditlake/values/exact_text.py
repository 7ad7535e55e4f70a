r"""Exact text of a value in a lake: PostgreSQL's own text, from the typed column if the value fits there, else `_raw`.

    exact_texts(values, held, raws)     the texts of an Arrow column, as a history's data file has it
    typed_values(texts, held)           the inverse, what a fold in Spark stores; the rest is `outside`

`held` is the column's type in the history (`lake.history.type_of(column)`, or `held_in` for an Arrow column),
`raw` its entry in `_raw`, by `column.stored`. The typed column is lossless for values that fit. The text equals the
output of PostgreSQL's output function under the settings of `source.connection.PINNED`, byte for byte. Starts no JVM.

`typed_values` returns NULL for a value that its type cannot represent (`types.DOES_NOT_FIT`); its text belongs in
`_raw`. Any other text that is not a value of its type raises ArrowInvalid or ValueError, and never becomes NULL. Tests
compare it with `apply.typed_values`, its counterpart in Spark SQL.

Authority: postgresql.org/docs/current/datatype.html, "Output" of each type; arrays.html, "Array Input and Output
Syntax"; src/common/d2s.c, f2s.c; src/backend/utils/adt/arrayfuncs.c
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.relation import Column
from auditlake.values.types import (
    DATE_LENGTH,
    NOT_FINITE,
    TEXT,
    YEAR_LENGTH,
    ColumnType,
    Conversion,
    array_of,
    column_type,
    digits_of_decimal,
)

RAW = "map<string,string>"
"""The type of `_raw`."""
_ARROW = {
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
    RAW: pa.map_(pa.string(), pa.string()),
}


def exact_texts(values: pa.Array, held: ColumnType, raws: pa.Array | None = None) -> pa.Array:
    """Return the texts of a column of values; NULL for SQL NULL."""
    texts = _texts(values, held)
    return texts if raws is None else pc.coalesce(raws.cast(pa.string()), texts)


def stored_texts(column: Column, values: pa.Array, raw: pa.Array | None) -> pa.Array:
    """Return PostgreSQL's texts of a column of a history, given its values and those of `_raw` in the same rows.

    Without `_raw` every value fits its type.
    """
    held = column_type(*column.type)
    if raw is None or not held.may_not_fit or raw.null_count == len(raw):
        return exact_texts(values, held)
    return exact_texts(values, held, pc.map_lookup(raw, column.stored, "first"))


def held_in(arrow: pa.DataType) -> ColumnType:
    """Return the column type of a history's Arrow column, as precisely as its text requires."""
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        element = held_in(arrow.value_type)
        return array_of(element)
    if pa.types.is_timestamp(arrow):
        return _NAIVE if arrow.tz is None else _ZONED
    return next((held for is_type, held in _COLUMN_TYPES if is_type(arrow)), TEXT)


_NAIVE, _ZONED = ColumnType(Conversion.TIMESTAMP, "timestamp_ntz"), ColumnType(Conversion.TIMESTAMPTZ, "timestamp")
_COLUMN_TYPES = (
    (pa.types.is_boolean, ColumnType(Conversion.BOOLEAN, "boolean")),
    (pa.types.is_integer, ColumnType(Conversion.INTEGER, "bigint")),
    (pa.types.is_float32, ColumnType(Conversion.FLOAT, "float")),
    (pa.types.is_float64, ColumnType(Conversion.FLOAT, "double")),
    (pa.types.is_decimal, ColumnType(Conversion.DECIMAL, "decimal")),
    (pa.types.is_date, ColumnType(Conversion.DATE, "date")),
    (pa.types.is_binary, ColumnType(Conversion.BYTEA, "binary")),
    (pa.types.is_binary_view, ColumnType(Conversion.BYTEA, "binary")),
    (pa.types.is_large_binary, ColumnType(Conversion.BYTEA, "binary")),
)


def _texts(values: pa.Array, held: ColumnType) -> pa.Array:  # noqa: C901, PLR0911 - one case for each kind
    match held.kind:
        case Conversion.TEXT | Conversion.INTEGER | Conversion.DATE:
            return values.cast(pa.string())
        case Conversion.BOOLEAN:
            return pc.if_else(values, "t", "f")
        case Conversion.TIMESTAMP:
            return _timestamp_texts(values)
        case Conversion.TIMESTAMPTZ:
            return pc.binary_join_element_wise(_timestamp_texts(values), "+00", "")
        case Conversion.DECIMAL:
            return _decimal_texts(values)
        case Conversion.FLOAT:
            return _each(values, real_text if held.delta == "float" else double_text)
        case Conversion.BYTEA:
            return _each(values, lambda value: f"\\x{value.hex()}")
        case Conversion.ARRAY:
            return _array_texts(values, held)


def _each(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else text(value) for value in values.to_pylist()], pa.string())


def _timestamp_texts(values: pa.Array) -> pa.Array:
    micros = values.cast(pa.timestamp("us")).cast(pa.string())  # always six digits
    return pc.replace_substring_regex(pc.replace_substring_regex(micros, "0+$", ""), r"\.$", "")


def _decimal_texts(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    # Arrow formats small numbers with an exponent, numeric's output never has one.
    return _each(values, "{:f}".format) if pc.any(pc.match_substring(texts, "E")).as_py() else texts


def _array_texts(values: pa.Array, held: ColumnType) -> pa.Array:
    texts = iter(_texts(values.flatten(), held.element or TEXT).to_pylist())
    lengths = pc.list_value_length(values).to_pylist()
    return pa.array([None if length is None else array_text(islice(texts, length)) for length in lengths], pa.string())


_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TO_QUOTE = re.compile(r'[{},"\\ \t\n\r\v\f]')


def array_elements(text: str) -> list[str | None] | None:
    r"""Parse an array's text; None unless it has one dimension and the lower bound 1.

        {1,2,NULL}   {"a b","say \"hi\"",""}   {}      lists
        {{1},{2}}    [0:1]={1,2}                       None

    psycopg parses eight times as fast (`bench/own_code.py`, 2026-11), but the audit commands start without a driver.
    """
    if text[0] != "{" or text[1] == "{":
        return None
    matches = _ELEMENT.finditer(text, 1, len(text) - 1)
    return [_element(quoted, plain) for quoted, plain in (match.groups() for match in matches)]


def _element(quoted: str | None, plain: str | None) -> str | None:
    if quoted is None:
        return None if plain == "NULL" else plain
    return _ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted


def array_text(texts: Iterable[str | None]) -> str:
    """Format an array of elements' texts."""
    return "{" + ",".join("NULL" if text is None else _quoted(text) for text in texts) + "}"


def _quoted(text: str) -> str:
    if text and text.upper() != "NULL" and not _TO_QUOTE.search(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_LEAST_EXPONENT = -4


@dataclass(frozen=True, slots=True)
class _Format:
    """A float width: the greatest exponent printed as none, the magnitudes between which ties are short."""

    greatest_exponent: int
    ties: tuple[float, float]


_DOUBLE = _Format(15, (1e15, 1e42))
_REAL = _Format(6, (1e6, 1e21))


def double_text(value: float) -> str:
    """Return the text of a float8."""
    if not math.isfinite(value):
        return not_finite(value)
    shortest = repr(value)
    if _DOUBLE.ties[0] <= abs(value) <= _DOUBLE.ties[1]:
        shortest = _off_ties(shortest, value, (math.nextafter(value, -math.inf), math.nextafter(value, math.inf)), 17)
    return _printed(shortest, _DOUBLE)


def real_text(value: float) -> str:
    """Return the text of a float4, passed as the double of the same value."""
    if not math.isfinite(value):
        return not_finite(value)
    real = np.float32(value)
    shortest = np.format_float_scientific(real, unique=True, trim="-")
    if _REAL.ties[0] <= abs(value) <= _REAL.ties[1]:
        neighbours = (np.nextafter(real, np.float32(-np.inf)), np.nextafter(real, np.float32(np.inf)))
        shortest = _off_ties(shortest, value, (float(neighbours[0]), float(neighbours[1])), 9)
    return _printed(shortest, _REAL)


def not_finite(value: float) -> str:
    """Return PostgreSQL's text of NaN or an infinity."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _off_ties(shortest: str, value: float, neighbours: tuple[float, float], most_digits: int) -> str:
    """Add digits while `shortest` is exactly halfway between the value and a neighbour: 1e23 is 9.999999999999999e+22.

    Python takes such a decimal for one of the two, PostgreSQL for neither.
    """
    exact = Fraction(value)
    ties = [(exact + Fraction(other)) / 2 for other in neighbours if math.isfinite(other)]
    text, digits = shortest, len(Decimal(shortest).normalize().as_tuple().digits)
    while Fraction(text) in ties and digits < most_digits:
        text, digits = f"{value:.{digits}e}", digits + 1
    return text


def _printed(shortest: str, width: _Format) -> str:
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - finite
    text = "".join(map(str, digits)).lstrip("0")
    minus = "-" if sign else ""
    if not text:
        return f"{minus}0"
    scientific = exponent + len(text) - 1
    text = text.rstrip("0")
    if _LEAST_EXPONENT <= scientific < width.greatest_exponent:
        return f"{minus}{_fixed(text, scientific)}"
    fraction = f".{text[1:]}" if len(text) > 1 else ""
    return f"{minus}{text[0]}{fraction}e{scientific:+03d}"


def _fixed(digits: str, scientific: int) -> str:
    if scientific < 0:
        return "0." + "0" * (-scientific - 1) + digits
    whole = digits[: scientific + 1].ljust(scientific + 1, "0")
    rest = digits[scientific + 1 :]
    return f"{whole}.{rest}" if rest else whole


def arrow_type(held: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column of a history."""
    return arrow_of(held.delta)


def arrow_of(delta: str) -> pa.DataType:
    """Return the Arrow type of a column of a history whose type has this name."""
    if delta.startswith("array<"):
        return pa.list_(arrow_of(delta[len("array<") : -1]))
    parts = digits_of_decimal(delta)
    return _ARROW[delta] if parts is None else pa.decimal128(*parts)


def typed_values(texts: pa.Array, held: ColumnType) -> pa.Array:
    """Return the typed values; NULL for NULL, and for a value that the type cannot represent."""
    if held.may_not_fit:
        texts = pc.if_else(_fits(texts, held), texts, pa.scalar(None, pa.string()))
    match held.kind:
        case Conversion.TEXT:
            return texts
        case Conversion.BOOLEAN:
            return _booleans(texts)
        case Conversion.BYTEA:
            return pa.array([None if text is None else _bytes(text) for text in texts.to_pylist()], pa.binary())
        case Conversion.ARRAY:
            return _arrays(texts, held)
        case _:
            return texts.cast(arrow_type(held))


def outside(texts: pa.Array, held: ColumnType) -> pa.Array:
    """Return the texts of the values that the type cannot represent, else NULL."""
    if not held.may_not_fit:
        return pa.nulls(len(texts), pa.string())
    return pc.if_else(_fits(texts, held), pa.scalar(None, pa.string()), texts)


def raw_map(texts: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Return `_raw` of some rows: by stored name the texts that are not NULL; NULL for a row without any."""
    if all(array.null_count == len(array) for array in texts.values()):
        return pa.nulls(rows, _ARROW[RAW])
    columns = {name: array.to_pylist() for name, array in texts.items()}
    entries = [[(name, of[row]) for name, of in columns.items() if of[row] is not None] or None for row in range(rows)]
    return pa.array(entries, _ARROW[RAW])


def _fits(texts: pa.Array, held: ColumnType) -> pa.Array:
    """Return whether the type can represent these values; NULL for NULL."""
    match held.kind:
        case Conversion.DECIMAL:
            found = pc.invert(pc.is_in(texts, pa.array(NOT_FINITE)))
            return pc.if_else(pc.is_valid(texts), found, pa.scalar(None, pa.bool_()))
        case Conversion.DATE:
            return pc.equal(pc.binary_length(texts), DATE_LENGTH)
        case Conversion.TIMESTAMP | Conversion.TIMESTAMPTZ:
            after_year = pc.equal(pc.find_substring(texts, "-"), YEAR_LENGTH)
            return pc.and_(after_year, pc.invert(pc.ends_with(texts, " BC")))
        case Conversion.ARRAY:
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
    parts, element = array_elements(text), held.element
    if parts is None or element is None:
        return False
    return not element.may_not_fit or pc.all(_fits(pa.array(parts, pa.string()), element)).as_py() is not False


def _arrays(texts: pa.Array, held: ColumnType) -> pa.Array:
    if held.element is None:
        raise ValueError(held.delta)
    offsets: list[int | None] = []
    flat: list[str | None] = []
    for text in texts.to_pylist():
        offsets.append(None if text is None else len(flat))
        flat += [] if text is None else array_elements(text) or []
    offsets.append(len(flat))
    values = typed_values(pa.array(flat, pa.string()), held.element)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
