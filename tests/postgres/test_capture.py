"""Capture on a server: every change is in the log once and in order, and only durable changes are acknowledged."""

import threading
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest

from auditlake.capture import capture as stage
from auditlake.capture.preconditions import CaptureSource
from auditlake.capture.supervisor import open_capture
from auditlake.delta.table import open_table
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.relations import read_relations
from auditlake.lsn import Lsn
from auditlake.replication.stream import BufferLimits
from auditlake.source.connection import connect
from auditlake.source.server import WalEnd, wal_end
from auditlake.temporal.moments import read_known, resolve
from auditlake.temporal.when import parse_when
from tests import oracle
from tests.capture_lake import make_lake
from tests.crash.killed import killed_at
from tests.read_lake import positions_of
from tests.running import Running, await_true
from tests.writers import LEDGER, SCHEMA, Writers

pytestmark = pytest.mark.pg

BIG = "0123456789abcdef" * 200  # beyond the 2 kB that stay in line
TABLE = "create table t (id int primary key, v text, big text); alter table t alter column big set storage external;"


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A lake of two empty tables."""
    with psycopg.connect(database) as conn:
        conn.execute(TABLE + "create table u (id int primary key)")
    return make_lake(database, tmp_path / "lake")


def commit(dsn: str, *statements: str) -> int:
    """Run statements in one transaction; return its xid."""
    with psycopg.connect(dsn) as conn:
        for statement in statements:
            conn.execute(statement)
        row = conn.execute("select pg_current_xact_id()::text::bigint").fetchone()
    assert row is not None
    return int(row[0]) & 0xFFFF_FFFF


def capture(dsn: str, lake: Lake, lagging: threading.Event | None = None) -> WalEnd:
    """Capture up to the end of the log; return that end."""
    with connect(dsn) as conn:
        end = wal_end(conn)
    open_capture(CaptureSource(dsn, require_manifest(lake)), lake, threading.Event()).run(end, lagging=lagging)
    return end


def shown(row: dict[str, Any]) -> tuple[object, ...]:
    """Return the fields of a change that do not depend on time."""
    return tuple(row[name] for name in ("ordinal", "op", "table", "old", "new", "unchanged", "prefix", "content"))


def test_every_kind_of_change_is_in_the_log(database: str, lake: Lake) -> None:
    """Values have PostgreSQL's text, in order, with their transaction."""
    xids = [
        commit(database, "insert into t values (1, 'a', '" + BIG + "'), (2, null, '')"),
        commit(database, "update t set v = 'é' where id = 1", "update t set id = 3 where id = 2"),
        commit(database, "delete from t where id = 3", "insert into u values (7)"),
        commit(database, "select pg_logical_emit_message(true, 'why', 'because')", "truncate t, u"),
    ]
    commit(database, "select pg_logical_emit_message(false, 'lost', 'in no transaction')")
    capture(database, lake)
    rows = oracle.changes(lake)
    assert [shown(row) for row in rows] == [
        (0, "insert", "t", None, ["1", "a", BIG], None, None, None),
        (1, "insert", "t", None, ["2", None, ""], None, None, None),
        (0, "update", "t", None, ["1", "é", None], [2], None, None),
        (1, "update", "t", ["2", None, None], ["3", None, ""], None, None, None),
        (0, "delete", "t", ["3", None, None], None, None, None, None),
        (1, "insert", "u", None, ["7"], None, None, None),
        (0, "message", None, None, None, None, "why", b"because"),
        (1, "truncate", "t", None, None, None, None, None),
        (2, "truncate", "u", None, None, None, None, None),
    ]
    assert [row["xid"] for row in rows] == [xids[n] for n in (0, 0, 1, 1, 2, 2, 3, 3, 3)]
    assert {row["schema"] for row in rows if row["op"] != "message"} == {"public"}


def test_a_transaction_has_counts_context_and_commit_time(database: str, lake: Lake) -> None:
    """Tables and context come from the session, the commit time from the server's clock."""
    before = clock(database)
    message = """select pg_logical_emit_message(true, 'auditlake', '{"user": "ann"}')"""
    commit(database, message, "insert into t values (1, 'a'), (2, 'b')", "update t set v = 'c'", "delete from t")
    commit(database, "insert into u values (1)", "truncate u")
    after = clock(database)
    capture(database, lake)
    first, second = oracle.transactions(lake)
    names = ("inserts", "updates", "deletes", "truncates", "tables", "context")
    assert [first[name] for name in names] == [2, 2, 2, 0, ["public.t"], '{"app": {"user": "ann"}}']
    assert [second[name] for name in names] == [1, 0, 0, 1, ["public.u"], None]
    assert before <= first["time"] <= second["time"] <= after
    assert [first["time_mono"], second["time_mono"]] == [first["time"], second["time"]]
    assert [row["lsn"] for row in oracle.changes(lake)] == [first["lsn"]] * 7 + [second["lsn"]] * 2
    assert first["lsn"] < first["end_lsn"] <= second["lsn"] < second["end_lsn"]


