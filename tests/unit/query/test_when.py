"""WHEN: every notation, and texts that are refused."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.errors import BadUsage
from auditlake.instants import to_us
from auditlake.lsn import Lsn
from auditlake.temporal.when import AtLsn, AtNow, AtTime, AtXid, format_age, format_us, is_when, parse_when

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
NOON_US = 1_795_262_400_000_000  # date -u -d 2026-11-21T12:00:00Z +%s


@pytest.mark.parametrize(
    ("text", "expected_us"),
    [
        ("2026-11-21T12:00:00Z", NOON_US),
        ("2026-11-21 12:00:00", NOON_US),
        ("2026-11-21t12:00", NOON_US),
        ("  2026-11-21 12:00:00+00  ", NOON_US),
        ("2026-11-21 12:00:00 Z", NOON_US),
        ("2026-11-21T13:00:00+01:00", NOON_US),
        ("2026-11-21T13:00:00+0100", NOON_US),
        ("2026-11-21T04:30:00-07:30", NOON_US),
        ("2026-11-21 13:00 Europe/Paris", NOON_US),
        ("2026-11-21T06:00:00.5 America/Chicago", NOON_US + 500_000),
        ("2026-11-21 12:00 UTC", NOON_US),
        ("2026-11-21T12:00:00.25", NOON_US + 250_000),
        ("2026-11-21T12:00:00.000001Z", NOON_US + 1),
        ("2026-11-21T12:00:00.0000019Z", NOON_US + 1),
        ("2026-11-21", NOON_US - 12 * 3600 * 10**6),
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
    ],
)
def test_a_time_without_a_zone_is_utc_by_default(text: str, expected_us: int) -> None:
    """ISO times with and without zone, clock and fraction."""
    assert parse_when(text, NOW) == AtTime(expected_us)


@pytest.mark.parametrize(
    ("text", "seconds"), [("-90s", 90), ("-5m", 300), ("-2h", 7200), ("-1d", 86_400), ("-1w", 604_800), ("-0s", 0)]
)
def test_a_relative_time_counts_from_now(text: str, seconds: int) -> None:
    """The caller passes the clock, so a statement has one `now`."""
    assert parse_when(text, NOW) == AtTime(NOON_US - seconds * 10**6)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10 minutes ago", 600),
        ("1 minute ago", 60),
        ("a minute ago", 60),
        ("an hour ago", 3600),
        ("2 Hours Ago", 7200),
        ("90 seconds ago", 90),
        ("3 days ago", 3 * 86_400),
        ("1 week ago", 604_800),
    ],
)
def test_a_time_ago_counts_from_now(text: str, seconds: int) -> None:
    """`10 minutes ago` equals `-10m`."""
    assert parse_when(text, NOW) == AtTime(NOON_US - seconds * 10**6)


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("08:00", "UTC", "2026-11-21T08:00:00Z"),
        ("today", "UTC", "2026-11-21T00:00:00Z"),
        ("Yesterday", "UTC", "2026-11-20T00:00:00Z"),
        ("yesterday 18:30", "UTC", "2026-11-20T18:30:00Z"),
        ("today 08:00:01.5", "UTC", "2026-11-21T08:00:01.500000Z"),
        ("8:00", "UTC", "2026-11-21T08:00:00Z"),
        ("today 8:00", "UTC", "2026-11-21T08:00:00Z"),
        ("2026-11-20 9:30:15", "UTC", "2026-11-20T09:30:15Z"),
        ("08:00", "Europe/Paris", "2026-11-21T07:00:00Z"),
        ("2026-07-01 08:00", "Europe/Paris", "2026-07-01T06:00:00Z"),
        ("2026-07-01", "Europe/Paris", "2026-06-30T22:00:00Z"),
        ("2026-07-01 08:00Z", "Europe/Paris", "2026-07-01T08:00:00Z"),
        ("2026-07-01 08:00 America/Chicago", "Europe/Paris", "2026-07-01T13:00:00Z"),
        ("today", "Pacific/Auckland", "2026-11-21T11:00:00Z"),  # 01:00 of the 22nd there
        ("yesterday", "Pacific/Auckland", "2026-11-20T11:00:00Z"),
    ],
)
def test_a_time_without_a_zone_is_in_that_of_now(text: str, zone: str, expected: str) -> None:
    """The reader's zone also decides which day it is."""
    found = parse_when(text, NOW.astimezone(ZoneInfo(zone)))
    assert str(found) == expected


def test_now_is_what_the_lake_knows() -> None:
    """`now` is not a time: capture is always slightly behind the clock."""
    assert parse_when(" Now ", NOW) == AtNow()
    assert is_when("now", NOW)
    assert not is_when("orders", NOW)


