"""Capture after a lost connection: it reconnects, and every change is in the log once and in order."""

import itertools
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest import mock

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.capture import preconditions
from auditlake.capture.change_log import CaptureLog
from auditlake.capture.publication_watch import PublicationWatch
from auditlake.capture.shape_watch import ShapeWatch
from auditlake.errors import SourceUnreachable, WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lake.records import read_capture_state
from auditlake.lsn import Lsn
from auditlake.pgoutput.decoder import EPOCH_UNIX_US
from auditlake.replication import start
from auditlake.replication.stream import CopyBoth
from auditlake.settings.streaming_mode import Streaming
from auditlake.source.connection import Row, answering_within, connect, connect_replication
from auditlake.source.server import WalEnd, wal_end
from auditlake.source.slot import SlotReader, read_reader
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.proxy import Proxy
from tests.read_lake import positions_of
from tests.running import Running, await_true
from tests.server import Server, execute

pytestmark = pytest.mark.pg


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A lake of one empty table."""
    execute(database, "create table t (id int primary key)")
    return make_lake(database, tmp_path / "lake")


def insert(dsn: str, key: int) -> None:
    """Commit one row."""
    execute(dsn, f"insert into t values ({key})")


KILL = "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null"


def reader_of(dsn: str) -> int | None:
    """Return the pid of the walsender."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select active_pid from pg_replication_slots where slot_name = 'auditlake'").fetchone()
    return None if row is None else row[0]


def test_a_killed_walsender_is_reported_once_and_replaced(database: str, lake: Lake) -> None:
    """The loss is reported with its reason, and the return; the state for `status` follows."""
    with Running(database, lake) as running:
        insert(database, 1)
        running.await_keys(1)
        execute(database, KILL)
        insert(database, 2)
        running.await_keys(1, 2)
        assert len(running.said) == 2
        assert "administrator" in running.said[0]
        assert "is back" in running.said[1]
        state = read_capture_state(lake)
        assert state is not None
        assert (state.state, state.problem) == ("running", None)
    state = read_capture_state(lake)
    assert state is not None
    assert state.state == "ended"


def test_capture_continues_after_a_network_failure(database: str, lake: Lake) -> None:
    """The connection is cut, refused for a while, then slow."""
    with Proxy(database) as proxy, Running(proxy.dsn, lake) as running:
        insert(database, 1)
        running.await_keys(1)
        proxy.delay(0.01)
        proxy.refuse()
        insert(database, 2)
        running.await_said("trying again")
        proxy.refuse(refuse=False)
        running.await_keys(1, 2)


