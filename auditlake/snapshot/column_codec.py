"""Column codec of the snapshot: SQL that reads a column exactly, and conversion to the column of `history`. Pure.

Numbers, strings and times travel in PostgreSQL's binary form; all other types as the text of their output function.
Three kinds of values do not fit their typed column, become NULL there, and exact text in `_raw`, as they do from the
stream (`apply.typed_values`):
  1. Dates and timestamps at infinity, BC, or after 9999. The binary reader converts them to the Unix epoch without an
     overflow check, which wraps around, but always to a value outside the years 1 to 9999. `OutOfRange` is raised, and
     the range is read again with `guarded=True`: the server then sends NULL and, beside it, the exact text.
  2. NaN and infinities of numeric(p,s), which travels as text.
  3. Arrays that have several dimensions, do not start at 1, or have an element that its type cannot hold. Arrays travel
     as text and are parsed here.

Authority: postgresql.org/docs/current/functions-string.html, format(): %s calls the type's output function
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.errors import InvariantBroken
from auditlake.relation import Column, TableName
from auditlake.sql_names import standard_identifier
from auditlake.values.escapes import escape_column
from auditlake.values.exact_text import array_elements, arrow_type, outside, raw_map, typed_values
from auditlake.values.masks import ColumnMask
from auditlake.values.types import (
    DATE_LENGTH,
    NOT_FINITE,
    OID_OID,
    STRING_OIDS,
    YEAR_LENGTH,
    ColumnType,
    Conversion,
    column_type,
)

_AS_TEXT = frozenset({Conversion.TEXT, Conversion.ARRAY})
_TIMES = frozenset({Conversion.DATE, Conversion.TIMESTAMP, Conversion.TIMESTAMPTZ})
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_US = 86_400_000_000

_Texts = list[str | None]


class OutOfRange(Exception):
    """A date or timestamp is outside the years 1 to 9999: read the range again, guarded."""


@dataclass(frozen=True, slots=True)
class SelectList:
    """The select list of one table; `masks` are by the names of columns."""

    columns: tuple[Column, ...]
    guarded: bool = False
    masks: Mapping[str, ColumnMask] = field(default_factory=dict)

    def sql(self, name: TableName, condition: str) -> str:
        """Return the query for the table's own rows, without those of inheriting tables."""
        listed = [_typed(column, guarded=self.guarded) for column in self.columns]
        if guarded := self._guarded_columns():
            # One array, because a target list has at most 1664 entries, and a table up to 1600 columns.
            listed.append(f"array[{', '.join(map(_exact, guarded))}]")
        table = standard_identifier(*name)
        return f"select {', '.join(listed)} from only {table}{condition}"

    def _guarded_columns(self) -> list[Column]:
        return [c for c in self.columns if _type(c).kind in _TIMES] if self.guarded else []

    def convert(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], pa.Array]:
        """Convert a batch of the query to the typed columns and `_raw`, masked; raises OutOfRange, unless guarded."""
        arrays, raw = [], dict[str, pa.Array]()
        for column, array in zip(self.columns, batch.columns, strict=False):
            stored = storage_of(array)
            checked = escape_column(stored) if _type(column).kind in _AS_TEXT else stored
            typed, exact = _convert(_type(column), checked, guarded=self.guarded)
            if (mask := self.masks.get(column.name)) is not None:
                typed, exact = mask.typed(typed), None
            arrays.append(typed)
            if exact is not None:
                raw[column.stored] = exact
        for place, column in enumerate(self._guarded_columns()):
            if column.name in self.masks:
                continue
            raw[column.stored] = pc.list_element(storage_of(batch.column(len(self.columns))), place).cast(pa.string())
        in_order = {column.stored: raw[column.stored] for column in self.columns if column.stored in raw}
        return arrays, raw_map(in_order, batch.num_rows)


def convert_texts(
    columns: Sequence[Column], masks: Mapping[str, ColumnMask], batch: pa.RecordBatch
) -> tuple[list[pa.Array], pa.Array]:
    """Convert texts of the output functions to the typed columns and `_raw`, masked; the years need no second try."""
    arrays, raw = [], dict[str, pa.Array]()
    for column, array in zip(columns, batch.columns, strict=True):
        held, texts = _type(column), escape_column(array)
        typed = typed_values(texts, held)
        if (mask := masks.get(column.name)) is not None:
            typed = mask.typed(typed)
        elif held.may_not_fit:
            raw[column.stored] = outside(texts, held)
        arrays.append(typed)
    return arrays, raw_map(raw, batch.num_rows)


def _type(column: Column) -> ColumnType:
    return column_type(*column.type)


def _typed(column: Column, *, guarded: bool) -> str:
    name, kind = standard_identifier(column.name), _type(column).kind
    if kind is Conversion.DECIMAL:
        return f"{name}::pg_catalog.text"
    if kind in _TIMES and guarded:
        return f"case when {_in_range(name, kind)} then {name} end"
    if kind not in _AS_TEXT:
        return f"{name}::pg_catalog.int8" if column.type_oid == OID_OID else name
    if column.type_oid in STRING_OIDS:
        return name
    return output_text(name)


