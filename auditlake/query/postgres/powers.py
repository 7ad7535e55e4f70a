"""exp, ln, log and power of numeric with PostgreSQL's scales, on the texts of values. Pure.

PostgreSQL computes with eight digits more than it shows, so that its last digit is rounded right unless the value is
very near to the middle between two numbers. Here it is computed with more digits, and such a value is `Unsettled`.

Authority: src/backend/utils/adt/numeric.c, `numeric_exp`, `numeric_ln`, `log_var`, `power_var`, `power_var_int`,
`estimate_ln_dweight`; REL_18
"""

import math
from decimal import ROUND_HALF_UP, Context, Decimal

from auditlake.query.postgres.numbers import DIGITS, read_decimal, scale_of
from auditlake.values.numeric_text import Failed, TooManyDigits, decimal_text

_MIN_SIGNIFICANT, _MAX_SCALE, _LOG_E = 16, 1000, 0.434294481903252
_NBASE, _NBASE_DIGITS, _DIGITS_OF_DOUBLE = 10_000, 4, 16
_MOST_LN, _MOST_LN_OF_POWER, _GUARD = 6000, 6020, 30
_MOST_INT4 = (1 << 31) - 1
_DOUBT = Decimal("1e-7")
"""How much of the last digit one digit of a result, or a unit of the logarithm of a power, may cost."""
_ONE = Decimal(1)
_OVERFLOW = "value overflows numeric format"


class Unsettled(ValueError):
    """A result whose last digit depends on how PostgreSQL rounds in between."""


def exp_of(text: str) -> str:
    """`exp`; raises Failed, NotFinite, Unsettled."""
    value = read_decimal(text)
    weight = int(max(-2000.0, min(2000.0, float(value) * _LOG_E)))
    scale = _scale(weight, value)
    if abs(value) >= _MOST_LN:
        if value > 0:
            raise Failed(_OVERFLOW)
        return _shown(Decimal(0), scale)
    rounded = _context(DIGITS).plus(value)  # exp takes more than linear time, and nothing interrupts it
    return _shown(_context(scale + abs(int(float(value) * _LOG_E))).exp(rounded), scale)


def ln_of(text: str) -> str:
    """`ln`; raises as `exp_of`."""
    value = _positive(text)
    scale = _scale(_ln_weight(value), value)
    return _shown(_context(scale).ln(value), scale)


def log10(text: str) -> str:
    """`log` to the base 10; raises as `exp_of`."""
    return log_to("10", text)


def log_to(base_text: str, text: str) -> str:
    """`log` of a number to a base; raises as `exp_of`."""
    read_decimal(text)  # of NaN, PostgreSQL has a logarithm to every base
    base, value = _positive(base_text), _positive(text)
    if base == 1:
        raise Failed("division by zero")
    scale = _scale(_ln_weight(value) - _ln_weight(base), base, value)
    context = _context(scale)
    return _shown(context.divide(context.ln(value), context.ln(base)), scale)


def power_of(base_text: str, text: str) -> str:
    """`power`; raises as `exp_of`."""
    base, exponent = read_decimal(base_text), read_decimal(text)
    is_whole = exponent == exponent.to_integral_value()
    if not base and exponent < 0:
        raise Failed("zero raised to a negative power is undefined")
    if base < 0 and not is_whole:
        raise Failed("a negative number raised to a non-integer power yields a complex result")
    if is_whole and abs(exponent) <= _MOST_INT4:
        return _whole_power(base, exponent)
    if base < 0:
        raise Unsettled
    if not base:
        return _shown(base, _MIN_SIGNIFICANT)
    near = max(8 - _ln_weight(base), 0)
    product = _quantized(_quantized(_context(near).ln(base), near) * exponent, near)
    if abs(product) > _MOST_LN_OF_POWER:
        if product > 0:
            raise Failed(_OVERFLOW)
        return _shown(Decimal(0), _MAX_SCALE)
    weight = int(float(product) * _LOG_E)
    scale = _scale(weight, base, exponent)
    context = _context(scale + abs(weight))
    return _shown(context.exp(context.multiply(context.ln(base), exponent)), scale, int(abs(product)))


def _whole_power(base: Decimal, exponent: Decimal) -> str:
    weight = 0.0
    if base:
        first, shift = _leading_digits(base, _DIGITS_OF_DOUBLE // _NBASE_DIGITS)
        weight = int(exponent) * (math.log10(float(first)) + shift)
    if weight > DIGITS:
        raise TooManyDigits(f"a number has more than {DIGITS:,} digits")
    scale = _scale(int(max(weight, -2000.0)), base, exponent)
    if not exponent:
        return _shown(_ONE, scale)
    context = _context(scale + abs(int(max(weight, -2000.0))) + len(str(abs(int(exponent)))))
    return _shown(context.power(base, int(exponent)), scale)


def _positive(text: str) -> Decimal:
    value = read_decimal(text)
    if value <= 0:
        raise Failed(f"cannot take logarithm of {'a negative number' if value else 'zero'}")
    return value


def _scale(weight: int, *given: Decimal) -> int:
    return min(max(_MIN_SIGNIFICANT - weight, *map(scale_of, given), 0), _MAX_SCALE)


def _ln_weight(value: Decimal) -> int:
    """Estimate the decimal weight of a logarithm, as PostgreSQL does."""
    if Decimal("0.9") <= value <= Decimal("1.1"):
        rest = abs(value - 1)
        if not rest:
            return 0
        first, shift = _leading_digits(rest, 1)
        return shift + int(math.log10(first))
    first, shift = _leading_digits(value, 2)
    return int(math.log10(abs(math.log(float(first)) + shift * 2.302585092994046)))


def _leading_digits(value: Decimal, most: int) -> tuple[int, int]:
    """Return the first digits of a number in base 10,000, at most so many, and their decimal weight."""
    weight = value.adjusted() // _NBASE_DIGITS
    found, rest = 0, abs(value).scaleb(-weight * _NBASE_DIGITS, _context(DIGITS))
    for place in range(most):
        digit = int(rest)
        found, rest = found * _NBASE + digit, (rest - digit).scaleb(_NBASE_DIGITS)
        if not rest:
            return found, (weight - place) * _NBASE_DIGITS
    return found, (weight - most + 1) * _NBASE_DIGITS


def _context(digits: int) -> Context:
    return Context(min(digits + _GUARD, DIGITS), Emin=-99999, Emax=99999, rounding=ROUND_HALF_UP)


def _quantized(value: Decimal, scale: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _context(DIGITS))


def _shown(value: Decimal, scale: int, more: int = 0) -> str:
    found = _quantized(value, scale)
    distance = abs(_context(DIGITS).subtract(value, found)).scaleb(scale)
    digits = max(value.adjusted() + 1 + scale, 0)
    if value and abs(distance - Decimal("0.5")) < (digits + 10 + more) * _DOUBT:
        raise Unsettled
    return decimal_text(found)
