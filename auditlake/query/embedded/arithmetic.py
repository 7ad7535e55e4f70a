"""Arithmetic of Spark SQL in DuckDB: the type and the digits of every result are Spark's.

DuckDB's own arithmetic of decimals has other types, and its sums may wrap around. So quotients and averages of decimals
are computed in whole numbers, in units of the result's last digit, and so are products that Spark adjusts to 38 digits.
A sum or a remainder that Spark would adjust is left to Spark; a sum that could overflow in some order of the rows is an
error. Pure.

Authority: org.apache.spark.sql.catalyst.analysis.DecimalPrecisionTypeCoercion; Spark's Sum.scala and Average.scala
"""

from auditlake.query.embedded.cells import NotEmbedded, SparkCell, as_kind
from auditlake.query.embedded.spark_types import INTEGRAL, decimal_kind, is_decimal, precision_and_scale, widest
from auditlake.values.types import MOST_DIGITS

BIGINT_MAX = 2**63 - 1
_EXACT_DOUBLE = 2**53
_SAFE_DIGITS = MOST_DIGITS - 10
"""The type of a sum has ten digits more, so sums of decimals of so many digits cannot overflow."""
_LEAST_SCALE = 6
_SHORT_DIGITS = 18


def result_type(sign: str, left: SparkCell, right: SparkCell) -> tuple[str, tuple[str, str]]:
    """Return the type of an arithmetic expression, and those to which its operands are cast."""
    one, other = left.kind, right.kind
    if one in INTEGRAL and other in INTEGRAL:
        kind = "double" if sign == "/" else max(one, other, key=INTEGRAL.index)
        return kind, (kind, kind)
    if sign != "%" and "double" in {one, other} and {one, other} <= {"double", *INTEGRAL}:
        return "double", ("double", "double")
    parts = _decimal_parts(left), _decimal_parts(right)
    if sign in "+-*" and (is_decimal(one) or is_decimal(other)) and parts[0] and parts[1]:
        result = _decimal_result(sign, parts[0], parts[1])
        if result is not None and sign in "+-":
            return result, (result, result)
        if result is not None:
            return result, (decimal_kind(*parts[0]) or result, decimal_kind(*parts[1]) or result)
    raise NotEmbedded(f"{one} {sign} {other}")


def _decimal_parts(cell: SparkCell) -> tuple[int, int] | None:
    """Return the precision and scale of an operand of decimal arithmetic; a literal has those of its digits."""
    return (len(str(abs(cell.number))), 0) if cell.number is not None else precision_and_scale(cell.kind)


def _decimal_result(sign: str, left: tuple[int, int], right: tuple[int, int]) -> str | None:
    if sign == "*":
        return decimal_kind(left[0] + right[0] + 1, left[1] + right[1])
    return widest(left, right, more=1)


def divided(left: SparkCell, right: SparkCell) -> SparkCell:
    """Divide decimals in whole numbers of the result's last digit, rounded half up.

    Spark rounds to 39 digits first, which changes nothing: with a divisor of so few digits no quotient is so near to a
    half.
    """
    one, other = _decimal_parts(left), _decimal_parts(right)
    if one is None or other is None:
        raise NotEmbedded(f"{left.kind} / {right.kind}")
    scale = max(6, one[1] + other[0] + 1)
    precision, scale = _adjusted(one[0] - one[1] + other[1] + scale, scale)
    shift = scale + other[1] - one[1]
    if shift < 0 or shift > MOST_DIGITS:
        raise NotEmbedded(f"{left.kind} / {right.kind}")
    dividend, divisor = f"({_units(left, one)} * {10**shift}::hugeint)", _units(right, other)
    checked = f"case when {divisor} = 0 then error('division by zero')"
    if scale + other[0] > MOST_DIGITS:
        checked += f" when abs({divisor}) >= {10 ** (MOST_DIGITS - scale)}::hugeint then error('not exact')"
    size, by = f"abs({dividend})", f"({checked} else abs({divisor}) end)"
    rounded = f"({size} // {by} + cast(2 * ({size} % {by}) >= {by} as hugeint)) * sign({dividend}) * sign({divisor})"
    return SparkCell(_of_units(rounded, precision, scale), f"decimal({precision},{scale})")


def is_adjusted(left: SparkCell, right: SparkCell) -> bool:
    """Return whether Spark adjusts the digits of a product of these decimals."""
    one, other = _decimal_parts(left), _decimal_parts(right)
    of_decimals = is_decimal(left.kind) or is_decimal(right.kind)
    return of_decimals and one is not None and other is not None and one[0] + other[0] >= MOST_DIGITS