def output_text(expression: str) -> str:
    """Return SQL for the text from the type's output function, NULL for NULL."""
    # `is null` is true for a composite of NULLs, which is not NULL; format() returns '' for NULL.
    return f"case when pg_catalog.num_nulls({expression}) = 0 then pg_catalog.format('%s', {expression}) end"


def _exact(column: Column) -> str:
    name = standard_identifier(column.name)
    return f"case when not {_in_range(name, _type(column).kind)} then {name}::pg_catalog.text end"


def _in_range(name: str, kind: Conversion) -> str:
    if kind is Conversion.DATE:
        return f"({name} between date '0001-01-01' and date '9999-12-31')"
    type_name = "timestamp" if kind is Conversion.TIMESTAMP else "timestamptz"
    first, end = (f"{type_name} '{day} 00:00:00{'+00' if type_name == 'timestamptz' else ''}'" for day in _YEARS)
    return f"({name} >= {first} and {name} < {end})"


_YEARS = ("0001-01-01", "10000-01-01")


def storage_of(array: pa.Array) -> pa.Array:
    """Return the texts of a type without an Arrow equivalent, for which ADBC has an extension type; else `array`."""
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array


def _convert(target: ColumnType, array: pa.Array, *, guarded: bool) -> tuple[pa.Array, pa.Array | None]:
    if target.kind is Conversion.DECIMAL:
        return _decimal(array.cast(pa.string()), arrow_type(target))
    if target.kind is Conversion.ARRAY:
        return read_arrays(array.cast(pa.string()), target)
    typed = array.cast(arrow_type(target))
    if target.kind in _TIMES and not guarded:
        _check_years(typed)
    return typed, None


def _check_years(array: pa.Array) -> None:
    days = array.type == pa.date32()
    number = array.cast(pa.int32()) if days else array.cast(pa.int64())
    low, high = pc.min_max(number).values()
    first, end = (_FIRST_DAY, _LAST_DAY + 1) if days else (_FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US)
    if low.is_valid and (low.as_py() < first or high.as_py() >= end):
        raise OutOfRange


def _decimal(text: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    try:
        return text.cast(target), None
    except pa.ArrowInvalid:
        odd = pc.is_in(text, pa.array(NOT_FINITE))
    if not pc.any(odd).as_py():
        raise InvariantBroken(f"a numeric value does not fit the column's own type {target}")
    absent = pa.scalar(None, pa.string())
    return pc.if_else(odd, absent, text).cast(target), pc.if_else(odd, text, absent)


def read_arrays(texts: pa.Array, column: ColumnType) -> tuple[pa.Array, pa.Array | None]:
    """Parse a column of array texts: return the typed column and, if any do not fit, their texts."""
    assert column.element is not None  # noqa: S101 - its kind is ARRAY
    rows = [None if text is None else _flat(text, column.element) for text in texts.to_pylist()]
    offsets, flat = _flattened(rows)
    typed = pa.ListArray.from_arrays(offsets, _typed_elements(flat, column.element))
    odd = [text if row is None else None for text, row in zip(texts.to_pylist(), rows, strict=True)]
    return typed.cast(arrow_type(column)), pa.array(odd, pa.string()) if any(odd) else None


def _flat(text: str, element: ColumnType) -> _Texts | None:
    """Return the elements' texts; None if the array or an element does not fit."""
    texts = array_elements(text)
    if texts is None or not element.may_not_fit:
        return texts
    return texts if all(value is None or _fits(value, element) for value in texts) else None


def _fits(text: str, element: ColumnType) -> bool:
    match element.kind:
        case Conversion.DECIMAL:
            return text not in NOT_FINITE
        case Conversion.DATE:
            return len(text) == DATE_LENGTH
        case _:
            return text[YEAR_LENGTH] == "-" and not text.endswith(" BC")


def _flattened(rows: list[_Texts | None]) -> tuple[pa.Array, _Texts]:
    """Return the offsets, NULL for a row that is NULL, and all elements in one list."""
    offsets: list[int | None] = []
    flat: _Texts = []
    for row in rows:
        offsets.append(None if row is None else len(flat))
        flat += row or []
    return pa.array([*offsets, len(flat)], pa.int32()), flat


def _typed_elements(texts: _Texts, element: ColumnType) -> pa.Array:
    read = _READERS.get(element.kind)
    if read is None:
        return pa.array(texts, pa.string()).cast(arrow_type(element))
    return pa.array([None if text is None else read(text) for text in texts], arrow_type(element))


_READERS: dict[Conversion, Callable[[str], object]] = {
    Conversion.BOOLEAN: lambda text: text == "t",
    Conversion.BYTEA: lambda text: bytes.fromhex(text.removeprefix("\\x")),
}
