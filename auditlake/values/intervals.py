"""Texts of intervals: `1 day 02:30:00`, `1-2`, `@ 1 hour ago`, ISO 8601's `P1Y2M`. Pure.

A fraction of a year is whole months; one of a month, a week or a day goes on to days and microseconds, as in
PostgreSQL: a month has 30 days, a day 24 hours. Fractions are floats and are rounded as there, which shows in the last
microsecond.

Authority: src/backend/utils/adt/datetime.c, `DecodeInterval`, `DecodeISO8601Interval`, `AdjustFractDays`
"""

import re
from collections.abc import Iterator, Sequence

_DAY_US, _DAY_S, _DAYS_OF_MONTH, _SIXTY = 86_400_000_000, 86_400, 30, 60
_MOST = (1 << 31) - 1, (1 << 31) - 1, (1 << 63) - 1
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
"""Field and size of each word; a text has a field once. Below a second PostgreSQL has separate fields."""
_OF_CLOCK = "hms"
_OF_ISO = {"Y": "year", "M": "month", "W": "week", "D": "day", "TH": "hour", "TM": "minute", "TS": "second"}
_NUMBER = r"(?P<n>[+-]?\d+)(?P<f>\.\d+)?"
_END = r"(?:\s+|\Z)"
_AFTER_LETTER = r"(?<=[\d\s][dhmsy])(?=\d)"
"""Units of one letter may be followed by a digit, as in 1h30m; with longer ones PostgreSQL reads a date."""
_PART = re.compile(rf"\s*{_NUMBER}\s*(?P<unit>[a-z]+)(?:{_END}|{_AFTER_LETTER})", re.ASCII | re.IGNORECASE)
_SECONDS = re.compile(rf"\s*{_NUMBER}\s*", re.ASCII)
_CLOCK = re.compile(rf"\s*(?P<sign>[+-]?)(?P<h>\d+):(?P<m>\d\d)(:(?P<s>\d\d)(?P<f>\.\d+)?)?{_END}", re.ASCII)
_MONTHS = re.compile(rf"\s*(?P<sign>[+-]?)(?P<y>\d+)-(?P<m>\d+){_END}", re.ASCII)
_ISO = re.compile(r"P(?=.)(?P<days>(-?\d+(\.\d+)?[YMWD])*)(T(?P<clock>(-?\d+(\.\d+)?[HMS])+))?", re.ASCII)
_OF_ISO_PART = re.compile(r"(?P<n>-?\d+(\.\d+)?)(?P<unit>[A-Z])", re.ASCII)
_BLANKS, _AGO = " \t\n\r\f\v", "ago"


def scaled(parts: Sequence[int], factor: float, *, divided: bool) -> list[int]:
    """Return months, days and microseconds times a factor, or divided by it; raises OverflowError, ZeroDivisionError.

    Authority: src/backend/utils/adt/timestamp.c, `interval_mul`, `interval_div`
    """
    exact_months, exact_days, exact_us = (each / factor if divided else each * factor for each in parts)
    months, days = int(exact_months), int(exact_days)
    more_days = _in_us((exact_months - months) * _DAYS_OF_MONTH)
    seconds = _in_us((exact_days - days + more_days - int(more_days)) * _DAY_S)
    if abs(seconds) >= _DAY_S:
        days += int(seconds / _DAY_S)
        seconds -= int(seconds / _DAY_S) * _DAY_S
    return [months, days + int(more_days), round(exact_us + seconds * 1_000_000)]


def _in_us(value: float) -> float:
    """Round a number of days or seconds to six digits."""
    return round(value * 1_000_000) / 1_000_000


def read_interval(text: str) -> _Parts:
    """Read a text; raises ValueError for one that is not read here, although PostgreSQL may read it."""
    if (iso := _ISO.fullmatch(text)) is not None:
        return _held(_total(_iso_parts(iso)))
    inside = text.strip(_BLANKS).removeprefix("@").lstrip(_BLANKS)
    before = inside[: -len(_AGO)]
    is_ago = inside[len(before) :].lower() == _AGO and before.endswith((*_BLANKS,))
    if not inside:
        raise ValueError(text)
    found = _total(_parts(before.rstrip(_BLANKS) if is_ago else inside, bare=not is_ago))
    return _held([-each for each in found] if is_ago else found)


