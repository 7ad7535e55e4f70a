"""`auditlake status` on a server: tables without a history, and the exit codes of --check."""

import json
from pathlib import Path

import psycopg
import pytest

from tests.capture_lake import make_lake
from tests.command import run_here

pytestmark = pytest.mark.pg


def test_status_lists_tables_without_a_history_and_sets_the_exit_code(database: str, tmp_path: Path) -> None:
    """New tables are in the publication, unfollowed ones are not; the cause determines the code.

    Nothing waits for a migration that holds a table.
    """
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table kept (id int primary key)")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("create table late (id int primary key); alter publication auditlake add table late")
        conn.execute("create table aside (id int primary key)")
        asked: list[str | Path] = ["status", "--lake", lake.root, "--source"]
        with psycopg.connect(database) as migration:
            migration.execute("lock table kept, late, aside in access exclusive mode")
            found = json.loads(run_here([*asked, database, "--json"]).stdout)
        assert (found["new_tables"], found["unfollowed_tables"]) == (["public.late"], ["public.aside"])
        assert (found["check_code"], found["remedy"]) == (3, "Start auditlake follow.")
        done = run_here([*asked, database, "--check"])
        assert (done.code, done.stdout.splitlines()[0].partition(",")[0]) == (3, "nothing captures")
        done = run_here([*asked, "postgresql://127.0.0.1:1/shop", "--check", "--json"])
        assert (done.code, json.loads(done.stdout)["new_tables"]) == (4, None)
        shown = run_here([*asked, database]).stdout
        assert all(f"public.{name}" in shown for name in ("kept", "late", "aside"))
        conn.execute("select pg_drop_replication_slot('auditlake')")
    done = run_here([*asked, database, "--check"])
    assert (done.code, "slot auditlake is gone" in done.stdout) == (5, True)
