"""Retry of a lost source: pauses, reports, and which failures are final."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from auditlake.capture import supervisor
from auditlake.capture.supervisor import Attempts, Capturing, Task, capturing
from auditlake.errors import AuditlakeError, LakeConflict, SourceAway, SourceUnreachable
from auditlake.lake.layout import Lake
from auditlake.lake.positions import Positions
from auditlake.lsn import Lsn
from auditlake.source.connection import connect, pinned_conninfo, unreachable

CONNECTING = 'connection failed: connection to server at "h", port 5432 failed: '


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Listener:
    """Records reports and states."""

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.states: list[tuple[str, str | None]] = []

    def record_state(self, state: str, failure: AuditlakeError | None = None, /) -> None:
        self.states.append((state, failure.message if failure else None))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Clock that `Attempts` reads."""
    made = Clock()
    monkeypatch.setattr(supervisor, "time", made)
    return made


@pytest.fixture
def listener() -> Listener:
    """Receiver of reports and states."""
    return Listener()


DOWN = SourceAway("down")
STARTING = SourceAway("starting up")
REFUSED = SourceUnreachable("refused")


def test_pauses_double_up_to_thirty_seconds(clock: Clock, listener: Listener) -> None:
    """Each pause is in the upper half of its range, and none exceeds the longest."""
    attempts = Attempts(listener.reports.append, listener.record_state, None)
    attempts.succeeded()
    clock.now_s += 1
    for longest_s in (0.5, 1, 2, 4, 8, 16, 30, 30, *[30] * 50):
        assert longest_s / 2 <= attempts.failed(DOWN) <= longest_s


def test_pauses_of_two_clients_differ(clock: Clock, listener: Listener) -> None:
    """Two clients of one server do not reconnect in step."""
    assert clock.now_s
    one, other = (Attempts(listener.reports.append, listener.record_state, None) for _ in range(2))
    assert [one.failed(DOWN) for _ in range(5)] != [other.failed(DOWN) for _ in range(5)]


def test_pauses_restart_only_after_a_connection_that_lasted(clock: Clock, listener: Listener) -> None:
    """A server that accepts and closes connections at once is not asked twice a second."""
    attempts = Attempts(listener.reports.append, listener.record_state, None)
    with mock.patch("random.random", return_value=0):
        for expected_s in (0.5, 1, 2):
            attempts.succeeded()
            assert attempts.failed(DOWN) == expected_s
        attempts.succeeded()
        clock.now_s += 31
        assert attempts.failed(DOWN) == 0.5


def test_each_change_of_state_is_reported_once(clock: Clock, listener: Listener) -> None:
    """Lost, another reason, back: three reports for any number of attempts."""
    attempts = Attempts(listener.reports.append, listener.record_state, None)
    attempts.succeeded()
    for failure in (DOWN, DOWN, DOWN, STARTING, STARTING):
        attempts.failed(failure)
        clock.now_s += 3
    attempts.succeeded()
    assert len(listener.reports) == 3
    assert [
        word in line for word, line in zip(("down", "starting up", "back after 15 s"), listener.reports, strict=True)
    ]
    attempts.ended()
    assert listener.states == [
        ("running", None),
        ("trying again", "down"),
        ("trying again", "starting up"),
        ("running", None),
        ("ended", None),
    ]


def test_a_final_refusal_is_raised_at_once(listener: Listener) -> None:
    """Both before and after a connection."""
    attempts = Attempts(listener.reports.append, listener.record_state, None)
    with pytest.raises(SourceUnreachable, match="refused"):
        attempts.failed(REFUSED)
    attempts.succeeded()
    with pytest.raises(SourceUnreachable, match="refused"):
        attempts.failed(REFUSED)
    assert listener.reports == []


def test_a_run_with_a_target_gives_up_after_its_patience(clock: Clock, listener: Listener) -> None:
    """A source that was never reached fails at once, a lost one after a minute."""
    with pytest.raises(SourceUnreachable):
        Attempts(listener.reports.append, listener.record_state, 60).failed(DOWN)
    attempts = Attempts(listener.reports.append, listener.record_state, 60)
    attempts.succeeded()
    attempts.failed(DOWN)
    clock.now_s += 59
    attempts.failed(DOWN)
    clock.now_s += 2
    with pytest.raises(SourceUnreachable):
        attempts.failed(DOWN)


def test_a_run_that_lost_the_lake_records_no_end(listener: Listener) -> None:
    """The recorded state belongs to the capture that holds the lake."""
    attempts = Attempts(listener.reports.append, listener.record_state, None)
    attempts.ended(REFUSED)
    attempts.succeeded()
    attempts.ended(LakeConflict("another process"))
    assert listener.states == [("running", None)]