def product(left: SparkCell, right: SparkCell) -> SparkCell:
    """Multiply decimals whose product may have more than 38 digits, in whole numbers, and round it as Spark adjusts it.

    Spark rounds to 39 digits first, which no whole number here has; a larger product is an error.
    """
    one, other = _decimal_parts(left), _decimal_parts(right)
    if one is None or other is None:
        raise NotEmbedded(f"{left.kind} * {right.kind}")
    exact = one[1] + other[1]
    precision, scale = _adjusted(one[0] + other[0] + 1, exact)
    units, by = f"({_units(left, one)} * {_units(right, other)})", 10 ** (exact - scale)
    if exact > MOST_DIGITS:
        raise NotEmbedded(f"{left.kind} * {right.kind}")
    rounded = units if by == 1 else f"(((abs({units}) + {by // 2}) // {by}::hugeint) * sign({units}))"
    return SparkCell(_of_units(rounded, precision, scale), f"decimal({precision},{scale})")


def _adjusted(precision: int, scale: int) -> tuple[int, int]:
    """Return precision and scale of a result as Spark adjusts them if it has more than 38 digits."""
    if precision <= MOST_DIGITS:
        return precision, scale
    return MOST_DIGITS, max(MOST_DIGITS - (precision - scale), min(scale, _LEAST_SCALE))


def _units(cell: SparkCell, parts: tuple[int, int]) -> str:
    """Return a decimal or an integer in units of its last digit."""
    if not is_decimal(cell.kind):
        return f"cast({cell.sql} as hugeint)"
    # DuckDB gives the product 18 digits if no factor has more.
    wide = f"cast({cell.sql} as decimal({MOST_DIGITS},{parts[1]}))" if sum(parts) >= _SHORT_DIGITS else cell.sql
    return f"cast({wide} * cast({10 ** parts[1]} as decimal({parts[1] + 1},0)) as hugeint)"


def _of_units(units: str, precision: int, scale: int) -> str:
    """Return the decimal with this number of units of its last digit; an error if it has too many digits."""
    unit = f"cast('0.{'1'.rjust(scale, '0')}' as decimal({scale},{scale}))"
    return f"cast(cast({units} as decimal({precision},0)) * {unit} as decimal({precision},{scale}))"


def sum_of(cell: SparkCell, condition: str) -> tuple[str, str]:
    """Sum in whole numbers; if some order of the rows could overflow, as Spark adds them, it is an error."""
    if cell.kind in INTEGRAL:
        text = as_kind(cell, cell.kind)
        total, size = f"sum({text}){condition}", f"sum(abs(cast({text} as hugeint))){condition}"
        overflow = f"{size} > {BIGINT_MAX}" if cell.kind == "bigint" else "false"
        return f"cast({_unless(overflow, total)} as bigint)", "bigint"
    parts = precision_and_scale(cell.kind)
    if parts is None:
        raise NotEmbedded(f"SUM of {cell.kind}")
    kind = f"decimal({min(MOST_DIGITS, parts[0] + 10)},{parts[1]})"
    overflow = _may_overflow(cell.sql, condition, MOST_DIGITS - parts[1]) if parts[0] > _SAFE_DIGITS else "false"
    return f"cast({_unless(overflow, f'sum({cell.sql}){condition}')} as {kind})", kind


def _may_overflow(decimals: str, condition: str, digits: int) -> str:
    """Return SQL for whether a sum of decimals may have more digits before its point, in some order of the rows.

    DuckDB's own sums of decimals may wrap around without an error (1.5.5). That of floats cannot, and the limit is a
    tenth lower, so its inexactness does not matter.
    """
    return f"sum(abs(cast({decimals} as double))){condition} > 9e{digits - 1}"


def _unless(overflow: str, value: str) -> str:
    return value if overflow == "false" else f"case when {overflow} then error('overflow') else {value} end"


def average_of(cell: SparkCell, condition: str) -> tuple[str, str]:
    """Average as Spark does: integers as doubles, an error if the sum is not exact; decimals with four more digits."""
    if cell.kind in INTEGRAL:
        total = f"sum({as_kind(cell, 'bigint')}){condition}"
        size = f"sum(abs(cast({cell.sql} as hugeint))){condition}"
        count = f"count({cell.sql}){condition}"
        exact = f"cast({total} as double) / nullif({count}, 0)"
        return f"case when {size} > {_EXACT_DOUBLE} then error('not exact') else {exact} end", "double"
    if not is_decimal(cell.kind):
        raise NotEmbedded(f"AVG of {cell.kind}")
    return _decimal_average(cell, condition)


def _decimal_average(cell: SparkCell, condition: str) -> tuple[str, str]:
    """Divide whole numbers: the sum in units of the last digit of the result, rounded half up."""
    precision, scale = precision_and_scale(cell.kind) or (0, 0)
    digits, behind = precision + 4, scale + 4
    if digits > MOST_DIGITS:
        raise NotEmbedded(f"AVG of {cell.kind}")
    units = _units(cell, (precision, scale))
    total, count = f"sum({units}){condition}", f"count({cell.sql}){condition}"
    rounded = f"((abs({total}) * 20000 + {count}) // nullif(2 * {count}, 0)) * sign({total})"
    overflow = _may_overflow(units, condition, MOST_DIGITS) if precision > _SAFE_DIGITS else "false"
    return _unless(overflow, _of_units(rounded, digits, behind)), f"decimal({digits},{behind})"
