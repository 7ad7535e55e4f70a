"""Values of a row as text, exactly: for CSV and tables, and as JSON. Pure.

Decimals and integers keep every digit; floats are written with as many as tell them apart.
"""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Row


class Json(str):
    """A value that is JSON text already."""

    __slots__ = ()


def plain_text(value: Any) -> str:  # noqa: ANN401, PLR0911 - any value of a row, one line per type
    """Write a value that is not NULL."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return _float(value)
        case Decimal():
            return f"{value:f}"
        case datetime():
            return _time(value)
        case bytes() | bytearray():
            return "\\x" + value.hex()
        case list() | tuple() | Mapping():
            return json_text(value)
        case _:
            return str(value)


def json_text(value: Any) -> str:  # noqa: ANN401, PLR0911 - any value of a row, one line per type
    """Write a value as JSON; JSON knows no NaN and no infinity, so those become texts."""
    match value:
        case None:
            return "null"
        case Json() | bool() | Decimal() | int():
            return plain_text(value)
        case float() if math.isfinite(value):
            return plain_text(value)
        case Row():
            return json_text(value.asDict(recursive=False))
        case Mapping():
            entries = (f"{json_text(plain_text(name))}: {json_text(item)}" for name, item in value.items())
            return "{" + ", ".join(entries) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(json_text, value)) + "]"
        case _:
            return json.dumps(plain_text(value), ensure_ascii=False)


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _time(value: datetime) -> str:
    return value.isoformat() if value.tzinfo is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")
