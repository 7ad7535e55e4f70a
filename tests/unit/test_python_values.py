"""Python values of PostgreSQL's text; expected values by hand."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from auditlake.values.python_values import ExactText, decoder

_NUMERIC_10_2 = ((10 << 16) | 2) + 4


@pytest.mark.parametrize(
    ("type_oid", "text", "value"),
    [
        (16, "t", True),
        (16, "f", False),
        (21, "-32768", -32768),
        (20, "9223372036854775807", 2**63 - 1),
        (26, "4294967295", 2**32 - 1),
        (700, "0.1", 13421773 / 2**27),
        (700, "3.4028235e+38", float(2**128 - 2**104)),
        (701, "0.30000000000000004", 0.1 + 0.2),
        (701, "-Infinity", -math.inf),
        (1700, "1.500", Decimal("1.500")),
        (1700, "Infinity", Decimal("Infinity")),
        (1082, "2026-11-22", date(2026, 11, 22)),
        (1114, "0001-01-01 00:00:00.5", datetime(1, 1, 1, 0, 0, 0, 500_000)),  # noqa: DTZ001 - a timestamp without zone
        (1184, "2026-11-22 14:30:00.123456+00", datetime(2026, 11, 22, 14, 30, 0, 123_456, tzinfo=UTC)),
        (17, "\\xdead00", b"\xde\xad\0"),
        (1007, "{1,NULL,-3}", [1, None, -3]),
        (1231, "{1.50,NULL}", [Decimal("1.50"), None]),
        (1009, '{"a,b",NULL,"NULL"}', ["a,b", None, "NULL"]),
        (3802, '{"price": 1.10}', '{"price": 1.10}'),
        (2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        (1083, "24:00:00", "24:00:00"),
    ],
)
def test_values_are_exact(type_oid: int, text: str, value: Any) -> None:
    """Same value and same type, digits and scale included."""
    found = decoder(type_oid, -1)(text)
    assert (found, type(found), str(found)) == (value, type(value), str(value))


@pytest.mark.parametrize(
    ("type_oid", "text"),
    [
        (1082, "infinity"),
        (1082, "-infinity"),
        (1082, "0044-03-15 BC"),
        (1082, "10000-01-01"),
        (1114, "infinity"),
        (1114, "-infinity"),
        (1114, "0044-03-15 00:00:00 BC"),
        (1184, "0044-03-15 00:00:00+00 BC"),
        (1184, "294276-12-31 23:59:59.999999+00"),
        (1007, "{{1,2},{3,4}}"),
        (1007, "[0:1]={1,2}"),
        (1182, "{2026-11-22,infinity}"),
        (25, "caf\0xe9"),
    ],
)
def test_what_does_not_fit_is_its_exact_text_marked(type_oid: int, text: str) -> None:
    """Never clamped, never None."""
    found = decoder(type_oid, -1)(text)
    assert isinstance(found, ExactText)
    assert (found, repr(found)) == (text, f"ExactText({text!r})")


def test_nan_is_a_number() -> None:
    """In numeric and in floats; a numeric keeps the scale of its text."""
    assert decoder(1700, _NUMERIC_10_2)("NaN").is_nan()
    assert math.isnan(decoder(701, -1)("NaN"))
    assert str(decoder(1700, _NUMERIC_10_2)("-0.10")) == "-0.10"
