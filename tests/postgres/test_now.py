"""Now, after changes without row events and with nothing written afterwards: exact, as PostgreSQL shows it."""

from collections import Counter
from pathlib import Path

import pytest

import auditlake
from auditlake.errors import NotAnswerable
from tests import command, oracle
from tests.server import execute, install_trigger

pytestmark = pytest.mark.pg

_PARTITIONED = """
create table {0} (id int, k text, v int, primary key (id, k)) partition by list (k);
create table {0}_a partition of {0} for values in ('a');
create table {0}_b partition of {0} for values in ('b');
insert into {0} select n, k, n from generate_series(1, 10) n, unnest(array['a', 'b']) k;
"""
_PLAIN = "create table {0} (id int primary key, v int); insert into {0} select n, n from generate_series(1, 10) n"
_CHANGES = {
    "attached": (
        _PARTITIONED,
        (
            "create table rows (id int not null, k text not null, v int); insert into rows values (1, 'n', 54945);"
            " alter table attached attach partition rows for values in ('n')"
        ),
    ),
    "detached": (_PARTITIONED, "alter table detached detach partition detached_b"),
    "dropped": (_PARTITIONED, "drop table dropped_b"),
    "emptied": (_PARTITIONED, "truncate emptied_b"),
    "multiplied": (_PLAIN, "alter table multiplied alter v type bigint using v * 1000"),
    "wider": (_PLAIN, "alter table wider alter v type bigint"),
    "with_column": (_PLAIN, "alter table with_column add c int default 5"),
    "without_column": (_PLAIN, "alter table without_column drop v"),
}
_EXACT = frozenset({"wider", "with_column", "without_column"})


def _state(lake: Path, table: str) -> Counter[tuple[str | None, ...]]:
    return Counter(tuple(row.values()) for row in auditlake.Lake(lake).as_of().table(table).texts())


def _is_now(dsn: str, lake: Path) -> None:
    now = oracle.take_moment(dsn, list(_CHANGES))
    for table, rows in now.states.items():
        assert _state(lake, table) == rows, table
        summed = command.run_here(["sql", "--format", "csv", "--lake", lake, f"select count(*) n from {table}"])
        assert summed.stdout.split() == ["n", str(rows.total())], summed.stderr


def test_now_is_exact_when_follow_has_reached_its_target(database: str, tmp_path: Path) -> None:
    """With the trigger; `tests/release` has one without it."""
    check_now(database, tmp_path / "lake", with_trigger=True)


def check_now(database: str, lake: Path, *, with_trigger: bool) -> None:
    """Capture goes on until it has passed the new snapshots, although nothing is written any more."""
    settings = ["--source", database, "--lake", str(lake)]
    execute(database, *(schema.format(name) for name, (schema, _) in _CHANGES.items()))
    if with_trigger:
        install_trigger(database)
    assert command.run_here(["bootstrap", *settings]).code == 0
    _is_now(database, lake)
    exact = _EXACT if with_trigger else frozenset()  # which Spark would fold
    execute(database, *(change for table, (_, change) in _CHANGES.items() if table not in exact))
    done = command.run_here(["follow", "--until-current", *settings])
    assert done.code == 0, done.stderr
    _is_now(database, lake)


def test_now_is_exact_after_a_resync(database: str, tmp_path: Path) -> None:
    """Until then it is refused; also while only capture and apply run."""
    lake, settings = tmp_path / "lake", ["--source", database, "--lake", str(tmp_path / "lake")]
    execute(database, *(schema.format(name) for name, (schema, _) in _CHANGES.items()))
    assert command.run_here(["bootstrap", *settings]).code == 0
    execute(database, *(change for _, change in _CHANGES.values()))
    assert command.run_here(["capture", "--until-current", *settings]).code == 0
    assert command.run_here(["apply", "--until-current", "--lake", lake]).code == 0
    for table in _CHANGES.keys() - {"with_column", "without_column"}:
        with pytest.raises(NotAnswerable):
            _state(lake, table)
    assert command.run_here(["resync", *settings]).code == 0
    _is_now(database, lake)


def test_a_table_that_has_its_name_back_is_known_by_it_now(database: str, tmp_path: Path) -> None:
    """A row was sent under the name in between, which is the last that the stream has shown."""
    lake, settings = tmp_path / "lake", ["--source", database, "--lake", str(tmp_path / "lake")]
    execute(database, _PLAIN.format("t"), "create publication auditlake for all tables")
    assert command.run_here(["bootstrap", *settings]).code == 0
    execute(
        database,
        "alter table t rename to other",
        "update other set v = 0 where id = 1",
        "alter table other rename to t",
    )
    assert command.run_here(["capture", "--until-current", *settings]).code == 0
    assert _state(lake, "t") == oracle.take_moment(database, ["t"]).states["t"]
    with pytest.raises(NotAnswerable, match=r"that table is public\.t then"):
        _state(lake, "other")
