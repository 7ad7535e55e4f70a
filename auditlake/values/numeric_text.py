"""PostgreSQL's text of a `numeric`, and the texts that it reads as a finite one. Pure."""

import re
from decimal import Decimal

_NUMBER = re.compile(r"\s*[+-]?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?\s*", re.ASCII)


class Failed(ValueError):
    """What PostgreSQL refuses to read or to compute; the message does not quote the value."""


def read_number(text: str) -> Decimal:
    """Read a finite number; raises Failed."""
    if not _NUMBER.fullmatch(text):
        raise Failed("invalid input syntax for type numeric")
    return Decimal(text.strip())


def decimal_text(value: Decimal) -> str:
    """Return PostgreSQL's text of a number: no exponent, and no sign of 0."""
    text = f"{value:f}"
    return text[1:] if text.startswith("-") and not value else text
