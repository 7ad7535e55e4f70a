"""Streaming of large transactions in progress: `changes` equals that without streaming, row for row."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import psycopg
import pytest

from auditlake.capture import capture as stage
from auditlake.capture.preconditions import CaptureSource
from auditlake.capture.supervisor import open_capture
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.replication.stream import BufferLimits
from auditlake.settings.streaming_mode import Streaming, StreamingMode
from auditlake.source.connection import connect
from auditlake.source.server import wal_end
from tests import command, oracle
from tests.capture_lake import make_lake
from tests.crash.killed import killed_at
from tests.running import Running
from tests.server import install_trigger

pytestmark = pytest.mark.pg

TABLES = "create table t (id int primary key, v text); create table u (id int primary key, v text);"
SMALL_PARTS = """
import auditlake.capture.capture as capture
from auditlake.replication.stream import BufferLimits
capture._BATCH = BufferLimits(frames=100, size_bytes=10_000)
capture._FULL = BufferLimits(frames=500, size_bytes=50_000)
"""


Session: TypeAlias = psycopg.Connection[tuple[Any, ...]]


class Sessions:
    """Connections to one database, each with a transaction of its own, and the walsender that streams them."""

    def __init__(self, dsn: str, opened: ExitStack) -> None:
        self._dsn = dsn
        self._opened = opened
        self._control = opened.enter_context(psycopg.connect(dsn, autocommit=True))

    def begin(self) -> Session:
        """Open a session."""
        return self._opened.enter_context(psycopg.connect(self._dsn))

    def run(self, statement: str) -> None:
        """Run a statement in a transaction of its own."""
        self._control.execute(statement)

    def one(self, query: str) -> Any:
        """Read one value."""
        row = self._control.execute(query).fetchone()
        return None if row is None else row[0]

    def await_true(self, query: str) -> None:
        """Wait until a query returns true."""
        pause = threading.Event()
        while self.one(query) is not True:
            pause.wait(0.01)

    def await_confirmed(self, slot: str) -> None:
        """Wait until what was committed is acknowledged."""
        end = self.one("select pg_current_wal_lsn()")
        self.await_true(f"select confirmed_flush_lsn >= '{end}' from pg_replication_slots where slot_name = '{slot}'")

    def await_decoded(self) -> None:
        """Wait until the walsender has decoded up to the current end of the log."""
        self._control.execute("select pg_logical_emit_message(false, 'flush', '')")
        end = self.one("select pg_current_wal_insert_lsn()")
        self.await_true(f"select bool_or(sent_lsn >= '{end}') from pg_stat_replication")


@pytest.fixture
def sessions(database: str) -> Iterator[Sessions]:
    """A database of two tables with a minimal logical_decoding_work_mem."""
    with ExitStack() as opened:
        made = Sessions(database, opened)
        made.run(TABLES)
        made.run(f"alter database {made.one('select current_database()')} set logical_decoding_work_mem = '64kB'")
        yield made


@contextmanager
def capturing(dsn: str, lake: Lake, mode: StreamingMode) -> Iterator[None]:
    """Capture in the background, and then up to the end."""
    stop, source = threading.Event(), CaptureSource(dsn, require_manifest(lake), Streaming(mode))
    running = threading.Thread(target=open_capture(source, lake, stop).run, args=(None,))
    running.start()
    try:
        yield
    finally:
        stop.set()
        running.join()
    capture(dsn, lake, mode)


def capture(dsn: str, lake: Lake, mode: StreamingMode) -> None:
    """Capture up to the end of the log."""
    with connect(dsn) as conn:
        end = wal_end(conn)
    open_capture(CaptureSource(dsn, require_manifest(lake), Streaming(mode)), lake, threading.Event()).run(end)


def many(table: str, first: int, count: int) -> str:
    """Return an INSERT of enough rows to be streamed."""
    return f"insert into {table} select n, repeat('x', 100) from generate_series({first}, {first + count - 1}) n"


def work(sessions: Sessions, await_decoded: Callable[[], None]) -> None:
    """Run transactions that are interleaved, nested, rolled back, prepared, or alter their tables."""
    one, two, three = sessions.begin(), sessions.begin(), sessions.begin()
    one.execute(many("t", 1, 2000))
    two.execute(many("u", 1, 2000))
    sessions.run("insert into t values (-1, 'small')")
    await_decoded()
    one.execute("savepoint a")
    one.execute(many("t", 10_000, 2000))
    one.execute("savepoint b")
    one.execute("select pg_logical_emit_message(true, 'auditlake', '{\"user\": \"ann\"}')")
    one.execute(many("t", 20_000, 2000))
    one.execute("release b")
    await_decoded()
    one.execute("rollback to a")
    three.execute(many("u", 10_000, 2000))
    one.execute("update t set v = 'new' where id % 2 = 0 and id > 0")
    await_decoded()
    three.rollback()
    one.commit()
    redescribed(sessions, two, await_decoded)
    prepared(sessions, await_decoded)


def redescribed(sessions: Sessions, two: Session, await_decoded: Callable[[], None]) -> None:
    """Alter a table in a streamed transaction, roll it back, and alter it in another."""
    sessions.run("insert into t values (-2, 'small'); update t set v = null where id = -1")
    two.execute("savepoint c")
    two.execute("alter table u add column w int default 7")
    two.execute("insert into u select n, 'wide', n from generate_series(30000, 32000) n")
    await_decoded()
    two.execute("rollback to c")
    two.execute(many("u", 40_000, 10))
    sessions.run("delete from t where id = 1")
    two.commit()
    sessions.run("insert into u values (-1, 'small')")
    sessions.run("alter table u add column w int default 7")


def prepared(sessions: Sessions, await_decoded: Callable[[], None]) -> None:
    """Prepare two large transactions and end them, one each way."""
    for name, first in (("kept", 100_000), ("dropped", 200_000)):
        session = sessions.begin()
        session.execute(many("t", first, 2000))
        session.execute("update u set v = 'prepared' where id = 1") if name == "kept" else None
        session.execute(f"prepare transaction '{name}'")
    await_decoded()
    sessions.run("insert into t values (-3, 'small')")
    sessions.run("rollback prepared 'dropped'")
    sessions.run("commit prepared 'kept'")
    sessions.run("truncate t, u")


@pytest.mark.parametrize("mode", ["on", "parallel"])
def test_streaming_does_not_change_the_captured_rows(
    database: str, sessions: Sessions, tmp_path: Path, mode: StreamingMode
) -> None:
    """Rows of `changes` and `transactions`, with ordinals and relation versions."""
    plain = make_lake(database, tmp_path / "plain", name="plain")
    streamed = make_lake(database, tmp_path / "streamed", name="streamed")
    small = mock.patch.multiple(stage, _BATCH=BufferLimits(100, 10_000), _FULL=BufferLimits(500, 50_000))
    with small, capturing(database, streamed, mode):
        work(sessions, sessions.await_decoded)
    capture(database, plain, "off")
    expected = oracle.changes(plain)
    assert expected == oracle.changes(streamed)
    assert oracle.transactions(plain) == oracle.transactions(streamed)
    assert len(expected) == 2000 + 1 + 1000 + 2 + 2010 + 1 + 1 + 2001 + 1 + 2
    sessions.await_true("select stream_txns > 0 from pg_stat_replication_slots where slot_name = 'streamed'")
    sessions.await_true("select stream_txns = 0 from pg_stat_replication_slots where slot_name = 'plain'")


def test_messages_of_a_savepoint_that_is_rolled_back_have_no_effect(
    database: str, sessions: Sessions, tmp_path: Path
) -> None:
    """Neither an actor nor a command, although the server has sent both and does not say that they are rolled back.

    Afterwards capture streams again: the transaction that is open all the time a second time.
    """
    install_trigger(database)
    plain = make_lake(database, tmp_path / "plain", name="plain")
    streamed = make_lake(database, tmp_path / "streamed", name="streamed")
    with Running(database, streamed) as running:
        sessions.await_true("select bool_or(application_name = 'auditlake') from pg_stat_replication")
        one, two = sessions.begin(), sessions.begin()
        two.execute(many("t", 40_000, 2000))
        one.execute(many("t", 1, 2000))
        sessions.await_decoded()
        one.execute("savepoint a")
        one.execute("drop table u")
        one.execute("select pg_logical_emit_message(true, 'auditlake', '{\"user\": \"ann\"}')")
        one.execute(many("t", 10_000, 2000))
        sessions.await_decoded()
        one.execute("rollback to a")
        one.execute(many("t", 20_000, 10))
        one.commit()
        sessions.await_confirmed("streamed")
        two.execute(many("t", 50_000, 10))  # without a change, the server does not look whether it is too large
        sessions.await_true("select stream_txns > 2 from pg_stat_replication_slots where slot_name = 'streamed'")
        two.commit()
        sessions.await_confirmed("streamed")
    capture(database, plain, "off")
    assert oracle.changes(plain) == oracle.changes(streamed)
    assert oracle.transactions(plain) == oracle.transactions(streamed)
    assert not list(streamed.all_parked.rglob("*.json"))
    assert [said for said in running.said if "has rolled back a savepoint" in said]


@pytest.mark.usefixtures("sessions")
def test_a_transaction_that_the_server_cannot_stream_is_captured(database: str, tmp_path: Path) -> None:
    """PostgreSQL loses a table that a savepoint changed, that was rolled back, in a transaction that is still open."""
    plain = make_lake(database, tmp_path / "plain", name="plain")
    streamed = make_lake(database, tmp_path / "streamed", name="streamed")
    with psycopg.connect(database) as session:  # its table is not published
        session.execute("create table own (id int primary key, a text, b text)")
        session.execute("insert into own select n, repeat('s', 500), 'b' from generate_series(100, 700) n")
        session.execute("savepoint s")
        session.execute("alter table own add x int default 3")
        session.execute("insert into own select n, repeat('s', 500), 'b', 4 from generate_series(1000, 1700) n")
        session.execute("rollback to s")
        session.execute("insert into own select n, repeat('s', 500), 'b' from generate_series(2000, 2600) n")
        session.execute("alter table own drop b")
        session.execute("alter table own add b text")
        session.execute("delete from own")
        session.execute("insert into t values (1, 'v')")
    refused = "could not map filenumber"
    with psycopg.connect(database) as session, pytest.raises(psycopg.errors.InternalError, match=refused):
        session.execute(
            "select count(*) from pg_logical_slot_peek_binary_changes('streamed', null, null, 'proto_version', '2',"
            " 'publication_names', 'streamed', 'streaming', 'on')"
        )
    done = command.capture_here(database, streamed)
    assert (done.code, refused in done.stderr, "again without streaming, and all that" in done.stderr) == (
        0,
        True,
        True,
    )
    capture(database, plain, "off")
    assert oracle.changes(plain) == oracle.changes(streamed)
    assert len(oracle.changes(streamed)) == 1


def test_an_open_transaction_is_captured_after_a_kill(database: str, sessions: Sessions, tmp_path: Path) -> None:
    """Spooled messages are sent again although later commits were acknowledged, also after a kill between parts."""
    plain = make_lake(database, tmp_path / "plain", name="plain")
    streamed = make_lake(database, tmp_path / "streamed", name="streamed")
    arguments: list[str | Path] = ["capture", "--source", database, "--lake", streamed.root, "--streaming", "on"]
    large = sessions.begin()
    large.execute(many("t", 1, 3000))
    with command.start(arguments) as process:
        sessions.await_true("select bool_or(application_name = 'auditlake') from pg_stat_replication")
        sessions.run("insert into u values (1, 'small')")
        end = sessions.one("select pg_current_wal_lsn()")
        sessions.await_true(
            f"select confirmed_flush_lsn >= '{end}' from pg_replication_slots where slot_name = 'streamed'"
        )
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert len(oracle.changes(streamed)) == 1
    large.execute(many("t", 10_000, 1000))
    large.commit()
    sessions.run("insert into u values (2, 'small')")
    killed_at(After.PART, [*arguments, "--until-current"], times=3, code=SMALL_PARTS)
    capture(database, streamed, "on")
    capture(database, plain, "off")
    expected = oracle.changes(plain)
    assert len(expected) == 4002
    assert expected == oracle.changes(streamed)
    assert oracle.transactions(plain) == oracle.transactions(streamed)