def clock(dsn: str) -> datetime:
    """Return the server's time."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select clock_timestamp()").fetchone()
    assert row is not None
    return datetime.fromisoformat(str(row[0]))


@pytest.mark.parametrize(("time", "year"), [("-infinity", 1), ("infinity", 9999), ("0044-03-15 BC", 1)])
def test_a_commit_time_of_a_replication_origin_ends_nothing(database: str, lake: Lake, time: str, year: int) -> None:
    """It may be any time of PostgreSQL, and takes no moment but those beside it."""
    commit(database, "insert into u values (0)")
    origin = f"of_{database.split('dbname=')[1].split(maxsplit=1)[0]}"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("select pg_replication_origin_create(%s)", (origin,))
        conn.execute("select pg_replication_origin_session_setup(%s)", (origin,))
        with conn.transaction():
            conn.execute("select pg_replication_origin_xact_setup('0/1', %s)", (time,))
            conn.execute("insert into u values (1)")
        conn.execute("select pg_replication_origin_session_reset()")
        conn.execute("select pg_replication_origin_drop(%s)", (origin,))
    for n in (2, 3):
        commit(database, f"insert into u values ({n})")
    capture(database, lake)
    rows, known = oracle.transactions(lake), read_known(lake)
    assert rows[1]["time"].year == year
    for row in rows[2:]:
        assert resolve(known, parse_when(row["time"].isoformat(), datetime.now(UTC))) == row["lsn"]


def test_a_change_refers_to_the_columns_of_its_time(database: str, lake: Lake) -> None:
    """A relation version is written once, also across restarts."""
    commit(database, "insert into t values (1, 'a')")
    capture(database, lake)
    commit(database, "alter table t drop column big, add column n numeric(5,1)", "insert into t values (2, 'b', 1)")
    capture(database, lake)
    commit(database, "update t set n = 2 where id = 2")
    capture(database, lake)
    relations = read_relations(lake)
    rows = oracle.changes(lake)
    columns = [[column.name for column in relations[row["relation"]].columns] for row in rows]
    assert columns == [["id", "v", "big"], ["id", "v", "n"], ["id", "v", "n"]]
    assert [row["new"] for row in rows] == [["1", "a", None], ["2", "b", "1.0"], ["2", "b", "2.0"]]
    assert open_table(lake.relations).to_pyarrow_table().num_rows == 2


def test_a_restart_neither_loses_nor_duplicates_a_change(database: str, lake: Lake) -> None:
    """Several runs write the same log as one."""
    for number in range(4):
        commit(database, f"insert into t values ({number}, 'a')")
        capture(database, lake)
        capture(database, lake)
    assert [row["new"][0] for row in oracle.changes(lake)] == ["0", "1", "2", "3"]
    assert len(oracle.transactions(lake)) == 4


SMALL_PARTS = """
import auditlake.capture.capture as capture
from auditlake.replication.stream import BufferLimits
capture._FULL = BufferLimits(frames=500, size_bytes=50_000)
"""


def test_a_transaction_in_parts_is_invisible_until_complete(database: str, lake: Lake) -> None:
    """After two kills between parts each change is in the log once."""
    commit(database, "insert into t select n, 'v' from generate_series(1, 4000) n", "delete from t where id > 3000")
    arguments: list[str | Path] = ["capture", "--until-current", "--source", database, "--lake", lake.root]
    killed_at(After.PART, arguments, times=3, code=SMALL_PARTS)
    assert open_table(lake.changes).to_pyarrow_table().num_rows >= 3 * 400
    assert oracle.changes(lake) == []
    killed_at(After.PART, arguments, times=5, code=SMALL_PARTS)
    assert oracle.changes(lake) == []
    capture(database, lake)
    found = oracle.changes(lake)
    assert Counter(row["op"] for row in found) == {"insert": 4000, "delete": 1000}
    assert [row["ordinal"] for row in found] == list(range(5000))
    (transaction,) = oracle.transactions(lake)
    assert (transaction["inserts"], transaction["deletes"]) == (4000, 1000)
    assert open_table(lake.changes).to_pyarrow_table().num_rows == 5000


def test_unpublished_writes_advance_the_slot(database: str, lake: Lake) -> None:
    """A database with only unpublished writes retains no WAL, and the lake's currency advances."""
    before = oracle.confirmed_flush(database)
    commit(database, "create table elsewhere (id int)", "insert into elsewhere select generate_series(1, 10000)")
    end = capture(database, lake)
    assert oracle.changes(lake) == []
    assert positions_of(lake).acknowledged >= end.lsn
    assert positions_of(lake).current_us >= end.time_us
    with closing(psycopg.connect(database, autocommit=True)) as conn:
        waiting = threading.Event()
        while oracle.confirmed_flush(database) < end.lsn:  # the walsender takes the last status after we are gone
            assert conn.closed == 0
            waiting.wait(0.01)
    assert before < end.lsn


