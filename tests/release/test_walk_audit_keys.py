"""Audit commands of a row whose key was changed before other columns became the key."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from auditlake.apply.apply import apply_pending
from auditlake.lake.layout import Lake
from tests.capture_once import capture
from tests.command import run_here
from tests.s3_server import chosen_lake
from tests.server import execute, install_trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_MADE = "create table t (id int primary key, n int not null, v text)"
_ROWS = "insert into t values (1, 10, 'a'), (2, 20, 'b')"
_BY_N, _BY_ID = (f"alter table t drop constraint t_pkey, add primary key ({name})" for name in ("n", "id"))
BEFORE_THE_KEY = {
    "the new key, without old rows": f"update t set n = 20 where id = 1; update t set n = 10 where id = 1; {_BY_N}",
    "a row that is deleted": f"delete from t where id = 1; {_BY_N}",
    "under a key in between": f"{_BY_N}; update t set id = 3 where n = 10; update t set id = 1 where n = 10; {_BY_ID}",
}


def _bootstrapped(database: str, root: Path, *statements: str) -> Lake:
    execute(database, *statements)
    lake = chosen_lake(root)
    assert run_here(["bootstrap", "--table", "public.*", "--source", database, "--lake", lake.root]).code == 0
    return lake


def test_a_row_is_not_followed_to_before_other_columns_became_the_key(
    database: str, spark: "SparkSession", tmp_path: Path
) -> None:
    """An old row from before has the former key only, so the new key of that moment is not known."""
    made = "create table t (id int not null, n int primary key, v text)"
    lake = _bootstrapped(database, tmp_path, made, "insert into t values (1, 1, 'a')")
    rekey = "alter table t drop constraint t_pkey, add primary key (id, n); insert into t values (2, 2, 'b')"
    execute(database, "update t set n = 5", rekey, "update t set v = 'c' where id = 1")
    capture(database, lake)
    apply_pending(lambda: spark, lake)
    row = run_here(["row", "t", "1", "5", "--json", "--lake", lake.root])
    assert row.code == 0, row
    assert [json.loads(each)["changed"] for each in row.stdout.splitlines()] == [{"v": {"old": "a", "new": "c"}}]
    assert run_here(["blame", "t", "1", "5", "--lake", lake.root]).code == 7


def test_a_transaction_that_changes_rows_before_the_key_is_refused(
    database: str, spark: "SparkSession", tmp_path: Path
) -> None:
    """Old rows from before the change have the former key only, so they are not folded under the new one."""
    made = "create table t (id int not null, n int primary key)"
    lake = _bootstrapped(database, tmp_path, made, "insert into t values (1, 1)")
    rekey = "alter table t drop constraint t_pkey, add primary key (id, n)"
    execute(database, f"update t set n = 5 where id = 1; {rekey}; insert into t values (2, 2)")
    capture(database, lake)
    apply_pending(lambda: spark, lake)
    refused = run_here(["deleted", "t", "--lake", lake.root])
    assert (refused.code, refused.stdout) == (7, "")
    assert "in a transaction that changed rows before" in refused.stderr


@pytest.mark.parametrize("changes", BEFORE_THE_KEY.values(), ids=BEFORE_THE_KEY)
def test_a_transaction_that_changes_rows_only_before_the_key_is_refused(
    database: str, spark: "SparkSession", tmp_path: Path, changes: str
) -> None:
    """The DDL trigger reports the change at the commit of these rows, although none in the new shape is sent."""
    lake = _bootstrapped(database, tmp_path, _MADE, _ROWS)
    install_trigger(database)
    execute(database, changes)
    capture(database, lake)
    for apply in (lambda: None, lambda: apply_pending(lambda: spark, lake)):
        apply()
        asked = run_here(["sql", "select * from t", "--engine", "spark", "--lake", lake.root])
        assert (asked.code, asked.stdout) == (7, "")
        assert "in a transaction that changed rows before" in asked.stderr


@pytest.mark.parametrize("trigger", [True, False])
@pytest.mark.parametrize("rekey", [_BY_N, "alter table t drop column id, add primary key (n)"])
def test_rows_are_followed_under_a_new_key(
    database: str, spark: "SparkSession", tmp_path: Path, rekey: str, *, trigger: bool
) -> None:
    """No row is in the transaction that changes the key, and later ones do not have a column that it dropped."""
    lake = _bootstrapped(database, tmp_path, _MADE, _ROWS)
    if trigger:
        install_trigger(database)
    execute(database, rekey, "update t set n = 30, v = 'c' where n = 10; delete from t where n = 20")
    capture(database, lake)
    for apply in (lambda: None, lambda: apply_pending(lambda: spark, lake)):
        apply()
        asked = run_here(["sql", "select n, v from t", "--format", "csv", "--engine", "spark", "--lake", lake.root])
        assert (asked.code, asked.stdout) == (0, "n,v\n30,c\n")


@pytest.mark.parametrize("change", ["delete from t where id = 1", "update t set v = 'c' where id = 1"])
def test_a_key_is_another_one_although_it_has_the_same_name(
    database: str, spark: "SparkSession", tmp_path: Path, change: str
) -> None:
    """The transaction that changes rows and the key also exchanges the names of both columns."""
    rows = "insert into t values (1, 4, 'a'), (2, 8, 'z'), (4, 9, 'y')"
    lake = _bootstrapped(database, tmp_path, "create table t (id int not null, n int primary key, v text)", rows)
    renamed = "alter table t rename n to x; alter table t rename id to n"
    rekey = "alter table t drop constraint t_pkey, add primary key (n)"
    execute(database, f"{change}; {renamed}; {rekey}; insert into t values (3, 3, 'b')")
    capture(database, lake)
    for apply in (lambda: None, lambda: apply_pending(lambda: spark, lake)):
        apply()
        asked = run_here(["sql", "select * from t", "--lake", lake.root])
        assert (asked.code, asked.stdout) == (7, "")
    assert "in a transaction that changed rows before" in asked.stderr
