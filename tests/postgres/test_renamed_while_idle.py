"""Columns that are renamed while no row changes, found in the catalog: now shows the names that they have now."""

from pathlib import Path

import pytest

import auditlake
from auditlake.lake.layout import Lake
from tests import command
from tests.capture_lake import make_lake
from tests.server import execute

pytestmark = pytest.mark.pg

_EXCHANGE = "alter table t rename id to x; alter table t rename other to id; alter table t rename x to other"


def test_now_shows_the_names_after_a_change_without_rows(database: str, tmp_path: Path) -> None:
    """Two columns exchange their names, so the former ones would be wrong and not only old."""
    settings = ["--source", database, "--lake", str(tmp_path / "lake")]
    execute(database, "create table t (id int primary key, other int)", "insert into t values (1, 10)")
    assert command.run_here(["bootstrap", *settings]).code == 0
    execute(database, f"begin; {_EXCHANGE}; commit")
    assert command.run_here(["follow", "--until-current", *settings]).code == 0
    assert list(auditlake.Lake(tmp_path / "lake").as_of().table("t").texts()) == [{"other": "1", "id": "10"}]
    done = command.run_here(["sql", "--lake", str(tmp_path / "lake"), "--format", "json", "select id, other from t"])
    assert done.stdout.splitlines() == ['{"id": 10, "other": 1}'], done.stdout + done.stderr


def _views(lake: Lake, *options: str) -> command.Done:
    return command.run_here(["views", "--engine", "duckdb", *options, "--lake", lake.root])


def test_exported_views_show_the_names_after_a_change_without_rows(database: str, tmp_path: Path) -> None:
    """Two names are exchanged, one column is dropped, and the table gets another name; nothing is applied."""
    execute(
        database, "create table t (id int primary key, other int, gone int)", "create table idle (id int primary key)"
    )
    lake = make_lake(database, tmp_path / "lake")
    execute(database, f"begin; {_EXCHANGE}; commit", "alter table t drop gone", "alter table t rename to s")
    assert command.capture_here(database, lake).code == 0
    columns = 'select "id" as "other", "other" as "id"\n'
    for options in ([], ["--as-of", "now"]):
        made = _views(lake, *options)
        assert made.code == 0, made.stderr
        assert f'create or replace view "public"."s" as\n{columns}' in made.stdout
    function = _views(lake, "--parametrised").stdout
    assert 'create or replace macro "public"."s_as_of"(_at_lsn)' in function
    assert 'select "id" as "other", "other" as "id", case when _at_lsn < ' in function


def test_exported_views_refuse_a_moment_with_a_column_that_is_not_applied(database: str, tmp_path: Path) -> None:
    """Its value in existing rows is in no history; live views show the table as it was at its position."""
    execute(database, "create table t (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    execute(database, "alter table t add c int default 7")
    assert command.capture_here(database, lake).code == 0
    refused = _views(lake, "--as-of", "now")
    assert refused.code == 7
    assert "asked for public.t as of" in refused.stderr
    assert '"c"' not in _views(lake).stdout
