"""The one table of types: PostgreSQL type and modifier → the type of the column in `history`.

A value travels as PostgreSQL's own text. `column_type()` says which Delta type holds it, and `may_not_fit` whether
some values of the type have no place there; those are NULL in the typed column and exact in `_raw`. A type that is
not listed here is kept as its exact text in a STRING column: never refused, never altered.

Pure; the stages turn a `Kind` into Spark SQL (`apply.typing`) or into Arrow (`snapshot.select`).

Authority: postgresql.org/docs/current/datatype.html; src/include/catalog/pg_type.dat for the OIDs
"""

from dataclasses import dataclass
from enum import Enum

NUMERIC_OID = 1700
_VARHDRSZ = 4
_MAX_PRECISION = 38


class Kind(Enum):
    """How the text of a value becomes a typed value."""

    TEXT = "text"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    BYTEA = "bytea"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """Where values of one PostgreSQL type live; `delta` is a Delta (and Spark DDL) type name."""

    kind: Kind
    delta: str

    @property
    def may_not_fit(self) -> bool:
        """Whether some values have no place in the typed column: NaN, infinities, BC, years past 9999."""
        return self.kind in _PARTIAL


_PARTIAL = frozenset({Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})

TEXT = ColumnType(Kind.TEXT, "string")

_BUILT_IN = {
    16: ColumnType(Kind.BOOLEAN, "boolean"),
    17: ColumnType(Kind.BYTEA, "binary"),
    20: ColumnType(Kind.INTEGER, "bigint"),
    21: ColumnType(Kind.INTEGER, "smallint"),
    23: ColumnType(Kind.INTEGER, "int"),
    26: ColumnType(Kind.INTEGER, "bigint"),  # oid is unsigned 32 bits
    700: ColumnType(Kind.FLOAT, "float"),
    701: ColumnType(Kind.FLOAT, "double"),
    1082: ColumnType(Kind.DATE, "date"),
    1114: ColumnType(Kind.TIMESTAMP, "timestamp_ntz"),
    1184: ColumnType(Kind.TIMESTAMPTZ, "timestamp"),
}


def column_type(type_oid: int, typmod: int) -> ColumnType:
    """Say where a column of this type lives in `history`."""
    if type_oid == NUMERIC_OID:
        return _numeric(typmod)
    return _BUILT_IN.get(type_oid, TEXT)


def _numeric(typmod: int) -> ColumnType:
    # numeric.c: typmod = ((precision << 16) | (scale & 0x7ff)) + VARHDRSZ; the scale is 11 bits, signed.
    if typmod < _VARHDRSZ:
        return TEXT
    precision = ((typmod - _VARHDRSZ) >> 16) & 0xFFFF
    scale = (((typmod - _VARHDRSZ) & 0x7FF) ^ 1024) - 1024
    if precision > _MAX_PRECISION or not 0 <= scale <= precision:
        return TEXT
    return ColumnType(Kind.DECIMAL, f"decimal({precision},{scale})")
