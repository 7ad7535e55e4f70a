"""Tables from which others inherit: PostgreSQL's dialect has their rows only with ONLY, as PostgreSQL means it."""

from pathlib import Path

import psycopg
import pytest

from tests import command
from tests.server import execute, install_trigger

pytestmark = pytest.mark.pg

_BEFORE = (
    "create table animals (id int primary key, name text)",
    "create table dogs (tricks int, primary key (id)) inherits (animals)",
    "create table later (id int primary key)",
    "create table plain (id int primary key)",
    "create table parts (id int primary key) partition by range (id)",
    "create table parts_a partition of parts for values from (0) to (10)",
    "insert into animals values (1, 'cat')",
    "insert into dogs values (2, 'rex', 3)",
    "insert into later values (1)",
    "insert into parts values (1)",
)
_CHILD = (
    "create table child (primary key (id)) inherits (later)",
    "insert into child values (2)",
)
_REFUSED = "from which other tables inherit or did, at line 1"


def _answer(lake: Path, sql: str) -> list[str]:
    done = command.run_here(["sql", "--format", "csv", "--lake", lake, sql])
    assert done.code == 0, done.stderr
    return done.stdout.split()[1:]


def _refusal(lake: Path, sql: str) -> str:
    done = command.run_here(["sql", "--format", "csv", "--lake", lake, sql])
    assert done.code == 7, (done.code, done.stdout)
    return done.stderr


def _of_postgresql(dsn: str, sql: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [str(value) for (value,) in conn.execute(sql.encode())]


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_rows_of_inheriting_tables_are_not_left_out_silently(
    database: str, tmp_path: Path, *, with_trigger: bool
) -> None:
    """Also from the first child on that is made while capture follows, and after the last one is gone."""
    lake, settings = tmp_path / "lake", ["--source", database, "--lake", str(tmp_path / "lake")]
    execute(database, *_BEFORE)
    if with_trigger:
        install_trigger(database)
    assert command.run_here(["bootstrap", *settings]).code == 0
    assert _REFUSED in _refusal(lake, "select id from animals")
    assert _REFUSED in _refusal(lake, "select 1 where exists (select 1 from public.animals a)")
    assert _REFUSED in _refusal(lake, "select id, _op from animals for system_time all")
    assert "ONLY parts" in _refusal(lake, "select id from only parts")
    for sql in ("select id from only animals", "select id from dogs", "select id from later", "select id from parts"):
        assert _answer(lake, sql) == _of_postgresql(database, sql)
    whole = "select id from only animals union all select id from only dogs order by 1"
    assert _answer(lake, whole) == _of_postgresql(database, "select id from animals order by 1")

    execute(database, *_CHILD)
    assert command.run_here(["capture", "--until-current", *settings]).code == 0
    assert _REFUSED in _refusal(lake, "select id from later")
    assert _answer(lake, "select id from only later") == _of_postgresql(database, "select id from only later")
    assert _answer(lake, "select id from plain") == []

    execute(database, "drop table child", "analyze later", "insert into later values (3)")
    assert command.run_here(["capture", "--until-current", *settings]).code == 0
    assert _REFUSED in _refusal(lake, "select id from later")
    assert _answer(lake, "select count(*) n from only later") == ["2"]
