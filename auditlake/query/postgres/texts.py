"""PostgreSQL's texts of intervals and bytes, and local times. Pure.

Authority: src/interfaces/ecpg/pgtypeslib/interval.c, `EncodeInterval` in the style `postgres`
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from auditlake.query.postgres.conversions import NO_YEAR
from auditlake.values.numeric_text import Failed

_HOUR, _MINUTE, _SECOND = 3_600_000_000, 60_000_000, 1_000_000


def at_zone(at: datetime, zone: str) -> datetime:
    """Return the local time of a time in UTC; raises Failed if its year is not between 1 and 9999."""
    try:
        return at.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    except OverflowError:
        raise Failed(NO_YEAR) from None


def of_utf8(content: bytes) -> str:
    """Return the text of bytes in UTF-8; raises Failed."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise Failed("invalid byte sequence for encoding UTF8")
    return text


def reversed_text(text: str) -> str:
    """Return the characters in the opposite order: code points, where DuckDB's function keeps what looks like one."""
    return text[::-1]


def interval_text(months: int, days: int, micros: int) -> str:
    """Return the text of an interval."""
    years, rest = int(months / 12), months - 12 * int(months / 12)
    parts = []
    negative = False
    for count, unit in ((years, "year"), (rest, "mon"), (days, "day")):
        if count:
            sign = "+" if negative and count > 0 else ""
            parts.append(f"{sign}{count} {unit}{'' if count == 1 else 's'}")
            negative = count < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if negative else ""
        size = abs(micros)
        fraction = f".{size % _SECOND:06d}".rstrip("0").rstrip(".")
        clock = f"{size // _HOUR:02d}:{size % _HOUR // _MINUTE:02d}:{size % _MINUTE // _SECOND:02d}{fraction}"
        parts.append(f"{sign}{clock}")
    return " ".join(parts)
