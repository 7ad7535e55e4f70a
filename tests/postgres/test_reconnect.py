"""Capture when its connection is lost: it comes back, and every change is in the log once and in order."""

import os
import signal
import threading
import time
from pathlib import Path
from unittest import mock

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from auditlake.capture.guard import PublicationGuard
from auditlake.errors import SourceUnreachable, WrongSource
from auditlake.lake.changes import CaptureLog
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lake.runstate import read_state
from auditlake.lsn import Lsn
from auditlake.postgres import pace
from auditlake.postgres.connection import Row, connect
from auditlake.postgres.server import WalEnd, wal_end
from tests import command, oracle
from tests.capture_lake import make_lake
from tests.proxy import Proxy
from tests.running import Running, await_true
from tests.server import Server

pytestmark = pytest.mark.pg


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A lake of one empty table."""
    execute(database, "create table t (id int primary key)")
    return make_lake(database, tmp_path / "lake")


def execute(dsn: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement)


def insert(dsn: str, key: int) -> None:
    """Commit one row."""
    execute(dsn, f"insert into t values ({key})")


KILL = "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null"


def reader_of(dsn: str) -> int | None:
    """Pid of the walsender."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select active_pid from pg_replication_slots where slot_name = 'auditlake'").fetchone()
    return None if row is None else row[0]


def test_a_killed_walsender(database: str, lake: Lake) -> None:
    """Said once, with its reason, and again when it is back; the note for `status` follows."""
    with Running(database, lake) as running:
        insert(database, 1)
        running.await_keys(1)
        execute(database, KILL)
        insert(database, 2)
        running.await_keys(1, 2)
        assert len(running.said) == 2
        assert "administrator" in running.said[0]
        assert "is back" in running.said[1]
        state = read_state(lake)
        assert state is not None
        assert (state.state, state.problem) == ("running", None)
    state = read_state(lake)
    assert state is not None
    assert state.state == "ended"


