"""What to select so that a value arrives exact, and how its Arrow column becomes the column of `history`. Pure.

Numbers, strings and times travel in PostgreSQL's binary form; every other type as the text its output function gives.
Three kinds of values have no place in their typed column:
  - dates and timestamps at infinity, BC or past 9999. The binary reader moves them to our epoch without a check,
    which wraps around, but always to a value outside the years 1 to 9999: `OutOfRange` is raised and the range is
    read again with `guarded=True`, where the server sends NULL and, beside it, the exact text.
  - NaN and infinities of numeric(p,s), which travels as text;
  - arrays that are not flat, or have such values in them (`snapshot.arrays`).
Those become NULL in the typed column and exact text in `_raw`, as they do from the stream (`apply.typing`).

Authority: postgresql.org/docs/current/functions-string.html, format(): %s calls the type's output function
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.errors import InvariantBroken
from auditlake.lake.arrow import arrow_type
from auditlake.relation import Column, TableName
from auditlake.snapshot.arrays import read_arrays
from auditlake.values.types import OID_OID, STRING_OIDS, ColumnType, Kind, column_type

_AS_TEXT = frozenset({Kind.TEXT, Kind.ARRAY})
_TIMES = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_US = 86_400_000_000
_NOT_FINITE = pa.array(["NaN", "Infinity", "-Infinity"])


class OutOfRange(Exception):
    """A date or timestamp lies outside the years 1 to 9999; read the range again, guarded."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The select list of one table."""

    columns: tuple[Column, ...]
    guarded: bool = False

    def sql(self, name: TableName, condition: str) -> str:
        """Return the query for the rows of the table itself, not of those that inherit from it."""
        listed = [_typed(column, guarded=self.guarded) for column in self.columns]
        if guarded := self._guarded_columns():
            # One array, because a target list has 1664 places at most, and a table up to 1600 columns.
            listed.append(f"array[{', '.join(map(_exact, guarded))}]")
        return f"select {', '.join(listed)} from only {identifier(name.schema)}.{identifier(name.table)}{condition}"

    def _guarded_columns(self) -> list[Column]:
        return [c for c in self.columns if _type(c).kind in _TIMES] if self.guarded else []

    def convert(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], pa.Array]:
        """Turn a batch as it was read into the typed columns and `_raw`.

        Raises OutOfRange, unless guarded.
        """
        arrays, raw = [], dict[str, pa.Array]()
        for column, array in zip(self.columns, batch.columns, strict=False):
            typed, exact = _convert(_type(column), _storage(array), guarded=self.guarded)
            arrays.append(typed)
            if exact is not None:
                raw[column.stored] = exact
        for place, column in enumerate(self._guarded_columns()):
            raw[column.stored] = pc.list_element(_storage(batch.column(len(self.columns))), place).cast(pa.string())
        in_order = {column.stored: raw[column.stored] for column in self.columns if column.stored in raw}
        return arrays, raw_map(in_order, batch.num_rows)


def identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _type(column: Column) -> ColumnType:
    return column_type(column.type_oid, column.typmod)


def _typed(column: Column, *, guarded: bool) -> str:
    name, kind = identifier(column.name), _type(column).kind
    if kind is Kind.DECIMAL:
        return f"{name}::pg_catalog.text"
    if kind in _TIMES and guarded:
        return f"case when {_in_range(name, kind)} then {name} end"
    if kind not in _AS_TEXT:
        return f"{name}::pg_catalog.int8" if column.type_oid == OID_OID else name
    if column.type_oid in STRING_OIDS:
        return name
    # A composite of NULLs `is null` without being NULL, and format() gives '' for NULL.
    return f"case when pg_catalog.num_nulls({name}) = 0 then pg_catalog.format('%s', {name}) end"


def _exact(column: Column) -> str:
    name = identifier(column.name)
    return f"case when not {_in_range(name, _type(column).kind)} then {name}::pg_catalog.text end"


def _in_range(name: str, kind: Kind) -> str:
    if kind is Kind.DATE:
        return f"({name} between date '0001-01-01' and date '9999-12-31')"
    type_name = "timestamp" if kind is Kind.TIMESTAMP else "timestamptz"
    first, end = (f"{type_name} '{day} 00:00:00{'+00' if type_name == 'timestamptz' else ''}'" for day in _YEARS)
    return f"({name} >= {first} and {name} < {end})"


_YEARS = ("0001-01-01", "10000-01-01")


def _storage(array: pa.Array) -> pa.Array:
    # ADBC names PostgreSQL types it has no Arrow type for by extension types over their text.
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array


def _convert(target: ColumnType, array: pa.Array, *, guarded: bool) -> tuple[pa.Array, pa.Array | None]:
    if target.kind is Kind.DECIMAL:
        return _decimal(array.cast(pa.string()), arrow_type(target))
    if target.kind is Kind.ARRAY:
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
        odd = pc.is_in(text, _NOT_FINITE)
    if not pc.any(odd).as_py():
        raise InvariantBroken(f"a numeric value does not fit the column's own type {target}")
    absent = pa.scalar(None, pa.string())
    return pc.if_else(odd, absent, text).cast(target), pc.if_else(odd, text, absent)


def raw_map(exact: dict[str, pa.Array], length: int) -> pa.Array:
    """Build `_raw`: per row a map of the columns whose exact text is not NULL; NULL where there are none."""
    map_type = pa.map_(pa.string(), pa.string())
    if not any(array.null_count < length for array in exact.values()):
        return pa.nulls(length, map_type)
    return pa.array(_raw_rows(exact, length), map_type)


def _raw_rows(exact: dict[str, pa.Array], length: int) -> Iterable[Sequence[tuple[str, str]] | None]:
    columns = {name: array.to_pylist() for name, array in exact.items()}
    for i in range(length):
        entries = [(name, values[i]) for name, values in columns.items() if values[i] is not None]
        yield entries or None
