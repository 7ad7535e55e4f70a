"""Text of floats in PostgreSQL's output format: the shortest decimal that identifies the value. Pure.

Unlike Python, PostgreSQL does not accept a decimal exactly halfway between two floats as either of them, so it prints
1e23 as 9.999999999999999e+22. It switches to an exponent at the same magnitudes as printf's %g.

Authority: postgresql.org/docs/current/datatype-numeric.html, "Floating-Point Types"; src/common/d2s.c, f2s.c
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

_LEAST_EXPONENT = -4


@dataclass(frozen=True, slots=True)
class _Format:
    """A float width: digits that always suffice, least exponent printed as one, magnitudes at which ties are short."""

    digits: int
    greatest_exponent: int
    ties: tuple[float, float]


_DOUBLE = _Format(17, 15, (1e15, 1e42))
_REAL = _Format(9, 6, (1e6, 1e21))


def double_text(value: float) -> str:
    """Return the text of a float8."""
    if not math.isfinite(value):
        return _not_finite(value)
    shortest = repr(value)
    if _DOUBLE.ties[0] <= abs(value) <= _DOUBLE.ties[1]:
        shortest = _off_ties(shortest, value, (math.nextafter(value, -math.inf), math.nextafter(value, math.inf)), 17)
    return _printed(shortest, _DOUBLE)


def real_text(value: float) -> str:
    """Return the text of a float4, passed as the double of the same value."""
    if not math.isfinite(value):
        return _not_finite(value)
    real = np.float32(value)
    shortest = np.format_float_scientific(real, unique=True, trim="-")
    if _REAL.ties[0] <= abs(value) <= _REAL.ties[1]:
        neighbours = (np.nextafter(real, np.float32(-np.inf)), np.nextafter(real, np.float32(np.inf)))
        shortest = _off_ties(shortest, value, (float(neighbours[0]), float(neighbours[1])), 9)
    return _printed(shortest, _REAL)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _off_ties(shortest: str, value: float, neighbours: tuple[float, float], most_digits: int) -> str:
    """Add digits while `shortest` is exactly halfway between the value and a neighbour."""
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