def test_what_another_thread_waits_for_is_recorded_at_once(
    database: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resync waits until an idle capture has passed its copies, which records that every ten seconds otherwise."""
    monkeypatch.setattr("auditlake.capture.capture._IDLE_COMMIT_S", 3600.0)
    begun, unpublished = positions_of(lake).acknowledged, "select pg_logical_emit_message(false, 'x', 'y')"
    with Running(database, lake) as running:
        commit(database, unpublished)
        await_true(lambda: positions_of(lake).acknowledged > begun)
        commit(database, unpublished)
        with connect(database) as conn:
            running.await_passed(wal_end(conn).lsn)


def test_only_durable_changes_are_acknowledged(database: str, tmp_path: Path) -> None:
    """While others write, the slot's position, read first, is never ahead of the lake's."""
    with psycopg.connect(database) as conn:
        conn.execute(SCHEMA)
    lake = make_lake(database, tmp_path / "lake", without=[LEDGER])
    stop = threading.Event()
    running = open_capture(CaptureSource(database, require_manifest(lake)), lake, stop)
    thread = threading.Thread(target=running.run, args=(None,))
    thread.start()
    seen: set[Lsn] = set()
    try:
        with Writers(database) as writers:
            deadline, looks = time.monotonic() + 60, 0
            while looks < 20 or (len(seen) < 2 and time.monotonic() < deadline):  # a busy machine acknowledges rarely
                looks += 1
                writers.await_transactions(3)
                confirmed = oracle.confirmed_flush(database)
                assert confirmed <= positions_of(lake).acknowledged
                seen.add(confirmed)
    finally:
        stop.set()
        thread.join()
    assert len(seen) > 1
    capture(database, lake)
    found = Counter((row["table"], row["op"]) for row in oracle.changes(lake))
    with psycopg.connect(database) as conn:
        counted = {(tab, op): n for tab, op, n in conn.execute("select tab, op, count(*) from ledger group by 1, 2")}
    assert counted == found


@pytest.mark.parametrize("limits", [{"_LAG_S": -60.0}, {"_FULL": BufferLimits(500, 50_000)}])
def test_lag_shows_while_commits_are_old_or_a_transaction_is_large(
    database: str, lake: Lake, limits: dict[str, Any]
) -> None:
    """Not for one that has just come, and not after the end."""
    lagging = mock.Mock(spec=threading.Event)
    commit(database, "insert into t values (0)")
    capture(database, lake, lagging)
    lagging.set.assert_not_called()
    with mock.patch.multiple(stage, **limits):
        commit(database, "insert into t select n from generate_series(1, 2000) n")
        capture(database, lake, lagging)
    lagging.set.assert_called()
    assert lagging.method_calls[-1] == mock.call.clear()


def test_lag_ends_once_all_of_the_source_is_passed(database: str, lake: Lake) -> None:
    """A source that is quiet after it was caught up with has no new commit that would show it."""
    lagging = mock.Mock(spec=threading.Event)
    with mock.patch.object(stage, "_LAG_S", -60.0):
        commit(database, "insert into t values (0)")
        with psycopg.connect(database) as conn:
            conn.execute("select pg_logical_emit_message(false, 'other', repeat('x', 100))")
        capture(database, lake, lagging)
    assert lagging.method_calls == [mock.call.set(), mock.call.clear(), mock.call.clear()]  # the last at the end
