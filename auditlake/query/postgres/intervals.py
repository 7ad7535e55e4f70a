"""Texts of intervals: `1 day 02:30:00`, `1-2`, `@ 1 hour ago`, ISO 8601's `P1Y2M`. Pure.

A fraction of a year is whole months; one of a month, a week or a day goes on to days and microseconds, as in
PostgreSQL: a month has 30 days, a day 24 hours.

Authority: src/backend/utils/adt/datetime.c, `DecodeInterval`, `DecodeISO8601Interval`, `AdjustFractDays`
"""

import re
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal

_DAY_US = 86_400_000_000
_Parts = tuple[int, int, int]
"""Months, days and microseconds."""
_UNITS: dict[str, tuple[str, _Parts]] = {
    **dict.fromkeys(("microsecond", "microseconds", "us"), ("s", (0, 0, 1))),
    **dict.fromkeys(("millisecond", "milliseconds", "ms"), ("s", (0, 0, 1000))),
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), ("s", (0, 0, 1_000_000))),
    **dict.fromkeys(("minute", "minutes", "min", "mins", "m"), ("m", (0, 0, 60_000_000))),
    **dict.fromkeys(("hour", "hours", "hr", "hrs", "h"), ("h", (0, 0, 3_600_000_000))),
    **dict.fromkeys(("day", "days", "d"), ("D", (0, 1, 0))),
    **dict.fromkeys(("week", "weeks", "w"), ("W", (0, 7, 0))),
    **dict.fromkeys(("month", "months", "mon", "mons"), ("M", (1, 0, 0))),
    **dict.fromkeys(("year", "years", "yr", "yrs", "y"), ("Y", (12, 0, 0))),
    **dict.fromkeys(("decade", "decades"), ("X", (120, 0, 0))),
    **dict.fromkeys(("century", "centuries"), ("C", (1200, 0, 0))),
}
"""For each word its field, of which a text has one, and its size. PostgreSQL has fields of their own below a second."""
_OF_ISO = {"Y": "year", "M": "month", "W": "week", "D": "day", "TH": "hour", "TM": "minute", "TS": "second"}
_NUMBER = r"(?P<n>[+-]?\d+(\.\d+)?)"
_PART = re.compile(rf"\s*{_NUMBER}\s*(?P<unit>[a-z]+)\s*", re.ASCII | re.IGNORECASE)
_SECONDS = re.compile(rf"\s*{_NUMBER}\s*", re.ASCII)
_CLOCK = re.compile(r"\s*(?P<sign>[+-]?)(?P<h>\d+):(?P<m>\d\d)(:(?P<s>\d\d(\.\d+)?))?\s*", re.ASCII)
_MONTHS = re.compile(r"\s*(?P<sign>[+-]?)(?P<y>\d+)-(?P<m>\d+)\s*", re.ASCII)
_ISO = re.compile(r"P(?=.)(?P<days>([+-]?\d+(\.\d+)?[YMWD])*)(T(?P<clock>([+-]?\d+(\.\d+)?[HMS])+))?", re.ASCII)
_OF_ISO_PART = re.compile(rf"{_NUMBER}(?P<unit>[A-Z])", re.ASCII)
_AROUND = re.compile(r"\s*(@\s*)?(?P<inside>.*?)(?P<ago>\s+ago)?\s*", re.ASCII | re.IGNORECASE | re.DOTALL)


def read_interval(text: str) -> _Parts:
    """Read a text; raises ValueError for one that is not read here, although PostgreSQL may read it."""
    if (iso := _ISO.fullmatch(text)) is not None:
        return _total(_iso_parts(iso))
    around = _AROUND.fullmatch(text)
    if around is None or not around["inside"]:
        raise ValueError(text)
    months, days, micros = _total(_parts(around["inside"]))
    return (-months, -days, -micros) if around["ago"] else (months, days, micros)


def _total(parts: Iterator[tuple[str, _Parts]]) -> _Parts:
    """Add the parts, each with the names of its fields: a field may occur once."""
    months = days = micros = 0
    seen = ""
    for fields, part in parts:
        if set(fields) & set(seen):
            raise ValueError(fields)
        seen += fields
        months, days, micros = months + part[0], days + part[1], micros + part[2]
    return months, days, micros


def _iso_parts(iso: re.Match[str]) -> Iterator[tuple[str, _Parts]]:
    for prefix, name in (("", "days"), ("T", "clock")):
        for part in _OF_ISO_PART.finditer(iso[name] or ""):
            yield _scaled(part["n"], _OF_ISO[prefix + part["unit"]])


def _parts(text: str) -> Iterator[tuple[str, _Parts]]:
    at = 0
    while at < len(text):
        if (clock := _CLOCK.match(text, at)) is not None:
            seconds = Decimal(clock["s"] or 0) + 60 * int(clock["m"]) + 3600 * int(clock["h"])
            yield "hms", (0, 0, _rounded(seconds * 1_000_000) * (-1 if clock["sign"] == "-" else 1))
            at = clock.end()
        elif (span := _MONTHS.match(text, at)) is not None:
            if int(span["m"]) > 11:  # noqa: PLR2004 - the months of a year
                raise ValueError(text)
            yield "YM", ((int(span["y"]) * 12 + int(span["m"])) * (-1 if span["sign"] == "-" else 1), 0, 0)
            at = span.end()
        elif (seconds_ := _SECONDS.fullmatch(text, at)) is not None:
            yield _scaled(seconds_["n"], "second")
            return
        elif (part := _PART.match(text, at)) is not None and part["unit"].lower() in _UNITS:
            yield _scaled(part["n"], part["unit"].lower())
            at = part.end()
        else:
            raise ValueError(text)


def _scaled(number: str, unit: str) -> tuple[str, _Parts]:
    """Return the field of a unit, and a number of it."""
    count = Decimal(number)
    field, (months, days, micros) = _UNITS[unit]
    rest = count % 1
    if micros:
        return field, (0, 0, _rounded(count * micros))
    if months > 1:
        return field, (int(count) * months + _rounded(rest * months), 0, 0)
    more = rest * (days or 30)
    return field, (int(count) * months, int(count) * days + int(more), _rounded(more % 1 * _DAY_US))


def _rounded(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_EVEN))