def relays() -> list[int]:
    """Pids of the relays that this process has started."""
    return [pid for pid in command.children() if b"relay.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_killed_relay(database: str, lake: Lake) -> None:
    """The process that empties the socket is killed: what it held is sent again, and nothing is lost or doubled."""
    with Running(database, lake) as running:
        insert(database, 1)
        running.await_keys(1)
        (relay,) = relays()
        os.kill(relay, signal.SIGKILL)
        insert(database, 2)
        running.await_keys(1, 2)
        running.await_said("is back")


def test_a_cut_network(database: str, lake: Lake) -> None:
    """Cut, then refused for a while, then slow: it goes on trying."""
    with Proxy(database) as proxy, Running(proxy.dsn, lake) as running:
        insert(database, 1)
        running.await_keys(1)
        proxy.delay(0.01)
        proxy.refuse()
        insert(database, 2)
        running.await_said("trying again")
        proxy.refuse(refuse=False)
        running.await_keys(1, 2)


def test_a_deaf_connection(database: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noticed although TCP says nothing; the walsender that was left behind, which never gives up, is ended."""
    monkeypatch.setattr(pace, "_DEAF_S", 1.0)
    dsn = make_conninfo(database, options="-c wal_sender_timeout=0")
    with Proxy(dsn) as proxy, Running(proxy.dsn, lake) as running:
        insert(database, 1)
        running.await_keys(1)
        left = reader_of(database)
        proxy.go_deaf()
        began = time.monotonic()
        insert(database, 2)
        running.await_keys(1, 2)
        assert time.monotonic() - began < 10
        assert "nothing has come from it" in running.said[0] or "no answer" in running.said[0]
        assert reader_of(database) != left


def test_deaf_while_it_connects(database: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to any question before the stream is not waited for longer."""
    monkeypatch.setattr(pace, "_DEAF_S", 0.5)
    asked = threading.Event()
    look = PublicationGuard.look
    with Proxy(make_conninfo(database, options="-c wal_sender_timeout=0")) as proxy:

        def deaf_at_first(self: PublicationGuard, control: psycopg.Connection[Row], since: Lsn) -> None:
            if not asked.is_set():
                proxy.go_deaf()
                asked.set()
            look(self, control, since)

        monkeypatch.setattr(PublicationGuard, "look", deaf_at_first)
        with Running(proxy.dsn, lake) as running:
            assert asked.wait(10)
            insert(database, 1)
            running.await_keys(1)
            assert "no answer for 0.5 s" in running.said[0]


def test_a_long_write(database: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server hears from us while `changes` is written, several times per `wal_sender_timeout`."""
    write, began, end = CaptureLog.append, threading.Event(), threading.Event()

    def slow(self: CaptureLog, *args: object) -> None:
        began.set()
        assert end.wait(30)
        write(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(CaptureLog, "append", slow)
    dsn = make_conninfo(database, options="-c wal_sender_timeout=600")
    with Running(dsn, lake) as running:
        insert(database, 1)
        assert began.wait(10)
        pid, replies = reader_of(database), set[object]()
        while len(replies) < 6:  # a third of the time-out each
            replies.add(reply_of(database))
        end.set()
        running.await_keys(1)
        assert running.said == []
        assert reader_of(database) == pid


def reply_of(dsn: str) -> object:
    """When the walsender last heard from us."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select reply_time from pg_stat_replication where application_name = 'auditlake'").fetchone()
    return row and row[0]


def test_what_happens_elsewhere_moves_the_slot(database: str, lake: Lake, server: Server) -> None:
    """Writes of another database and of a table that is not published; the lake says how current it is."""
    execute(database, "create table unpublished (id int)")
    other = server.create_database()
    try:
        with mock.patch("auditlake.capture.capture._IDLE_COMMIT_S", 0.1), Running(database, lake) as running:
            for dsn, table in ((server.dsn(other), "foreign_table"), (database, "unpublished")):
                execute(
                    dsn,
                    f"create table if not exists {table} (id int)",
                    f"insert into {table} select generate_series(1, 1000)",
                )
                with connect(dsn) as conn:
                    end = wal_end(conn)
                await_passed(database, lake, end)
            assert running.failure is None
            assert oracle.changes(lake) == []
    finally:
        server.drop_database(other)


def await_passed(dsn: str, lake: Lake, end: WalEnd) -> None:
    """Wait until the slot has passed the end of a log, and the lake knows that it is complete up to its time."""
    await_true(lambda: oracle.confirmed_flush(dsn) >= end.lsn)
    await_true(lambda: (found := read_positions(lake)) is not None and found.current_us >= end.time_us)


def test_a_slot_that_is_lost_meanwhile(database: str, lake: Lake) -> None:
    """Final: what it would have sent is missing, from where the lake ends."""
    with Running(database, lake) as running:
        insert(database, 1)
        running.await_keys(1)
        with psycopg.connect(database, autocommit=True) as conn:
            while True:
                try:
                    conn.execute("select pg_drop_replication_slot('auditlake')")
                    break
                except psycopg.errors.ObjectInUse:
                    conn.execute(KILL)
        failure = running.await_failure()
    assert isinstance(failure, WrongSource)
    found = read_positions(lake)
    assert found is not None
    assert f"slot auditlake is gone: changes from {found.acknowledged} on are missing" in failure.message


def test_a_refusal_is_final(database: str, lake: Lake, server: Server) -> None:
    """A password that is wrong from now on ends the run; nobody tries it again and again."""
    execute(database, "drop role if exists reader", "create role reader superuser login password 'right'")
    try:
        dsn = make_conninfo(database, host="127.0.0.1", port=server.port, user="reader", password="right")
        with Running(dsn, lake) as running:
            insert(database, 1)
            running.await_keys(1)
            execute(database, "alter role reader password 'changed'", KILL)
            failure = running.await_failure()
        assert isinstance(failure, SourceUnreachable)
        assert not failure.retryable
        assert "password authentication failed" in failure.message
        assert "right" not in "".join([failure.message, *running.said])
    finally:
        execute(database, "drop role reader")
