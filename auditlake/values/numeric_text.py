"""PostgreSQL's text of a `numeric`, and the texts that it reads as a finite one. Pure."""

import re
from decimal import Decimal

_NUMBER = re.compile(r"\s*[+-]?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?(?P<exponent>\d+))?\s*", re.ASCII)
_LONGEST_EXPONENT = 4


class Failed(ValueError):
    """What PostgreSQL refuses to read or to compute; the message does not quote the value."""


class TooManyDigits(Failed, ArithmeticError):
    """A number that PostgreSQL may read, and that is not read here."""


def read_number(text: str) -> Decimal:
    """Read a finite number; raises Failed."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise Failed("invalid input syntax for type numeric")
    if len(found["exponent"] or "") > _LONGEST_EXPONENT:
        raise TooManyDigits("a number has an exponent of more than four digits")
    return Decimal(text.strip())


def decimal_text(value: Decimal) -> str:
    """Return PostgreSQL's text of a number: no exponent, and no sign of 0."""
    text = f"{value:f}"
    return text[1:] if text.startswith("-") and not value else text