def _held(parts: Sequence[int]) -> _Parts:
    if not fits(parts) or parts[2] < -_MOST[2]:  # the least count of microseconds is no text's
        raise ValueError(parts)
    months, days, micros = parts
    return months, days, micros


def fits(parts: Sequence[int]) -> bool:
    """Return whether an interval may have so many months, days and microseconds."""
    return all(-1 - most <= part <= most for part, most in zip(parts, _MOST, strict=True))


def _total(parts: Iterator[tuple[str, _Parts]]) -> _Parts:
    """Add the parts, each with the names of its fields: a field may occur once.

    Fractions of days after a clock are lost in PostgreSQL, which reads the clock last.
    """
    months = days = micros = 0
    seen: list[str] = []
    for fields, part in parts:
        if set(fields) & set("".join(seen)):
            raise ValueError(fields)
        months, days = months + part[0], days + part[1]
        micros += 0 if _OF_CLOCK in seen else part[2]
        seen.append(fields)
    return months, days, micros


def _iso_parts(iso: re.Match[str]) -> Iterator[tuple[str, _Parts]]:
    for prefix, name in (("", "days"), ("T", "clock")):
        for part in _OF_ISO_PART.finditer(iso[name] or ""):
            value = float(part["n"])
            yield _scaled(int(value), value % 1 if value >= 0 else -(-value % 1), _OF_ISO[prefix + part["unit"]])


def _parts(text: str, *, bare: bool) -> Iterator[tuple[str, _Parts]]:
    """Yield the parts of a text; `bare`: the last may be a number of seconds without a unit."""
    at = 0
    while at < len(text):
        if (clock := _CLOCK.match(text, at)) is not None:
            hours, minutes, rest = (int(clock[name] or 0) for name in "hms")
            if minutes >= _SIXTY or rest > _SIXTY:  # PostgreSQL reads 00:00:60
                raise ValueError(text)
            seconds = 3600 * hours + 60 * minutes + rest
            micros = seconds * 1_000_000 + round(float(clock["f"] or 0) * 1_000_000)
            yield _OF_CLOCK, (0, 0, -micros if clock["sign"] == "-" else micros)
            at = clock.end()
        elif (span := _MONTHS.match(text, at)) is not None:
            if int(span["m"]) > 11:  # noqa: PLR2004 - the months of a year
                raise ValueError(text)
            yield "YM", ((int(span["y"]) * 12 + int(span["m"])) * (-1 if span["sign"] == "-" else 1), 0, 0)
            at = span.end()
        elif bare and (seconds_ := _SECONDS.fullmatch(text, at)) is not None:
            yield _scaled(*_divided(seconds_), "second")
            return
        elif (part := _PART.match(text, at)) is not None and part["unit"].lower() in _UNITS:
            yield _scaled(*_divided(part), part["unit"].lower())
            at = part.end()
        else:
            raise ValueError(text)


def _divided(number: re.Match[str]) -> tuple[int, float]:
    """Return the whole part of a number and its fraction, which has its sign."""
    rest = float(number["f"] or 0)
    return int(number["n"]), -rest if number["n"].startswith("-") else rest


def _scaled(count: int, rest: float, unit: str) -> tuple[str, _Parts]:
    """Return the field of a unit, and a number of it."""
    field, (months, days, micros) = _UNITS[unit]
    if micros:
        return field, (0, 0, count * micros + _microseconds(rest * micros))
    if months > 1:
        return field, (count * months + round(rest * months), 0, 0)
    more = rest * (days or 30)
    return field, (count * months, count * days + int(more), _microseconds((more - int(more)) * _DAY_US))


def _microseconds(value: float) -> int:
    """Round to a whole number, a half towards zero."""
    rest = value - int(value)
    return int(value) + (rest > 0.5) - (rest < -0.5)  # noqa: PLR2004 - a half
