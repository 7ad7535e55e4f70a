"""Nothing here stops the application: with a capture that was killed, and with a table that is locked for long.

`test_ddl_trigger` and `test_shape_watch` show the same for a trigger that fails, `test_snapshot_session` for a copy.
"""

import json
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import auditlake
from auditlake.lake.layout import Lake
from auditlake.source import lock_waits
from tests import command
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.running import await_free_slots, await_true

pytestmark = pytest.mark.pg

_WORK = (
    "insert into t values (1), (2)",
    "alter table t add v text",
    "update t set v = 'x'",
    "create table made (id int primary key); insert into made values (1); drop table made",
    "truncate t",
)


def _execute(dsn: str, *statements: str) -> None:
    """Run statements; each has two seconds, also for locks."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("set statement_timeout = '2s'")
        for statement in statements:
            conn.execute(statement.encode())


def _captured(lake: Lake, table: str) -> int:
    feed = auditlake.changes(lake.root, since="beginning", follow=False, tables=[table], allow_gaps=True)
    return sum(len(list(each.changes)) for each in feed)


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A lake of two tables."""
    _execute(database, "create table t (id int primary key); create table other (id int primary key)")
    return make_lake(database, tmp_path / "lake")


def test_a_killed_capture_stops_neither_writes_nor_migrations(database: str, lake: Lake) -> None:
    """The server retains WAL for it, which status reports with its limit; nothing is lost afterwards."""
    settings: list[str | Path] = ["--source", database, "--lake", lake.root]
    with command.start(["capture", *settings]) as running:
        _execute(database, "insert into other values (1)")
        await_true(lambda: _captured(lake, "other") == 1)
        running.kill()
    await_free_slots(database)
    _execute(database, *_WORK, "insert into other select generate_series(2, 9)")
    done = command.run_here(["status", "--json", *settings])
    found = json.loads(done.stdout)
    assert (found["slot_active_pid"], found["slot_wal_status"]) == (None, "reserved")
    assert found["retained_bytes"] > 0
    capture(database, lake)
    assert _captured(lake, "other") == 9
    assert _captured(lake, "t") == 5


def test_a_locked_table_delays_nothing_but_itself(database: str, lake: Lake) -> None:
    """Capture and check go on; the session that holds it is not disturbed."""
    settings: list[str | Path] = ["--source", database, "--lake", lake.root]
    with closing(psycopg.connect(database)) as owner:
        owner.execute("lock table t in access exclusive mode")
        owner.execute("insert into t values (1)")
        _execute(
            database, "insert into other values (1)", "alter table other add v int", "insert into other values (2)"
        )
        capture(database, lake)
        assert _captured(lake, "other") == 2
        checked = command.run_here(["check", *settings])
        owner.commit()
    assert (checked.code, checked.stdout.splitlines()[0]) == (0, "ready: 2 tables can be followed")
    capture(database, lake)
    assert _captured(lake, "t") == 1


def test_a_locked_table_delays_no_copy_of_another(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named. CREATE INDEX CONCURRENTLY and VACUUM hold such a lock for hours.

    A publication is created with all of its tables, or not at all.
    """
    monkeypatch.setattr(lock_waits, "LOCK_TIMEOUT_S", 0.3)
    _execute(database, "create table locked (id int primary key)", "create table other (id int primary key)")
    _execute(database, "insert into other values (2)")
    lake = Lake(tmp_path / "lake")
    settings: list[str | Path] = ["--source", database, "--lake", lake.root]
    every = ["--table", "public.*"]
    with closing(psycopg.connect(database)) as owner:
        owner.execute("lock table locked in share mode")
        held = f"because of pid {owner.info.backend_pid} of postgres, which holds SHARE"
        done = command.run_here(["bootstrap", *settings])
        assert (done.code, f"publication auditlake could not be created in time {held}" in done.stderr) == (3, True)
        _execute(database, "create publication auditlake")
        done = command.run_here(["bootstrap", *settings, *every])
        assert (done.code, f"table public.locked could not be published in time {held}" in done.stderr) == (3, True)
    assert list(auditlake.Lake(lake.root).sql("select * from other")) == [(2,)]
    assert command.run_here(["bootstrap", *settings, *every]).code == 0
    assert list(auditlake.Lake(lake.root).sql("select * from locked")) == []
