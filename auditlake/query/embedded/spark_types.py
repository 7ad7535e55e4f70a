"""Types of Spark SQL, by their DDL names, and the coercions of its ANSI mode that are known to be exact. Pure.

Every function returns None where Spark's rule is not one of these: the statement then goes to Spark.

Authority: spark.apache.org/docs/4.2.0/sql-ref-ansi-compliance.html, "Type Promotion and Precedence";
org.apache.spark.sql.catalyst.analysis.DecimalPrecisionTypeCoercion
"""

from auditlake.values.types import MOST_DIGITS, digits_of_decimal

VOID = "void"
INTEGRAL = ("smallint", "int", "bigint")
FLOATING = frozenset({"float", "double"})

_DIGITS = {"smallint": 5, "int": 10, "bigint": 20}
_COMPARABLE = frozenset(
    {*INTEGRAL, *FLOATING, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz"},
)


def widest(left: tuple[int, int], right: tuple[int, int], more: int = 0) -> str | None:
    """Return the decimal that holds those of these precisions and scales, with `more` digits before the point."""
    scale = max(left[1], right[1])
    return decimal_kind(max(left[0] - left[1], right[0] - right[1]) + more + scale, scale)


def decimal_kind(precision: int, scale: int) -> str | None:
    """Return a decimal type; None if it is larger than Spark's largest, where Spark adjusts the scale."""
    return f"decimal({precision},{scale})" if precision <= MOST_DIGITS else None


def precision_and_scale(kind: str) -> tuple[int, int] | None:
    """Return those of a decimal, or of the decimal that an integer type becomes; None for other types."""
    return (_DIGITS[kind], 0) if kind in _DIGITS else digits_of_decimal(kind)


def is_decimal(kind: str) -> bool:
    """Return whether a type is a decimal."""
    return digits_of_decimal(kind) is not None


def is_comparable(kind: str) -> bool:
    """Return whether `=` and `<` mean the same on values of this type in both engines."""
    return is_decimal(kind) or kind in _COMPARABLE


def is_groupable(kind: str) -> bool:
    """Return whether equal values look alike: not 0 and -0 of floats."""
    return is_comparable(kind) and kind not in FLOATING


def common_kind(one: str, other: str) -> str | None:
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
    return widest(left, right)


def compared_kind(one: str, other: str) -> str | None:
    """Return the type in which two values are compared: of decimals one of 38 digits, rounded behind the point."""
    left, right = precision_and_scale(one), precision_and_scale(other)
    if (kind := common_kind(one, other)) is not None or left is None or right is None:
        return kind
    return f"decimal({MOST_DIGITS},{max(0, MOST_DIGITS - max(left[0] - left[1], right[0] - right[1]))})"
