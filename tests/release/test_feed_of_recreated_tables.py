"""The feed of tables that are created again: complete, or refused by name."""

from pathlib import Path

import pytest

import auditlake
from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from tests import command
from tests.capture_once import capture
from tests.feed_changes import changes_of
from tests.server import execute

pytestmark = pytest.mark.pg


@pytest.mark.parametrize("listed", [True, False])
def test_a_table_created_again_is_included(database: str, tmp_path: Path, listed: bool) -> None:  # noqa: FBT001
    """Its changes are complete if the publication has all tables; else those before its snapshot are missed by name."""
    execute(database, "create table t (id int primary key); create table other (id int primary key)")
    if not listed:
        execute(database, "create publication auditlake for all tables")
    lake = Lake(tmp_path / "lake")
    bootstrap: list[str | Path] = ["bootstrap", "--table", "public.*", "--source", database, "--lake", lake.root]
    assert command.run_here(bootstrap).code == 0
    execute(database, "insert into t values (1)", "insert into other values (1)")
    capture(database, lake)
    with auditlake.changes(lake.root, tables=["t"]) as feed:
        execute(database, "drop table t", "create table t (code int primary key)", "insert into t values (2)")
        capture(database, lake)
        before = feed.take(0.1)
        assert command.run_here(bootstrap).code == 0
        execute(database, "insert into t values (3)")
        capture(database, lake)
        if listed:
            assert before == []
            with pytest.raises(NotAnswerable, match=r"public.t is another table since .* are missing"):
                feed.take(10)
            with pytest.raises(NotAnswerable, match=r"public.t is another table since .* are missing"):
                changes_of(lake, tables=["t"])
            expected = [("t", "insert", {"id": 1}), ("t", "insert", {"code": 3})]
            assert changes_of(lake, tables=["t"], allow_gaps=True) == expected
        else:
            changes = [change.key for each in (*before, *feed.take(10)) for change in each.changes]
            assert changes == [{"code": 2}, {"code": 3}]
            expected = [("t", "insert", {"id": 1}), ("t", "insert", {"code": 2}), ("t", "insert", {"code": 3})]
            assert changes_of(lake, tables=["t"]) == expected


def test_a_rewrite_of_a_table_copied_later_is_refused(database: str, tmp_path: Path) -> None:
    """Its history appears without a new relation version; the feed must still detect that changes are missing."""
    execute(database, "create table t (id int primary key)", "create publication auditlake for all tables")
    lake = Lake(tmp_path / "lake")
    bootstrap: list[str | Path] = ["bootstrap", "--table", "public.*", "--source", database, "--lake", lake.root]
    assert command.run_here(bootstrap).code == 0
    with auditlake.changes(lake.root, tables=["t"]) as feed:
        execute(database, "drop table t", "create table t (id int primary key)", "insert into t values (2)")
        capture(database, lake)
        assert [change.key for each in feed.take(10) for change in each.changes] == [{"id": 2}]
        assert command.run_here(bootstrap).code == 0
        execute(database, "vacuum full t")  # it might have been unlogged for some time
        capture(database, lake)
        execute(database, "insert into t values (3)")
        capture(database, lake)
        with pytest.raises(NotAnswerable, match=r"changes of .*t@.* are missing: it has a new file"):
            feed.take(10)
