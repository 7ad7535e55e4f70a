"""Capture against a real server: what was done is in the log, once and in order, and nothing else is acknowledged."""

import threading
from collections import Counter
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable

from auditlake.capture.claiming import Source
from auditlake.capture.running import open_capture
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.positions import Positions, read_positions
from auditlake.lake.relations import read_relations
from auditlake.postgres.connection import connect
from auditlake.postgres.server import WalEnd, wal_end
from tests import oracle
from tests.capture_lake import make_lake
from tests.crash.killed import killed_at
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


def capture(dsn: str, lake: Lake) -> WalEnd:
    """Capture everything up to now; return what now was."""
    with connect(dsn) as conn:
        end = wal_end(conn)
    open_capture(Source(dsn, require_manifest(lake)), lake, threading.Event()).run(end)
    return end


def positions_of(lake: Lake) -> Positions:
    """Where the lake stands."""
    found = read_positions(lake)
    assert found is not None
    return found


def shown(row: dict[str, Any]) -> tuple[object, ...]:
    """The part of a change that does not depend on when it happened."""
    return tuple(row[name] for name in ("ordinal", "op", "table", "old", "new", "unchanged", "prefix", "content"))


def test_what_was_done_is_in_the_log(database: str, lake: Lake) -> None:
    """Every kind of change, as PostgreSQL spells its values, in order and by its transaction."""
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


def test_transactions_are_counted(database: str, lake: Lake) -> None:
    """Counts, tables, the context its session gave, and a commit time by the server's clock."""
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
    """The server's time."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select clock_timestamp()").fetchone()
    assert row is not None
    return datetime.fromisoformat(str(row[0]))


def test_a_relation_has_versions(database: str, lake: Lake) -> None:
    """Each change points at the columns its table had then; a version is written once, also over restarts."""
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
    assert DeltaTable(lake.relations).to_pyarrow_table().num_rows == 2


def test_a_restart_neither_loses_nor_doubles(database: str, lake: Lake) -> None:
    """Runs of any length make one log."""
    for number in range(4):
        commit(database, f"insert into t values ({number}, 'a')")
        capture(database, lake)
        capture(database, lake)
    assert [row["new"][0] for row in oracle.changes(lake)] == ["0", "1", "2", "3"]
    assert len(oracle.transactions(lake)) == 4


SMALL_PARTS = """
import auditlake.capture.capture as capture
from auditlake.postgres.buffer import Limits
capture._FULL = Limits(frames=500, size_bytes=50_000)
"""


def test_a_transaction_in_parts(database: str, lake: Lake) -> None:
    """Killed among its parts, twice, it stays invisible until it is whole, and then each change is there once."""
    commit(database, "insert into t select n, 'v' from generate_series(1, 4000) n", "delete from t where id > 3000")
    arguments: list[str | Path] = ["capture", "--until-current", "--source", database, "--lake", lake.root]
    killed_at(After.PART, arguments, times=3, code=SMALL_PARTS)
    assert DeltaTable(lake.changes).to_pyarrow_table().num_rows >= 3 * 400
    assert oracle.changes(lake) == []
    killed_at(After.PART, arguments, times=5, code=SMALL_PARTS)
    assert oracle.changes(lake) == []
    capture(database, lake)
    found = oracle.changes(lake)
    assert Counter(row["op"] for row in found) == {"insert": 4000, "delete": 1000}
    assert [row["ordinal"] for row in found] == list(range(5000))
    (transaction,) = oracle.transactions(lake)
    assert (transaction["inserts"], transaction["deletes"]) == (4000, 1000)
    assert DeltaTable(lake.changes).to_pyarrow_table().num_rows == 5000


def test_what_is_not_ours_is_passed(database: str, lake: Lake) -> None:
    """A database that writes elsewhere alone does not hold back its log, and the lake knows how current it is."""
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


def test_nothing_is_acknowledged_that_is_not_durable(database: str, tmp_path: Path) -> None:
    """Looked at while others write: the slot first, then the lake, is never the other way round."""
    with psycopg.connect(database) as conn:
        conn.execute(SCHEMA)
    lake = make_lake(database, tmp_path / "lake", without=[LEDGER])
    stop = threading.Event()
    running = open_capture(Source(database, require_manifest(lake)), lake, stop)
    thread = threading.Thread(target=running.run, args=(None,))
    thread.start()
    seen = set()
    try:
        with Writers(database) as writers:
            for _ in range(20):
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
