"""Times as microseconds since 1970, as the tables and records of a lake have them."""

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now_us() -> int:
    """Return the time of this machine's clock."""
    return time.time_ns() // 1000


def to_us(moment: datetime) -> int:
    """Return a time with a zone as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def to_time(time_us: int) -> datetime:
    """Return microseconds since 1970 as a time in UTC; raises OverflowError outside of the years 1 to 9999."""
    return _EPOCH + time_us * _MICROSECOND


def month_of(time_us: int) -> str:
    """Return the month of a time in UTC, such as 2026-11."""
    return to_time(time_us).strftime("%Y-%m")
