"""Arithmetic of numeric with PostgreSQL's scales, on the texts of values, for results whose scale is not fixed. Pure.

Each function takes and returns PostgreSQL's texts; DuckDB calls it for each row (`evaluated`). NULL never gets here.
NaN and infinity are refused: the operators of a statement could not be told from a mistake. So are numbers of more than
`DIGITS` digits: every result is exact, or rounded at the scale that PostgreSQL chooses.

Authority: src/backend/utils/adt/numeric.c, `select_div_scale`, `numeric_round`; REL_18
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_UP,
    Context,
    Decimal,
    InvalidOperation,
    Overflow,
    Rounded,
    localcontext,
)
from fractions import Fraction

from auditlake.cancellation import cancellable_loop
from auditlake.query.postgres.number_syntax import plain
from auditlake.values.numeric_text import Failed, decimal_text, read_number

DIGITS = 4000
_MIN_SIGNIFICANT, _NBASE_DIGITS, _MAX_SCALE = 16, 4, 1000
_CONTEXT = Context(DIGITS, Emin=-99999, Emax=99999, rounding=ROUND_HALF_UP)
_EXACT = Context(DIGITS, Emin=-99999, Emax=99999, traps=[InvalidOperation, Overflow, Rounded])
_KEY_DIGITS = 6
_MAX_SHOWN_SCALE = 16383
_MOST_INT4 = (1 << 31) - 1
_NOT_BLANK = re.compile("[^ ]+")
_NOT_FINITE = frozenset({"nan", "inf", "infinity"})


class NotFinite(ValueError):
    """NaN or an infinity, with which PostgreSQL computes and this module does not."""


def read_decimal(text: str) -> Decimal:
    """Read the text of a value, as a cast of text does; raises Failed, NotFinite."""
    try:
        return read_number(text)
    except Failed:
        if is_not_finite(text):
            raise NotFinite from None
        if (given := plain(text)) is None:
            raise
        return read_number(given)


def whole_text(text: str) -> str:
    """Return the text of an integer in decimal digits; raises Failed."""
    given = plain(text)
    if given is None or not given.lstrip("+-").isdecimal():
        raise Failed("invalid input syntax for type integer")
    return given


def is_not_finite(text: str) -> bool:
    """Return whether a text means NaN or an infinity."""
    return text.strip().lower().lstrip("+-") in _NOT_FINITE


def scale_of(value: Decimal) -> int:
    """Return how many digits after the point a value shows."""
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def numeric(text: str) -> str:
    """Return the canonical text of a number."""
    return decimal_text(read_decimal(text))


def _exact(operation: Callable[[Context, Decimal, Decimal], Decimal]) -> Callable[[str, str], str]:
    def computed(one: str, other: str) -> str:
        return decimal_text(operation(_EXACT, read_decimal(one), read_decimal(other)))

    return computed


add, subtract, multiply = map(_exact, (Context.add, Context.subtract, Context.multiply))


def divide(one: str, other: str) -> str:
    """Divide, rounded to the scale that PostgreSQL chooses."""
    left, right = read_decimal(one), read_decimal(other)
    if not right:
        raise Failed("division by zero")
    with localcontext(_CONTEXT):
        return decimal_text(rounded_quotient(left, right, _division_scale(left, right)))


def rounded_quotient(left: Decimal, right: Decimal, scale: int) -> Decimal:
    """Return a quotient rounded half away from zero at a scale; exact, because it divides whole numbers."""
    shift = scale + scale_of(right) - scale_of(left)
    top, bottom = _whole(left), _whole(right)
    top, bottom = (top * 10**shift, bottom) if shift >= 0 else (top, bottom * 10**-shift)
    negative = (top < 0) != (bottom < 0)
    units = (2 * abs(top) + abs(bottom)) // (2 * abs(bottom))
    return Decimal(-units if negative else units).scaleb(-scale, _EXACT)


def _whole(value: Decimal) -> int:
    return int(value.scaleb(scale_of(value), _EXACT))


def _division_scale(left: Decimal, right: Decimal) -> int:
    (weight1, first1), (weight2, first2) = _leading(left), _leading(right)
    weight = weight1 - weight2 - (1 if first1 <= first2 else 0)
    scale = max(_MIN_SIGNIFICANT - weight * _NBASE_DIGITS, scale_of(left), scale_of(right), 0)
    return min(scale, _MAX_SCALE)


def _leading(value: Decimal) -> tuple[int, int]:
    """Return weight and value of the first digit in base 10,000."""
    if not value:
        return 0, 0
    weight = value.adjusted() // _NBASE_DIGITS
    return weight, int(abs(value).scaleb(-weight * _NBASE_DIGITS, _CONTEXT))


def root(text: str) -> str:
    """Return the square root, rounded to the scale that PostgreSQL chooses."""
    value = read_decimal(text)
    if value < 0:
        raise Failed("cannot take square root of a negative number")
    weight, _ = _leading(value)
    scale = _MIN_SIGNIFICANT + 1 - (weight + 1) * _NBASE_DIGITS // 2
    scale = min(max(scale, scale_of(value), 0), _MAX_SCALE)
    with localcontext(_CONTEXT):  # one digit more than is shown is enough to round; Decimal.sqrt computes 4,000
        found = Decimal(math.isqrt(int(value.scaleb(2 * scale + 2)))).scaleb(-scale - 1)
        return decimal_text(found.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP))


def remainder(one: str, other: str) -> str:
    """Return the remainder, which has the sign of the first operand."""
    left, right = read_decimal(one), read_decimal(other)
    if not right:
        raise Failed("division by zero")
    scale = max(scale_of(left), scale_of(right))
    with localcontext(_CONTEXT):
        return decimal_text((left % right).quantize(Decimal(1).scaleb(-scale)))


def quotient(one: str, other: str) -> str:
    """Return the whole part of a quotient."""
    left, right = read_decimal(one), read_decimal(other)
    if not right:
        raise Failed("division by zero")
    with localcontext(_CONTEXT):
        return decimal_text(left // right)


def without_zeros(text: str) -> str:
    """Return a number without zeros at the end of its fraction."""
    value = numeric(text)
    return value.rstrip("0").rstrip(".") if "." in value else value


def bucket(text: str, low: str, high: str, count: int) -> int:
    """`width_bucket`; raises Failed."""
    value, start, end = read_decimal(text), read_decimal(low), read_decimal(high)
    if count <= 0 or start == end:
        raise Failed("count must be greater than zero" if count <= 0 else "lower bound cannot equal upper bound")
    sign = 1 if start < end else -1
    if (value - start) * sign < 0:
        return 0
    if (value - end) * sign >= 0:
        if count == _MOST_INT4:
            raise Failed("integer out of range")
        return count + 1
    return math.floor(Fraction(value - start) * count / Fraction(end - start)) + 1


def compare(one: str, other: str) -> int:
    """Return -1, 0 or 1."""
    left, right = read_decimal(one), read_decimal(other)
    return (left > right) - (left < right)


def greatest(texts: list[str | None]) -> str | None:
    """Return the first of the largest numbers; None if there is none."""
    return max((each for each in texts if each is not None), key=read_decimal, default=None)


def least(texts: list[str | None]) -> str | None:
    """Return the first of the smallest numbers; None if there is none."""
    return min((each for each in texts if each is not None), key=read_decimal, default=None)


def _quantized(text: str, scale: int, rounding: str) -> str:
    value, scale = read_decimal(text), min(max(scale, -DIGITS - 1), _MAX_SHOWN_SCALE)
    with localcontext(_CONTEXT):
        result = value.quantize(Decimal(1).scaleb(-scale), rounding)
        return decimal_text(result.quantize(Decimal(1)) if scale < 0 else result)


def rounded(text: str, scale: int) -> str:
    """Round half away from zero; the result has this scale, none if it is negative."""
    return _quantized(text, scale, ROUND_HALF_UP)


def truncated(text: str, scale: int) -> str:
    """Cut digits off; the result has this scale, none if it is negative."""
    return _quantized(text, scale, ROUND_DOWN)


def floored(text: str) -> str:
    """Return the largest whole number that is not greater."""
    return _quantized(text, 0, ROUND_FLOOR)


def raised(text: str) -> str:
    """Return the smallest whole number that is not smaller."""
    return _quantized(text, 0, ROUND_CEILING)


def opposite(text: str) -> str:
    """Change the sign."""
    return decimal_text(_EXACT.minus(read_decimal(text)))


def absolute(text: str) -> str:
    """Return the value without its sign."""
    return decimal_text(_EXACT.abs(read_decimal(text)))


def total(texts: str) -> str:
    """Return the sum of numbers, which one text has, separated by blanks."""
    with localcontext(_EXACT):
        return decimal_text(sum(_listed(texts), Decimal(0)))


def variance(texts: str, is_sample: int) -> str | None:
    """Return the variance of such numbers; None if there are too few."""
    found = _variance(_listed(texts), is_sample)
    return None if found is None else decimal_text(found[0])


def deviation(texts: str, is_sample: int) -> str | None:
    """Return the standard deviation of such numbers, at the scale of their variance; None if there are too few."""
    found = _variance(_listed(texts), is_sample)
    if found is None:
        return None
    value, scale = found
    with localcontext(_CONTEXT):
        return decimal_text(value if not value else value.sqrt().quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP))


def _listed(texts: str) -> Iterator[Decimal]:
    """Read numbers one by one: a list of millions takes a hundred bytes for each."""
    return (read_decimal(found[0]) for found in cancellable_loop(_NOT_BLANK.finditer(texts)))


def _variance(values: Iterable[Decimal], is_sample: int) -> tuple[Decimal, int] | None:
    """Return a variance and its scale, as `numeric_stddev_internal` computes them."""
    count, total, squares = 0, Decimal(0), Decimal(0)
    with localcontext(_EXACT):
        for each in values:
            count, total, squares = count + 1, total + each, squares + each * each
        if count <= is_sample:
            return None
        top, bottom = count * squares - total * total, Decimal(count * (count - is_sample))
        if top <= 0:
            return Decimal(0), 0
        scale = _division_scale(top, bottom)
        return rounded_quotient(top, bottom, scale), scale


def number_key(text: str) -> str:
    """Return a text that sorts as the number does: sign, magnitude, digits, complemented below zero."""
    value = read_decimal(text)
    if not value:
        return "1"
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
    magnitude = f"{value.adjusted() + 500_000:0{_KEY_DIGITS}d}"
    if value > 0:
        return f"2{magnitude}{digits}"
    complement = str.maketrans("0123456789", "9876543210")
    return f"0{(magnitude + digits).translate(complement)}~"


def of_double(value: float) -> str:
    """Return the numeric of a double precision: of its 15 leading digits."""
    return _of_float(value, 15)


def of_real(value: float) -> str:
    """Return the numeric of a real: of its 6 leading digits."""
    return _of_float(value, 6)


def _of_float(value: float, digits: int) -> str:
    if not math.isfinite(value):
        raise NotFinite
    return decimal_text(Decimal(f"{value:.{digits}g}"))
