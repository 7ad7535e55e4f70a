"""The slot and the publication that a lake records: they count, and other names are refused."""

from pathlib import Path

import psycopg
import pytest

from auditlake.lake.layout import Lake
from auditlake.query.exported_views import ENGINES, views_by_name
from auditlake.temporal.moments import read_known
from tests import command
from tests.capture_lake import make_lake
from tests.server import execute

pytestmark = pytest.mark.pg

_NAME = "al3"
_WRONG_SOURCE = 5


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A lake whose slot and publication have a name that is not the default."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
    return make_lake(database, tmp_path / "lake", name=_NAME)


@pytest.mark.parametrize("line", [["follow", "--until-current"], ["capture", "--until-current"], ["bootstrap"]])
def test_a_lake_goes_on_with_the_names_that_it_records(database: str, lake: Lake, line: list[str]) -> None:
    """Neither has to be repeated."""
    done = command.run_here([*line, "--source", database, "--lake", lake.root])
    assert done.code == 0, done.stderr


@pytest.mark.parametrize("option", ["--slot", "--publication"])
@pytest.mark.parametrize(
    "line",
    [
        ["follow", "--until-current"],
        ["capture", "--until-current"],
        ["bootstrap"],
        ["check"],
        ["status"],
        ["verify"],
        ["resync"],
        ["drop", "--yes"],
    ],
    ids=lambda line: line[0],
)
def test_another_name_is_refused(database: str, lake: Lake, line: list[str], option: str) -> None:
    """By every command that would use it, before it does anything."""
    done = command.run_here([*line, option, "other", "--source", database, "--lake", lake.root])
    name = option.removeprefix("--")
    assert done.code == _WRONG_SOURCE
    assert f"this lake records {name} {_NAME}, the setting {name} is other" in done.stderr
    assert _slots(database) == [_NAME]


def test_check_warns_of_a_slot_that_is_gone(database: str, lake: Lake) -> None:
    """The database is ready, and the lake cannot go on."""
    line: list[str | Path] = ["check", "--source", database, "--lake", lake.root]
    assert "is gone" not in command.run_here(line).stderr
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("select pg_drop_replication_slot(%s)", [_NAME])
    assert f"warning: slot {_NAME} of this lake is gone" in command.run_here(line).stderr


def test_drop_asks_about_the_names_that_the_lake_records(database: str, lake: Lake) -> None:
    """It would drop those."""
    line: list[str | Path] = ["drop", "--source", database, "--lake", lake.root]
    assert f"drop slot {_NAME} and publication {_NAME}?" in command.run_here(line).stderr
    assert _slots(database) == [_NAME]
    assert command.run_here([*line, "--yes"]).code == 0
    assert _slots(database) == []


def test_no_table_can_take_the_name_of_another_one_s_history(database: str, tmp_path: Path) -> None:
    """A table that was created again has a history with its OID, and anyone may call a table so."""
    execute(database, "create table a (id int primary key, b text)")
    lake = make_lake(database, tmp_path / "lake")
    dropped = _oids(database)["a"]
    execute(database, "drop table a", "create table a (id int primary key, b text)")
    names = ["a", f"a@{dropped}", f"a@{_oids(database)['a']}"]
    execute(database, *(f'create table "{name}" (id int primary key, b text)' for name in names[1:]))
    execute(database, *(f"insert into \"{name}\" values ({n}, 'x')" for n, name in enumerate(names)))
    execute(database, *(f'alter publication auditlake add table "{name}"' for name in names))
    options: list[str | Path] = ["--source", database, "--lake", lake.root, "--engine", "duckdb"]
    assert command.run_here(["bootstrap", *options]).code == 0
    execute(database, *(f"update \"{name}\" set b = 'y'" for name in names))
    assert command.run_here(["follow", "--until-current", *options]).code == 0
    for n, name in enumerate(names):
        asked = f'select id, b from "{name}" for system_time all order by b'
        found = command.run_here(["sql", asked, "--lake", lake.root, "--format", "csv"])
        assert found.stdout.split() == ["id,b", f"{n},x", f"{n},y"], found.stderr
    views = {name.table: table.oid for name, table in views_by_name(read_known(lake), ENGINES["duckdb"]).items()}
    assert {name: oid for name, oid in views.items() if oid != dropped} == _oids(database)
    assert dropped in views.values()


def _oids(database: str) -> dict[str, int]:
    with psycopg.connect(database) as conn:
        return dict(conn.execute("select relname::text, relid::bigint from pg_stat_user_tables").fetchall())


def _slots(database: str) -> list[str]:
    with psycopg.connect(database) as conn:
        query = "select slot_name::text from pg_replication_slots where database = current_database()"
        return [name for (name,) in conn.execute(query).fetchall()]
