"""WHEN: every spelling, and what is none."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.errors import BadUsage
from auditlake.lsn import Lsn
from auditlake.query.when import AtLsn, AtTime, AtXid, format_us, parse_when, to_us

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
def test_a_time_is_utc_unless_it_says_otherwise(text: str, expected_us: int) -> None:
    """ISO times with and without zone, clock and fraction."""
    assert parse_when(text, NOW) == AtTime(expected_us)


@pytest.mark.parametrize(
    ("text", "seconds"), [("-90s", 90), ("-5m", 300), ("-2h", 7200), ("-1d", 86_400), ("-1w", 604_800), ("-0s", 0)]
)
def test_a_relative_time_counts_from_now(text: str, seconds: int) -> None:
    """The clock is the caller's, so a statement has one now."""
    assert parse_when(text, NOW) == AtTime(NOON_US - seconds * 10**6)


def test_lsn_and_xid() -> None:
    """The two exact forms."""
    assert parse_when("0/16B3748", NOW) == AtLsn(Lsn(0x16B3748))
    assert parse_when("16/b374d848", NOW) == AtLsn(Lsn(0x16_B374D848))
    assert parse_when("xid:750", NOW) == AtXid(750)
    assert parse_when("xid:4294967295", NOW) == AtXid(4_294_967_295)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "yesterday",
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
    ],
)
def test_anything_else_is_bad_usage(text: str) -> None:
    """Nothing is guessed, and the hint shows the forms."""
    with pytest.raises(BadUsage) as caught:
        parse_when(text, NOW)
    assert caught.value.hint


def test_a_64_bit_xid_is_explained() -> None:
    """pg_current_xact_id() shows an epoch; the hint has the low 32 bits."""
    with pytest.raises(BadUsage) as caught:
        parse_when("xid:4294968046", NOW)
    assert caught.value.hint is not None
    assert "xid:750" in caught.value.hint


@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_every_time_reads_back(moment: datetime) -> None:
    """Whatever Python writes as ISO with a whole-minute offset is read exactly."""
    offset = moment.utcoffset() or timedelta()
    fixed = moment.replace(tzinfo=timezone(timedelta(minutes=offset // timedelta(minutes=1))))
    assert parse_when(fixed.isoformat(), NOW) == AtTime(to_us(fixed))


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_printed_can_be_asked(moment: datetime) -> None:
    """A time in an error message is a WHEN for the same moment."""
    asked = AtTime(to_us(moment))
    assert parse_when(str(asked), NOW) == asked
    assert parse_when(format_us(asked.time_us), NOW) == asked


@given(st.integers(0, 2**64 - 1))
def test_every_lsn_reads_back(value: int) -> None:
    """An LSN as PostgreSQL prints it."""
    assert parse_when(str(Lsn(value)), NOW) == AtLsn(Lsn(value))


@given(st.text(max_size=30))
def test_any_text_is_a_moment_or_bad_usage(text: str) -> None:
    """No other exception escapes."""
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
def test_a_local_time_that_is_not_one_instant(text: str, words: list[str]) -> None:
    """The hour that clocks show twice, the one they leave out, and places that are none."""
    with pytest.raises(BadUsage) as caught:
        parse_when(text, NOW)
    said = f"{caught.value.message} {caught.value.hint}"
    assert all(word in said for word in words), said