def test_times_are_shown_in_a_zone() -> None:
    """With the offset, so that the text is a valid WHEN; near the years 1 and 9999 in UTC."""
    assert format_us(NOON_US, ZoneInfo("Europe/Paris")) == "2026-11-21T13:00:00+01:00"
    assert parse_when(format_us(NOON_US, ZoneInfo("Asia/Kolkata")), NOW) == AtTime(NOON_US)
    last_us = to_us(datetime.max.replace(tzinfo=UTC))
    assert format_us(last_us, ZoneInfo("Asia/Tokyo")) == "9999-12-31T23:59:59.999999Z"


def test_ages_are_in_one_unit() -> None:
    """The unit is the largest that is not longer than the age."""
    ages = [format_age(seconds) for seconds in (-3, 0.5, 59, 60, 7199, 86_400, 200_000)]
    assert ages == ["now", "now", "59 s ago", "1 min ago", "1 h ago", "1 day ago", "2 days ago"]


def test_an_lsn_and_an_xid_are_exact() -> None:
    """As PostgreSQL prints them."""
    assert parse_when("0/16B3748", NOW) == AtLsn(Lsn(0x16B3748))
    assert parse_when("16/b374d848", NOW) == AtLsn(Lsn(0x16_B374D848))
    assert parse_when("lsn:23803720", NOW) == AtLsn(Lsn(0x16B3748))
    assert parse_when("xid:750", NOW) == AtXid(750)
    assert parse_when("xid:4294967295", NOW) == AtXid(4_294_967_295)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "yesterday08:00",
        "108:00",
        "8:0",
        "24:00",
        "now 08:00",
        "minutes ago",
        "-5 minutes ago",
        "3 months ago",
        "lsn:",
        "lsn:18446744073709551616",
        "2h",
        "+2h",
        "-2",
        "-2y",
        "-1.5h",
        "- 2h",
        "-999999999999w",
        "2026-11-31",
        "2026-13-01",
        "2026-11-21T24:00:00",
        "2026-11-21T12",
        "2026-11-21T12:00:00+25:00",
        "20261121",
        "21.11.2026",
        "2026-11-21T12:00:00 europe/berlin",
        "16B3748",
        "0/",
        "0/123456789",
        "xid:",
        "xid:-1",
        "XID 7",
        "xid:4294967296",
        "\uff12026-11-21",
        f"-{'9' * 5_000}h",
        f"xid:{'9' * 5_000}",
        "9" * 5_000,
    ],
)
def test_any_other_text_is_bad_usage(text: str) -> None:
    """The hint lists the forms."""
    with pytest.raises(BadUsage) as caught:
        parse_when(text, NOW)
    assert caught.value.hint


def test_a_64_bit_xid_is_explained() -> None:
    """pg_current_xact_id() includes an epoch; the hint has the low 32 bits."""
    with pytest.raises(BadUsage) as caught:
        parse_when("xid:4294968046", NOW)
    assert caught.value.hint is not None
    assert "xid:750" in caught.value.hint


@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_every_time_reads_back(moment: datetime) -> None:
    """Python's ISO format with a whole-minute offset is parsed exactly."""
    offset = moment.utcoffset() or timedelta()
    fixed = moment.replace(tzinfo=timezone(timedelta(minutes=offset // timedelta(minutes=1))))
    assert parse_when(fixed.isoformat(), NOW) == AtTime(to_us(fixed))


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_printed_time_is_a_when_for_the_same_moment(moment: datetime) -> None:
    """Times in error messages can be used as arguments."""
    asked = AtTime(to_us(moment))
    assert parse_when(str(asked), NOW) == asked
    assert parse_when(format_us(asked.time_us), NOW) == asked


@given(st.integers(0, 2**64 - 1))
def test_every_lsn_reads_back(value: int) -> None:
    """Formatting and parsing are inverse."""
    assert parse_when(str(Lsn(value)), NOW) == AtLsn(Lsn(value))


@given(st.text(max_size=30))
def test_any_text_is_a_moment_or_bad_usage(text: str) -> None:
    """No other exception is raised."""
    with contextlib.suppress(BadUsage):
        parse_when(text, NOW)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-10-25 02:30 Europe/Paris", ["twice", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]),
        ("2026-03-29 02:30 Europe/Paris", ["never", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"]),
        ("2026-03-29 02:30 Europe/Nowhere", ["Europe/Nowhere"]),
        ("2026-03-29 02:30 Europe", ["Europe"]),
    ],
)
def test_a_local_time_without_exactly_one_instant_is_refused(text: str, words: list[str]) -> None:
    """The hour that clocks show twice, the hour that they skip, and unknown places."""
    with pytest.raises(BadUsage) as caught:
        parse_when(text, NOW)
    said = f"{caught.value.message} {caught.value.hint}"
    assert all(word in said for word in words), said
