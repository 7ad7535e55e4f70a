"""Functions of double precision by those of Python, which are the C library's, as PostgreSQL's are. Pure.

They return the shortest text that reads back equal: DuckDB makes NULL of a NaN that a function in Python returns.

Authority: src/backend/utils/adt/float.c; postgresql.org/docs/current/functions-math.html
"""

import math
from collections.abc import Callable

from auditlake.values.numeric_text import Failed

_DEGREE = math.pi / 180.0
_UNDERFLOW = "value out of range: underflow"


def _checked(function: Callable[..., float]) -> Callable[[float], str]:
    """Return a function of one number that fails as PostgreSQL's does: out of range, or of its domain."""

    def called(value: float) -> str:
        return repr(_result(function, value))

    return called


def _result(function: Callable[..., float], *given: float) -> float:
    try:
        result = function(*given)
    except (ValueError, OverflowError):
        raise Failed("value out of range") from None
    if math.isinf(result) and all(map(math.isfinite, given)):
        raise Failed("value out of range: overflow")
    return result


def power(base: float, exponent: float) -> str:
    """`power` and `^`; raises Failed, also for infinities of which C has a result."""
    if not base and exponent < 0:
        raise Failed("zero raised to a negative power is undefined")
    if base < 0 and math.isfinite(exponent) and not exponent.is_integer():
        raise Failed("a negative number raised to a non-integer power yields a complex result")
    result = _result(math.pow, base, exponent)
    if not result and base and math.isfinite(base) and math.isfinite(exponent):
        raise Failed(_UNDERFLOW)
    return repr(result)


def _exponential(value: float) -> float:
    result = math.exp(value)
    if not result and math.isfinite(value):
        raise Failed(_UNDERFLOW)
    return result


def _radians(value: float) -> float:
    result = value * _DEGREE
    if not result and value:
        raise Failed(_UNDERFLOW)
    return result


ONE_ARGUMENT = {
    **{each.__name__: _checked(each) for each in (math.acos, math.asin, math.atan, math.cbrt)},
    **{each.__name__: _checked(each) for each in (math.cos, math.sin, math.tan)},
    "exp": _checked(_exponential),
    "ln": _checked(math.log),
    "log": _checked(math.log10),
    "degrees": _checked(lambda value: value / _DEGREE),
    "radians": _checked(_radians),
}
"""Functions by PostgreSQL's names."""


def angle(one: float, other: float) -> str:
    """`atan2`."""
    return repr(math.atan2(one, other))
