"""Types of Spark SQL, by their DDL names, and the coercions of its ANSI mode that are known to be exact. Pure.

Every function returns None where Spark's rule is not one of these: the statement then goes to Spark.

Authority: spark.apache.org/docs/4.2.0/sql-ref-ansi-compliance.html, "Type Promotion and Precedence";
org.apache.spark.sql.catalyst.analysis.DecimalPrecisionTypeCoercion
"""

import re

import pyarrow as pa

from auditlake.values.exact_text import arrow_type
from auditlake.values.types import ColumnType, Conversion

VOID = "void"
INTEGRAL = ("smallint", "int", "bigint")
FLOATING = frozenset({"float", "double"})
RAW = "map<string,string>"
MOST_DIGITS = 38

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_DIGITS = {"smallint": 5, "int": 10, "bigint": 20}
_DUCKDB = {
    "boolean": "boolean",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "string": "varchar",
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    RAW: "map(varchar, varchar)",
}
_KINDS = {
    "boolean": Conversion.BOOLEAN,
    "string": Conversion.TEXT,
    "binary": Conversion.BYTEA,
    "date": Conversion.DATE,
    "timestamp": Conversion.TIMESTAMPTZ,
    "timestamp_ntz": Conversion.TIMESTAMP,
    **dict.fromkeys(INTEGRAL, Conversion.INTEGER),
    **dict.fromkeys(FLOATING, Conversion.FLOAT),
}


def decimal(precision: int, scale: int) -> str | None:
    """Return a decimal type; None if it is larger than Spark's largest, where Spark adjusts the scale."""
    return f"decimal({precision},{scale})" if precision <= MOST_DIGITS else None


def precision_and_scale(kind: str) -> tuple[int, int] | None:
    """Return those of a decimal, or of the decimal that an integer type becomes; None for other types."""
    if match := _DECIMAL.fullmatch(kind):
        return int(match[1]), int(match[2])
    return (_DIGITS[kind], 0) if kind in _DIGITS else None


def is_decimal(kind: str) -> bool:
    """Return whether a type is a decimal."""
    return _DECIMAL.fullmatch(kind) is not None


def is_comparable(kind: str) -> bool:
    """Return whether `=` and `<` mean the same on values of this type in both engines."""
    return is_decimal(kind) or (kind in _KINDS and kind != VOID)


def is_groupable(kind: str) -> bool:
    """Return whether equal values look alike: not 0 and -0 of floats."""
    return is_comparable(kind) and kind not in FLOATING


def common(one: str, other: str) -> str | None:
    """Return the type of a CASE or COALESCE, a set operation or a comparison of two types."""
    if other in {one, VOID}:
        return one
    if one == VOID:
        return other
    if one in INTEGRAL and other in INTEGRAL:
        return max(one, other, key=INTEGRAL.index)
    if {one, other} - {"double"} <= set(INTEGRAL):
        return "double"
    left, right = precision_and_scale(one), precision_and_scale(other)
    if left is None or right is None:
        return None
    scale = max(left[1], right[1])
    return decimal(max(left[0] - left[1], right[0] - right[1]) + scale, scale)


def compared(one: str, other: str) -> str | None:
    """Return the type in which two values are compared: of decimals one of 38 digits, rounded behind the point."""
    left, right = precision_and_scale(one), precision_and_scale(other)
    if (kind := common(one, other)) is not None or left is None or right is None:
        return kind
    return f"decimal({MOST_DIGITS},{max(0, MOST_DIGITS - max(left[0] - left[1], right[0] - right[1]))})"


def duckdb_type(kind: str) -> str:
    """Return the name of the same type in DuckDB."""
    if kind.startswith("array<"):
        return f"{duckdb_type(kind[len('array<') : -1])}[]"
    return kind if is_decimal(kind) else _DUCKDB[kind]


def arrow_of(kind: str) -> pa.DataType:
    """Return the Arrow type in which Spark sends values of a type."""
    if kind == RAW:
        return pa.map_(pa.string(), pa.string())
    return arrow_type(_column_type(kind))


def _column_type(kind: str) -> ColumnType:
    """Return the type of a history's column that holds such values."""
    if kind.startswith("array<"):
        return ColumnType(Conversion.ARRAY, kind, _column_type(kind[len("array<") : -1]))
    return ColumnType(Conversion.DECIMAL if is_decimal(kind) else _KINDS[kind], kind)