@pytest.mark.parametrize(
    "setting",
    [
        "ssl_min_protocol_version=TLSv1.4",
        "ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2",
        "port=x",
        "connect_timeout=x",
        "keepalives_idle=x",
        "tcp_user_timeout=x",
        "require_auth=md5,md5",
        "require_auth=md5,!scram-sha-256",
        "sslrootcert=system sslmode=require",
        "sslnegotiation=direct",
        "service=of-nobody",
        "host=127.0.0.1,127.0.0.1 port=1,2,3",
    ],
)
def test_a_setting_that_libpq_does_not_read_is_final(setting: str) -> None:
    """A running capture would try again for ever, as if the server were down."""
    with pytest.raises(SourceUnreachable, match=r"refuses the connection: .*") as refused:
        connect(f"host=127.0.0.1 port=1 {setting}")
    assert (refused.value.retryable, refused.value.hint) == (False, "Correct this part of the setting source.")


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
        ('connection is bad: invalid sslmode value: "bad"', None, False),
        (f'{CONNECTING}root certificate file "/a" does not exist', None, False),
        (f"{CONNECTING}SSL error: certificate verify failed", None, False),
        (f"{CONNECTING}SSL error: unexpected eof while reading", None, True),
        ("SSL error: decryption failed or bad record mac", None, True),
        (f"{CONNECTING}server does not support SSL, but SSL was required", None, False),
        (f"{CONNECTING}channel binding required, but SSL not in use", None, False),
        (f"{CONNECTING}FATAL:  unsupported startup parameter: options", None, False),
    ],
)
def test_only_a_failure_that_may_pass_is_retryable(message: str, sqlstate: str | None, *, retryable: bool) -> None:
    """An answer is classified by its SQLSTATE; a failed connection has none, so by its text."""
    assert unreachable(message, sqlstate).retryable is retryable


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("channel binding required, but SSL not in use", ("channel_binding", "sslmode")),
        ("SSL error: certificate verify failed", ("sslmode", "sslrootcert", "host name")),
        ('server certificate for "a" does not match host name "b"', ("sslmode", "sslrootcert", "host name")),
        ('FATAL:  no pg_hba.conf entry for host "h", user "u", database "d", no encryption', ("sslmode",)),
        ("FATAL:  unsupported startup parameter: options", ("pooler", "PostgreSQL itself")),
        ('out of shared memory HINT: Increase "max_locks_per_transaction"', ("Raise max_locks_per",)),
        ('FATAL:  password authentication failed for user "u"', ("password", "pg_hba.conf")),
        (
            """FATAL:  password authentication failed for user "u"
            connection to server failed: FATAL:  no pg_hba.conf entry for host "h", user "u", no encryption""",
            ("password", "pg_hba.conf"),
        ),
    ],
)
def test_the_hint_names_what_to_change(message: str, words: tuple[str, ...]) -> None:
    """The hint does not require knowledge of libpq's messages."""
    hint = unreachable(CONNECTING + message).hint or ""
    assert [word for word in words if word not in hint] == []


@pytest.mark.parametrize(
    "failure",
    [
        unreachable('connection to server at "h" failed: FATAL:  Passwort-Authentifizierung fehlgeschlagen'),
        unreachable("FATAL:  number of requested standby connections exceeds max_wal_senders (currently 10)"),
    ],
)
def test_an_unknown_refusal_and_a_lack_of_wal_senders_are_final_only_at_the_start(
    listener: Listener, failure: SourceUnreachable
) -> None:
    """A run that was connected before may be refused by a server that is only overloaded, or by its own walsender."""
    attempts = Attempts(listener.reports.append, listener.record_state, None)
    with pytest.raises(SourceUnreachable):
        attempts.failed(failure)
    attempts.succeeded()
    assert attempts.failed(failure) > 0


def test_several_hosts_are_limited_to_the_primary() -> None:
    """Unless target_session_attrs is set. A single host is not limited, so that `check` can report a standby."""
    assert "target_session_attrs=primary" in pinned_conninfo("host=a,b dbname=d")
    assert "target_session_attrs=any" in pinned_conninfo("host=a,b dbname=d target_session_attrs=any")
    assert "target_session_attrs" not in pinned_conninfo("host=a dbname=d")


class Lagging:
    """A lake whose capture is at these LSNs, one at each look, and stays at the last; a look takes 100 s."""

    def __init__(self, clock: Clock, *lsns: int) -> None:
        self._clock = clock
        self._lsns = list(lsns)

    def positions(self, _: Lake) -> Positions:
        self._clock.now_s += 100
        lsn = Lsn(self._lsns.pop(0) if len(self._lsns) > 1 else self._lsns[0])
        return Positions(1, lsn, lsn, 0)


def test_a_copy_waits_for_a_capture_that_makes_progress(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take longer than the longest silence; a capture that stands still is a lost source, no bug."""
    lake, running = Lake(Path("/nowhere")), Future[None]()
    monkeypatch.setattr(supervisor, "read_positions", Lagging(clock, 1, 2, 3, 4).positions)
    Capturing(lake, running).await_passed(Lsn(4))
    monkeypatch.setattr(supervisor, "read_positions", Lagging(clock, 1, 2).positions)
    with pytest.raises(SourceUnreachable, match="is at 0/2 for 120 s, and the copy needs it to pass 0/4"):
        Capturing(lake, running).await_passed(Lsn(4))
    with pytest.raises(LakeConflict, match="runs in another process, is at 0/2"):
        Capturing(lake, None).await_passed(Lsn(4))


def test_an_interrupt_while_a_capture_starts_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process waited at its end for a thread that captured for ever."""
    begun, ended = threading.Event(), threading.Event()

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *given: Any, **named: Any) -> Any:
            super().submit(*given, **named)
            begun.wait(10)
            raise KeyboardInterrupt

    def capture(_task: Task, stop: threading.Event, _report: object) -> None:
        begun.set()
        if stop.wait(5):
            ended.set()

    monkeypatch.setattr(supervisor, "ThreadPoolExecutor", Interrupted)
    monkeypatch.setattr(supervisor, "run_capture", capture)
    nothing: Any = None
    with (
        pytest.raises(KeyboardInterrupt),
        capturing(nothing, Lake(tmp_path), nothing, lambda _: None, first=True),
    ):
        pytest.fail("it was interrupted before")
    assert ended.is_set()
