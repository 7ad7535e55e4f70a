"""When a lost source is tried again, and what people hear of it."""

from unittest import mock

import pytest

from auditlake.capture import retry
from auditlake.capture.retry import Attempts
from auditlake.errors import LakeConflict, SourceUnreachable
from auditlake.postgres.connection import pinned_conninfo, unreachable


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Listener:
    """What was said and noted."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.noted: list[tuple[str, str | None]] = []

    def note(self, state: str, problem: str | None = None, /) -> None:
        self.noted.append((state, problem))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that attempts look at."""
    made = Clock()
    monkeypatch.setattr(retry, "time", made)
    return made


@pytest.fixture
def listener() -> Listener:
    """Who hears of the attempts."""
    return Listener()


DOWN = SourceUnreachable("down", retryable=True)
STARTING = SourceUnreachable("starting up", retryable=True)
REFUSED = SourceUnreachable("refused")


def test_pauses_double_to_half_a_minute(clock: Clock, listener: Listener) -> None:
    """Each lies in the upper half of its range, and none grows beyond the longest."""
    attempts = Attempts(listener.said.append, listener.note, None)
    attempts.succeeded()
    clock.now_s += 1
    for longest_s in (0.5, 1, 2, 4, 8, 16, 30, 30, *[30] * 50):
        assert longest_s / 2 <= attempts.failed(DOWN) <= longest_s


def test_pauses_are_not_in_step(clock: Clock, listener: Listener) -> None:
    """Two clients of one server do not come back at the same moments."""
    assert clock.now_s
    one, other = (Attempts(listener.said.append, listener.note, None) for _ in range(2))
    assert [one.failed(DOWN) for _ in range(5)] != [other.failed(DOWN) for _ in range(5)]


def test_pauses_begin_anew_only_after_a_connection_that_lasted(clock: Clock, listener: Listener) -> None:
    """A server that lets us in and throws us out at once is not asked twice a second for ever."""
    attempts = Attempts(listener.said.append, listener.note, None)
    with mock.patch("random.random", return_value=0):
        for expected_s in (0.5, 1, 2):
            attempts.succeeded()
            assert attempts.failed(DOWN) == expected_s
        attempts.succeeded()
        clock.now_s += 31
        assert attempts.failed(DOWN) == 0.5


def test_changes_are_said_once(clock: Clock, listener: Listener) -> None:
    """Lost, another reason, back: three lines, however many attempts there were."""
    attempts = Attempts(listener.said.append, listener.note, None)
    attempts.succeeded()
    for failure in (DOWN, DOWN, DOWN, STARTING, STARTING):
        attempts.failed(failure)
        clock.now_s += 3
    attempts.succeeded()
    assert len(listener.said) == 3
    assert [word in line for word, line in zip(("down", "starting up", "back after 15 s"), listener.said, strict=True)]
    attempts.ended()
    assert listener.noted == [
        ("running", None),
        ("trying again", "down"),
        ("trying again", "starting up"),
        ("running", None),
        ("ended", None),
    ]


def test_a_refusal_is_not_tried_again(listener: Listener) -> None:
    """Neither at first nor later."""
    attempts = Attempts(listener.said.append, listener.note, None)
    with pytest.raises(SourceUnreachable, match="refused"):
        attempts.failed(REFUSED)
    attempts.succeeded()
    with pytest.raises(SourceUnreachable, match="refused"):
        attempts.failed(REFUSED)
    assert listener.said == []


def test_with_a_target_patience_ends(clock: Clock, listener: Listener) -> None:
    """A source that was never there is told at once, one that was lost after a minute."""
    with pytest.raises(SourceUnreachable):
        Attempts(listener.said.append, listener.note, 60).failed(DOWN)
    attempts = Attempts(listener.said.append, listener.note, 60)
    attempts.succeeded()
    attempts.failed(DOWN)
    clock.now_s += 59
    attempts.failed(DOWN)
    clock.now_s += 2
    with pytest.raises(SourceUnreachable):
        attempts.failed(DOWN)


def test_who_gives_way_leaves_no_note(listener: Listener) -> None:
    """The note belongs to the capture that holds the lake."""
    attempts = Attempts(listener.said.append, listener.note, None)
    attempts.ended(REFUSED)
    attempts.succeeded()
    attempts.ended(LakeConflict("another process"))
    assert listener.noted == [("running", None)]


@pytest.mark.parametrize(
    ("message", "sqlstate", "retryable"),
    [
        ('FATAL:  password authentication failed for user "me"', None, False),
        ('FATAL:  database "shop" does not exist', None, False),
        ("FATAL:  permission denied to start WAL sender", None, False),
        ("FATAL:  the database system is starting up", None, True),
        ("FATAL:  the database system is shutting down", None, True),
        ("FATAL:  the database system is in recovery mode", None, True),
        ("FATAL:  sorry, too many clients already", None, True),
        ("Connection refused Is the server running on that host", None, True),
        ("server closed the connection unexpectedly", None, True),
        ("terminating connection due to administrator command", "57P01", True),
        ("number of requested standby connections exceeds max_wal_senders", "53300", True),
        ('publication "p" does not exist', "42704", False),
        ("a text in another language that holds: does not exist", "57P03", True),
        ("permission denied to use replication slots", "42501", False),
    ],
)
def test_only_what_can_succeed_is_tried_again(message: str, sqlstate: str | None, *, retryable: bool) -> None:
    """An answer is judged by its SQLSTATE; a failed connection has none, so by its text."""
    assert unreachable(message, sqlstate).retryable is retryable


def test_of_several_hosts_the_primary_is_taken() -> None:
    """Unless the setting says otherwise; one host is taken as it is, so that `check` can say that it is a standby."""
    assert "target_session_attrs=primary" in pinned_conninfo("host=a,b dbname=d")
    assert "target_session_attrs=any" in pinned_conninfo("host=a,b dbname=d target_session_attrs=any")
    assert "target_session_attrs" not in pinned_conninfo("host=a dbname=d")
