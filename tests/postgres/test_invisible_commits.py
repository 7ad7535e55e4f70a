"""A commit that is in the stream before the catalog shows it: its backend waits for a synchronous standby."""

import threading
from pathlib import Path

import numpy as np
import psycopg
import pytest

import auditlake
from auditlake.capture.change_log import CaptureLog
from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.source.connection import connect
from auditlake.source.server import are_visible
from tests import command
from tests.capture_lake import make_lake
from tests.postgres.test_masking import SMALL_PARTS
from tests.read_lake import positions_of
from tests.running import await_true
from tests.server import Server, chosen_version, execute

pytestmark = pytest.mark.pg

_PATIENCE_S = 3
_WAITING = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"


def _require(server: Server, standby: str) -> None:
    execute(
        server.dsn("postgres"), f"alter system set synchronous_standby_names = '{standby}'", "select pg_reload_conf()"
    )


def _count(dsn: str, query: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _watermark(lake: Lake) -> Lsn:
    positions = positions_of(lake)
    return positions.watermark


def _commit_that_waits(server: Server, dsn: str, change: str) -> threading.Thread:
    """Run statements in a session whose commit is in the log, and invisible until the server requires nobody."""
    _require(server, "nobody")
    threading.Event().wait(1)  # the checkpointer puts it in force
    session = threading.Thread(target=execute, args=(dsn, change))
    session.start()
    await_true(lambda: _count(dsn, _WAITING))
    return session


def test_a_commit_is_durable_only_when_the_catalog_shows_it(tmp_path: Path) -> None:
    """Else a schema change in it would be noticed after it, and its moment be answered in the former shape."""
    with Server(chosen_version()) as server:
        dsn = server.dsn(server.create_database("d"))
        execute(dsn, "create table t (id int primary key)")
        lake = make_lake(dsn, tmp_path / "lake")
        execute(dsn, "insert into t values (1)")
        assert command.capture_here(dsn, lake).code == 0
        before = _watermark(lake)
        session = _commit_that_waits(server, dsn, "begin; insert into t values (2); alter table t add b int; commit")
        with command.start(["capture", "--source", dsn, "--lake", lake.root]) as capture:
            threading.Event().wait(_PATIENCE_S)
            early = _watermark(lake)
            _require(server, "")
            session.join()
            await_true(lambda: _watermark(lake) > before)
            capture.terminate()
            assert capture.wait() == 0
        changed = _watermark(lake)
        assert command.capture_here(dsn, lake).code == 0
    with pytest.raises(NotAnswerable, match="its shape in between is not known"):
        list(auditlake.Lake(lake.root).as_of(str(changed)).table("t"))
    assert early == before


def test_a_part_of_a_commit_is_durable_only_when_the_catalog_shows_it(tmp_path: Path) -> None:
    """Else columns that it changed itself would be looked for in a catalog of before."""
    with Server(chosen_version()) as server:
        dsn = server.dsn(server.create_database("d"))
        execute(dsn, "create table t (id int primary key)")
        lake = make_lake(dsn, tmp_path / "lake")
        before = _watermark(lake)
        session = _commit_that_waits(server, dsn, "insert into t select generate_series(1, 3000)")
        with command.start(["capture", "--source", dsn, "--lake", lake.root], code=SMALL_PARTS) as capture:
            await_true(lambda: _count(dsn, "select count(*) from pg_replication_slots where active"))
            threading.Event().wait(_PATIENCE_S)
            early = CaptureLog(lake).partial()
            _require(server, "")
            session.join()
            await_true(lambda: _watermark(lake) > before)
            capture.terminate()
            assert capture.wait() == 0
    assert early is None


def test_queries_see_ended_transactions_only(database: str) -> None:
    """Neither one that runs nor one to come."""
    with connect(database) as conn, psycopg.connect(database) as other:
        row = other.execute("select pg_current_xact_id()::xid::text::bigint").fetchone()
        assert row is not None
        xid = np.array([row[0]], np.uint32)
        assert not are_visible(conn, xid)
        assert not are_visible(conn, xid + np.uint32(1000))
        other.commit()
        assert are_visible(conn, xid)
        assert are_visible(conn, np.array([], np.uint32))
