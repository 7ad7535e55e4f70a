"""Retention beside follow: versions, changes and transactions expire while others are committed to the same tables."""

import signal
from pathlib import Path

import psycopg
import pytest

import auditlake
from auditlake.delta.sql import read_newest, select
from auditlake.erasure.retention import expire
from auditlake.lake.expiries import expired_upto
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.relation import TableName
from auditlake.settings.retention_rules import RetentionPeriods
from tests import command
from tests.capture_lake import make_lake
from tests.expiry import AT_ONCE
from tests.read_lake import history_of
from tests.running import await_true

pytestmark = pytest.mark.pg

_ROUNDS, _ROWS, _APPLIED_S = 24, 9, 240


def _wal_end(conn: psycopg.Connection) -> Lsn:
    row = conn.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def _table(lake: Lake) -> HistoryTable:
    return history_of(lake, TableName("public", "t"))


def _changes_left(lake: Lake) -> int:
    """Return the number of changes, all of which are after their horizon."""
    changes = read_newest(lake.changes)
    assert changes is not None
    rows = select("select count(*) as changes, min(lsn) as first from t", t=changes).to_pylist()[0]
    assert 0 < expired_upto(changes) < (rows["first"] or LAST_LSN)
    return int(rows["changes"])


def test_versions_and_changes_expire_while_follow_commits(database: str, tmp_path: Path) -> None:
    """Every state from the last horizon on is that of the source, and follow reports no failure.

    Nothing keeps a change but that it is not applied yet.
    """
    kept, said = RetentionPeriods((("public.t", AT_ONCE),), AT_ONCE, AT_ONCE), list[str]()
    states: dict[Lsn, dict[int, int]] = {}
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, v int)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute(f"insert into t select n, 0 from generate_series(0, {_ROWS - 1}) n")
        arguments: list[str | Path] = ["follow", "--source", database, "--lake", lake.root]
        with command.start(arguments) as follow:
            for number in range(_ROUNDS):
                before = _wal_end(conn)
                conn.execute("update t set v = %s where id %% 3 = %s", (number, number % 3))
                states[_wal_end(conn)] = dict(conn.execute("select id, v from t").fetchall())
                if number % 8 == 7:
                    await_true(lambda at=before: _table(lake).position >= at, _APPLIED_S)  # type: ignore[misc]
                expire(lake, kept, "tests", said.append)
            follow.send_signal(signal.SIGTERM)
            _, reported = follow.communicate(timeout=240)
        assert (follow.returncode, "error" in reported) == (0, False), reported
    done = command.run_here([*arguments, "--until-current"])
    assert done.code == 0, done.stderr
    horizon = _table(lake).horizon
    assert len(said) > 1
    assert _changes_left(lake) < _ROUNDS * _ROWS // 3
    assert _table(lake).first_snapshot_lsn < horizon
    asked = [lsn for lsn in states if lsn >= horizon]
    assert asked
    for lsn in asked:
        rows = auditlake.Lake(lake.root).as_of(str(lsn)).table("t")
        assert {row["id"]: row["v"] for row in rows} == states[lsn]
