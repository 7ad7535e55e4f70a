"""WHEN: the notation of a moment.

    now                            the latest transaction in the lake
    2026-11-21                     midnight of that day
    today, yesterday [18:30]       midnight, or that time, of the day of `now` or the one before
    08:00[:00[.25]]                that time of today
    2026-11-21 09:30[:00[.25]]     a time; with a space or a T
    2026-11-21T09:30:00+01:00      a time with an offset: Z, +01, +0100 or +01:00
    2026-11-21 09:30 Europe/Paris  a local time; refused if the clocks there showed it twice, or never
    -90s  -5m  -2h  -1d  -1w       that long before now; 10 minutes ago
    0/16B3748                      a commit LSN
    lsn:23803720                   the same, as the BIGINT of a column such as _from_lsn
    xid:750                        the transaction with this xid

A time without a zone is in the reader's zone. `parse_when` is pure and needs no lake: `moments` decides whether a
moment can be answered. A time finer than a microsecond is truncated, which is exact, because commit times are whole
microseconds.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import overload
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from auditlake.errors import BadUsage
from auditlake.instants import to_time, to_us
from auditlake.lsn import Lsn

_EARLIEST_US = to_us(datetime.min.replace(tzinfo=UTC))
_LATEST_US = to_us(datetime.max.replace(tzinfo=UTC))

_SECOND_US = 1_000_000
_UNITS_US = {
    "s": _SECOND_US,
    "m": 60 * _SECOND_US,
    "h": 3_600 * _SECOND_US,
    "d": 86_400 * _SECOND_US,
    "w": 7 * 86_400 * _SECOND_US,
}
_DAY_US = _UNITS_US["d"]
_AGES = (("day", _DAY_US), ("h", _UNITS_US["h"]), ("min", _UNITS_US["m"]), ("s", _SECOND_US))
_WITH_PLURAL = ("day",)
_AGO = re.compile(r"([0-9]{1,12}|an?) ?(second|sec|minute|min|hour|day|week)s? ago", re.IGNORECASE)
_DECIMAL_LSN = re.compile(r"lsn:([0-9]{1,20})")
_DAYS_BACK = {"": 0, "today": 0, "yesterday": 1}
_OF_DAY = re.compile(
    r"(?P<day>today|yesterday)?(?:(?:^|(?<=y) )(?P<clock>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)(?P<fraction>\.[0-9]+)?)?",
    re.IGNORECASE,
)
_RELATIVE = re.compile(r"-([0-9]{1,12})([smhdw])")
_XID = re.compile(r"xid:([0-9]{1,20})")
_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<clock>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)(?P<fraction>\.[0-9]+)?"
    r"(?: ?(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)| (?P<place>[A-Z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*))?)?"
)
_MAX_XID = 2**32 - 1
_MAX_LSN = 2**64 - 1
_LONGEST = 200
_FORMS = (
    "Write an ISO time (2026-11-21T09:30:00Z), 08:00, yesterday, a relative time (-2h, 10 minutes ago), "
    "an LSN (0/16B3748), xid:750 or now."
)


@dataclass(frozen=True, slots=True)
class AtNow:
    """Every commit in the lake."""

    def __str__(self) -> str:
        return "now"


@dataclass(frozen=True, slots=True)
class AtTime:
    """Every commit up to this time, inclusive; in microseconds since 1970."""

    time_us: int

    def __str__(self) -> str:
        return format_us(self.time_us)


@dataclass(frozen=True, slots=True)
class AtLsn:
    """Every commit up to this commit LSN, inclusive."""

    lsn: Lsn

    def __str__(self) -> str:
        return str(self.lsn)


@dataclass(frozen=True, slots=True)
class AtXid:
    """Every commit up to that of this transaction, inclusive; the xid is 32 bits, as on the wire."""

    xid: int

    def __str__(self) -> str:
        return f"xid:{self.xid}"


When = AtNow | AtTime | AtLsn | AtXid


@overload
def written(when: str | datetime) -> str: ...
@overload
def written(when: str | datetime | None) -> str | None: ...
def written(when: str | datetime | None) -> str | None:
    """Return the notation of a WHEN or an aware datetime, None of None; raises BadUsage for anything else."""
    if when is None or isinstance(when, str):
        return when
    if not isinstance(when, datetime):
        raise BadUsage(f"not a moment: a value of type {type(when).__name__}", _FORMS)
    if when.tzinfo is None:
        raise BadUsage(f"{when.isoformat()} has no time zone", "Give the datetime a tzinfo, such as UTC.")
    return format_us(to_us(when))


def parse_when(text: str, now: datetime) -> When:
    """Parse a WHEN; relative times count from `now`, and times without a zone are in its zone; raises BadUsage."""
    text = text.strip()
    if len(text) > _LONGEST:
        raise BadUsage(f"not a moment: a text of {len(text):,} characters", _FORMS)
    if text.lower() == "now":
        return AtNow()
    if match := _RELATIVE.fullmatch(text) or _AGO.fullmatch(text):
        count = 1 if match[1].lower() in {"a", "an"} else int(match[1])
        return _before(now, count * _UNITS_US[match[2][0].lower()], text)
    if match := _TIME.fullmatch(text):
        return AtTime(_time_us(match, text, now))
    if text and (match := _OF_DAY.fullmatch(text)):
        return AtTime(_of_day(match, text, now))
    return _position(text)


def is_when(text: str, now: datetime) -> bool:
    """Return whether `text` is a WHEN."""
    try:
        parse_when(text, now)
    except BadUsage:
        return False
    return True


def _position(text: str) -> AtLsn | AtXid:
    if match := _XID.fullmatch(text):
        return AtXid(_xid(int(match[1])))
    if (match := _DECIMAL_LSN.fullmatch(text)) and int(match[1]) <= _MAX_LSN:
        return AtLsn(Lsn(int(match[1])))
    try:
        return AtLsn(Lsn.parse(text))
    except ValueError as exc:
        raise BadUsage(f"not a moment: {text!r}", _FORMS) from exc


def format_us(time_us: int, zone: tzinfo = UTC) -> str:
    """Format microseconds since 1970 as an ISO time in `zone`; years outside 1 to 9999 as the bare number."""
    if not _EARLIEST_US <= time_us <= _LATEST_US:
        return f"{time_us} µs since 1970"
    moment = to_time(time_us)
    if zone is not UTC and _EARLIEST_US + _DAY_US < time_us < _LATEST_US - _DAY_US:
        return moment.astimezone(zone).isoformat()
    return moment.isoformat().replace("+00:00", "Z")


def format_age(seconds: float) -> str:
    """Format the age of a moment in its largest unit."""
    for name, length_us in _AGES:
        if (count := int(seconds * _SECOND_US) // length_us) > 0:
            return f"{count} {name}{'s' * (count > 1 and name in _WITH_PLURAL)} ago"
    return "now"


def _before(now: datetime, length_us: int, text: str) -> AtTime:
    time_us = to_us(now) - length_us
    if time_us < _EARLIEST_US:
        raise BadUsage(f"{text} is before the year 1", _FORMS)
    return AtTime(time_us)


def _xid(xid: int) -> int:
    if xid > _MAX_XID:
        raise BadUsage(
            f"xid:{xid} has more than the 32 bits that PostgreSQL sends",
            f"Write xid:{xid & _MAX_XID}: pg_current_xact_id() puts an epoch above them.",
        )
    return xid


def _time_us(match: re.Match[str], text: str, now: datetime) -> int:
    place, offset = match["place"], (match["zone"] or "").upper()
    return _instant(
        match, f"{match['date']}T{_clock(match)}{offset}", text, _place(place, text) if place else _zone_of(now)
    )


def _of_day(match: re.Match[str], text: str, now: datetime) -> int:
    day = now.date() - timedelta(days=_DAYS_BACK[(match["day"] or "").lower()])
    return _instant(match, f"{day.isoformat()}T{_clock(match)}", text, _zone_of(now))


def _instant(match: re.Match[str], iso: str, text: str, zone: tzinfo) -> int:
    """Return the microseconds of an ISO time, in a zone unless it has an offset, and of the fraction beside it."""
    try:
        moment = datetime.fromisoformat(iso)
    except ValueError as exc:
        raise BadUsage(f"not a time: {text!r}, {exc}", _FORMS) from exc
    moment = _local(moment, zone) if moment.tzinfo is None else moment
    return to_us(moment) + int((match["fraction"] or ".")[1:7].ljust(6, "0"))


def _clock(match: re.Match[str]) -> str:
    """Return the time of day with two digits of the hour; PostgreSQL reads one as well."""
    hour, _, rest = (match["clock"] or "0:00").partition(":")
    return f"{hour:0>2}:{rest}"


def _zone_of(now: datetime) -> tzinfo:
    return now.tzinfo or UTC


def _place(name: str, text: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise BadUsage(f"no time zone {name!r}, in {text!r}", "Write one as Europe/Paris, or an offset.") from exc


def _local(moment: datetime, zone: tzinfo) -> datetime:
    """Return the instant that the clocks of a zone showed as `moment`, if there is exactly one."""
    first, second = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return first
    earlier, later = sorted(at.astimezone(UTC) for at in (first, second))
    what = "twice" if first.astimezone(UTC) == earlier else "never"
    raise BadUsage(
        f"the clocks of {zone} showed {moment:%Y-%m-%d %H:%M:%S} {what}",
        f"Write the instant: {earlier:%Y-%m-%dT%H:%M:%SZ} or {later:%Y-%m-%dT%H:%M:%SZ}.",
    )
