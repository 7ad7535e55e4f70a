"""WHEN: how a moment is written.

    2026-11-21                     midnight of that day, UTC
    2026-11-21 09:30[:00[.25]]     a time; with a space or a T; no zone means UTC
    2026-11-21T09:30:00+01:00      a time with its zone: Z, +01, +0100 or +01:00
    2026-11-21 09:30 Europe/Paris  a local time; refused where the clocks there showed it twice, or never
    -90s  -5m  -2h  -1d  -1w       that long before now
    0/16B3748                      a commit LSN
    xid:750                        the transaction with this xid

`parse_when` is pure and knows no lake: whether the moment can be answered is for `moments` to say. A time finer than
a microsecond is cut to it, which is exact: commit times are whole microseconds.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from auditlake.errors import BadUsage
from auditlake.lsn import Lsn

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EARLIEST_US = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LATEST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND

_SECOND_US = 1_000_000
_UNITS_US = {
    "s": _SECOND_US,
    "m": 60 * _SECOND_US,
    "h": 3_600 * _SECOND_US,
    "d": 86_400 * _SECOND_US,
    "w": 7 * 86_400 * _SECOND_US,
}
_RELATIVE = re.compile(r"-([0-9]{1,12})([smhdw])")
_XID = re.compile(r"xid:([0-9]{1,20})")
_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?P<fraction>\.[0-9]+)?"
    r"(?: ?(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)| (?P<place>[A-Z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*))?)?"
)
_MAX_XID = 2**32 - 1
_FORMS = "Write an ISO time (2026-11-21T09:30:00Z), a relative time (-2h), an LSN (0/16B3748) or xid:750."


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


When = AtTime | AtLsn | AtXid


def parse_when(text: str, now: datetime) -> When:
    """Read a WHEN; `now` (with a zone) is what a relative time counts from.

    Raises BadUsage.
    """
    text = text.strip()
    if match := _RELATIVE.fullmatch(text):
        return _before(now, int(match[1]) * _UNITS_US[match[2]], text)
    if match := _XID.fullmatch(text):
        return AtXid(_xid(int(match[1])))
    if match := _TIME.fullmatch(text):
        return AtTime(_time_us(match, text))
    try:
        return AtLsn(Lsn.parse(text))
    except ValueError as exc:
        raise BadUsage(f"not a moment: {text!r}", _FORMS) from exc


def to_us(moment: datetime) -> int:
    """Microseconds since 1970 of a time with a zone."""
    return (moment - _EPOCH) // _MICROSECOND


def format_us(time_us: int) -> str:
    """Write microseconds since 1970 as an ISO time in UTC; years outside 1 to 9999 as the bare number."""
    if not _EARLIEST_US <= time_us <= _LATEST_US:
        return f"{time_us} µs since 1970"
    return (_EPOCH + time_us * _MICROSECOND).isoformat().replace("+00:00", "Z")


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


def _time_us(match: re.Match[str], text: str) -> int:
    fraction = (match["fraction"] or ".")[1:7].ljust(6, "0")
    zone = "" if match["place"] else (match["zone"] or "Z").upper()
    try:
        moment = datetime.fromisoformat(f"{match['date']}T{match['clock'] or '00:00'}{zone}")
    except ValueError as exc:
        raise BadUsage(f"not a time: {text!r}, {exc}", _FORMS) from exc
    return to_us(_local(moment, match["place"], text) if match["place"] else moment) + int(fraction)


def _local(moment: datetime, place: str, text: str) -> datetime:
    """Give the instant that the clocks of a place showed as `moment`, if there is exactly one."""
    try:
        zone = ZoneInfo(place)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise BadUsage(f"no time zone {place!r}, in {text!r}", "Write one as Europe/Paris, or an offset.") from exc
    first, second = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return first
    earlier, later = sorted(at.astimezone(UTC) for at in (first, second))
    what = "twice" if first.astimezone(UTC) == earlier else "never"
    raise BadUsage(
        f"the clocks of {place} showed {moment:%Y-%m-%d %H:%M:%S} {what}",
        f"Write the instant: {earlier:%Y-%m-%dT%H:%M:%SZ} or {later:%Y-%m-%dT%H:%M:%SZ}.",
    )