def test_a_silent_connection_is_replaced(database: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detected without an error of TCP; the old walsender, which has no timeout, is terminated."""
    monkeypatch.setattr(start, "_SILENCE_S", 1.0)
    dsn = make_conninfo(database, options="-c wal_sender_timeout=0")
    with Proxy(dsn) as proxy, Running(proxy.dsn, lake) as running:
        insert(database, 1)
        running.await_keys(1)
        left = reader_of(database)
        proxy.go_deaf()
        insert(database, 2)
        running.await_keys(1, 2)
        assert "nothing was received from it" in running.said[0] or "no answer" in running.said[0]
        assert reader_of(database) != left


def test_a_silent_server_during_connect_is_given_up(database: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout also applies to queries before the stream starts."""
    monkeypatch.setattr(start, "_SILENCE_S", 0.5)
    asked = threading.Event()
    look = PublicationWatch.refresh
    with Proxy(make_conninfo(database, options="-c wal_sender_timeout=0")) as proxy:

        def silent_at_first(self: PublicationWatch, control: psycopg.Connection[Row], since: Lsn) -> None:
            if not asked.is_set():
                proxy.go_deaf()
                asked.set()
            look(self, control, since)

        monkeypatch.setattr(PublicationWatch, "refresh", silent_at_first)
        with Running(proxy.dsn, lake) as running:
            assert asked.wait(10)
            insert(database, 1)
            running.await_keys(1)
            assert "no answer for 0.5 s" in running.said[0]


def test_what_a_dead_reader_sent_is_no_sign_of_life(database: str, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its walsender goes through that late on a loaded machine, and then releases the slot."""
    looks = list[SlotReader | None]()

    def look(control: psycopg.Connection[Row], slot: str) -> SlotReader | None:
        looks.append(read_reader(control, slot))
        return looks[-1]

    monkeypatch.setattr(preconditions, "read_reader", look)
    replication = connect_replication(database)
    start.start_stream(replication, "auditlake", "auditlake", Lsn(0), Streaming("off"))
    with ThreadPoolExecutor(1) as pool, closing(CopyBoth(replication)) as dead:
        running = pool.submit(capture, database, lake)
        await_true(lambda: looks)
        sent_us = int(time.time() * 1_000_000) - 60_000_000
        dead.send(struct.pack(">cqqqqc", b"r", 0, 0, 0, sent_us - EPOCH_UNIX_US, b"\0"))
        await_true(lambda: (looks[-1] and looks[-1].replied_us == sent_us) or running.done())
        dead.close()
        running.result()


@pytest.mark.usefixtures("lake")
def test_a_connection_that_ends_before_its_stream_starts_is_tried_again(database: str) -> None:
    """The server was stopped between the two, say: its client then finds no connection, which is no bug."""
    with closing(connect_replication(database)) as replication:
        execute(database, f"select pg_terminate_backend({replication.info.backend_pid})")
        with pytest.raises(SourceUnreachable):
            start.start_stream(replication, "auditlake", "auditlake", Lsn(0), Streaming("off"))


@pytest.mark.parametrize(
    ("replied_us", "is_alive"), [(None, False), (100, False), (101, True), (200, True), (201, False)]
)
def test_only_a_reply_between_two_looks_is_a_sign_of_life(replied_us: int | None, is_alive: bool) -> None:  # noqa: FBT001
    """One from the future comes from a clock that is ahead, and may have been sent before."""
    first = SlotReader(7, "auditlake", "a", "2026-11-28", 50, 100)
    assert replace(first, replied_us=replied_us, read_us=200).replied_since(first) == is_alive
    assert not replace(first, pid=8, replied_us=150, read_us=200).replied_since(first)
    assert not replace(first, replied_us=150, read_us=200).replied_since(None)


def test_only_a_server_without_an_answer_is_silent(database: str) -> None:
    """Between two statements a store may be slow: the source is not lost."""
    with connect(database) as conn:
        with answering_within(conn, 0.5):
            conn.execute("select 1")
            time.sleep(0.7)
            conn.execute("select 1")
            with pytest.raises(SourceUnreachable, match=r"no answer for 0\.5 s") as failure:
                conn.execute("select pg_sleep(10)")
        assert failure.value.retryable


def test_every_statement_on_a_lost_connection_fails_as_the_source(database: str) -> None:
    """Not only those that read the catalog; also if the loss is known already."""
    with connect(database) as conn:
        execute(database, f"select pg_terminate_backend({conn.info.backend_pid}, 10000)")
        for _ in range(2):
            with pytest.raises(SourceUnreachable) as failure:
                conn.execute("set lock_timeout = 0")
            assert failure.value.retryable


@pytest.mark.parametrize(
    "slow", [(CaptureLog, "append", 1), (ShapeWatch, "check", 1), (ShapeWatch, "check", 2), (CaptureLog, "partial", 1)]
)
def test_status_updates_are_sent_while_the_lake_is_slow(
    database: str, lake: Lake, monkeypatch: pytest.MonkeyPatch, slow: tuple[type, str, int]
) -> None:
    """Several updates per `wal_sender_timeout`: while the log is opened, the catalog compared, a batch written."""
    kind, name, call = slow
    do, began, end, calls = getattr(kind, name), threading.Event(), threading.Event(), itertools.count(1)

    def slowly(*args: object) -> object:
        if next(calls) == call:
            began.set()
            assert end.wait(30)
        return do(*args)

    monkeypatch.setattr(kind, name, slowly)
    dsn = make_conninfo(database, options="-c wal_sender_timeout=600")
    with Running(dsn, lake) as running:
        insert(database, 1)
        assert began.wait(10)
        pid, replies = reader_of(database), set[object]()
        while len(replies) < 6:  # a third of the time-out each
            assert reader_of(database) == pid
            replies.add(reply_of(database))
        end.set()
        running.await_keys(1)
        assert running.said == []
        assert reader_of(database) == pid


def test_a_database_cannot_end_every_stream_by_its_timeout(database: str, lake: Lake) -> None:
    """Its owner may set a millisecond, in which no reader answers."""
    execute(database, f"alter database {conninfo_to_dict(database)['dbname']} set wal_sender_timeout = 1")
    with Running(database, lake) as running:
        insert(database, 1)
        running.await_keys(1)
        pid, replies = reader_of(database), set[object]()
        while len(replies) < 2:
            replies.add(reply_of(database))
        assert (reader_of(database), running.said) == (pid, [])


def test_a_database_cannot_have_each_change_sent_as_a_stream(database: str, lake: Lake) -> None:
    """Its owner may set a mode for tests of the server, in which a transaction of thousands of rows takes minutes."""
    name = conninfo_to_dict(database)["dbname"]
    execute(database, f"alter database {name} set debug_logical_replication_streaming = 'immediate'")
    sent = "select total_txns, stream_count from pg_stat_replication_slots where slot_name = 'auditlake'"
    with Running(database, lake) as running:
        insert(database, 1)
        running.await_keys(1)
        found = (0, 0)
        with psycopg.connect(database, autocommit=True) as conn:
            while not found[0]:
                found = next(iter(conn.execute(sent).fetchall()))
    assert found[1] == 0


def reply_of(dsn: str) -> object:
    """Return the time of our last status update."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select reply_time from pg_stat_replication where application_name = 'auditlake'").fetchone()
    return row and row[0]


def test_writes_of_other_databases_advance_the_slot(database: str, lake: Lake, server: Server) -> None:
    """Also writes of unpublished tables; the lake's currency advances."""
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
    """Wait until the slot has passed an end of the log, and the lake's currency its time."""
    await_true(lambda: oracle.confirmed_flush(dsn) >= end.lsn)
    await_true(lambda: (found := read_positions(lake)) is not None and found.current_us >= end.time_us)


def test_a_slot_lost_while_capture_runs_is_final(database: str, lake: Lake) -> None:
    """The error has the missing range, from the lake's position."""
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
    found = positions_of(lake)
    assert f"slot auditlake is gone: changes from {found.acknowledged} on are missing" in failure.message


def test_a_refused_password_ends_the_run(database: str, lake: Lake, server: Server) -> None:
    """A password that is wrong from now on is not retried."""
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
