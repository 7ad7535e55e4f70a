"""Tails that `apply` folds without Spark: tables without a key, TRUNCATE, and columns that change meanwhile."""

from collections import Counter
from pathlib import Path
from typing import NoReturn

import pytest

import auditlake
from auditlake.apply import large_rows, parts
from auditlake.apply.apply import apply_pending
from auditlake.delta import row_groups
from auditlake.engine import Engine
from auditlake.lake.layout import Lake
from auditlake.temporal.moments import read_known
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import start
from tests.server import execute, install_trigger
from tests.without_spark import WITHOUT_SPARK

pytestmark = pytest.mark.pg

_SCHEMA = (
    "create table keyed (id int primary key, v text, gone int, code varchar(3))",
    "create table bag (v text, gone int, real float8)",
    "alter table bag replica identity full",
    "create table blank ()",
    "alter table blank replica identity full",
)
_CHANGES = {
    "inserts": "insert into keyed select n, 'old', n, n from generate_series(1, 5) n; "
    "insert into bag select 'same', n % 2, '-0' from generate_series(1, 6) n; "
    "insert into blank select from generate_series(1, 3)",
    "equal rows": "delete from blank where ctid = (select min(ctid) from blank); "
    "delete from bag where ctid in (select ctid from bag limit 2); "
    "update bag set v = 'other' where ctid in (select ctid from bag where v = 'same' limit 1); "
    "insert into bag values ('same', 1, '0'), ('same', 1, '-0'), (null, null, 'NaN')",
    "a column added": "alter table keyed add c text; insert into keyed values (6, 'new', 6, '6', 'c'); "
    "update keyed set v = 'set', c = 'now' where id = 1; alter table bag add c int; "
    "insert into bag values ('same', 1, 0, null)",
    "a column renamed": "alter table keyed rename v to w; update keyed set w = 'renamed' where id = 2; "
    "alter table bag rename v to w; update bag set w = 'renamed' where w = 'other'",
    "a column dropped": "alter table keyed drop gone; delete from keyed where id = 3; "
    "alter table bag drop gone; delete from bag where w is null",
    "a wider type": "alter table keyed alter code type varchar(9); update keyed set code = 'longer' where id = 4",
    "a table renamed": "alter table bag rename to sack",
    "truncate": "truncate keyed, sack; insert into keyed values (1, 'again', 'b', null); "
    "insert into sack values ('x', 1, 1)",
}


def test_follow_keeps_a_history_where_spark_is_not_installed(database: str, tmp_path: Path) -> None:
    """From the first copy to the answer."""
    execute(database, "create table t (id int primary key, v text)", "insert into t values (1, 'old')")
    settings = ["--source", database, "--lake", str(tmp_path / "lake")]
    for command in (["bootstrap"], ["follow", "--until-current"]):
        with start([*command, *settings], code=WITHOUT_SPARK) as process:
            _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
        execute(database, "update t set v = v || '+'")
    versions = auditlake.Lake(tmp_path / "lake").sql("select v from t for system_time all order by _from_lsn")
    assert [row for (row,) in versions] == ["old", "old+"]


def _without_spark() -> NoReturn:
    pytest.fail("Spark was started")


def test_a_column_that_fills_in_older_rows_parks_the_table(database: str, tmp_path: Path) -> None:
    """Only Spark folds it, also if no row was changed since; the engine is DuckDB."""
    execute(database, "create table t (id int primary key)")
    install_trigger(database)
    lake = make_lake(database, tmp_path / "lake")
    for statement in ("insert into t values (1)", "alter table t add c int default 5", "insert into t values (2)"):
        execute(database, statement)
        capture(database, lake)
        apply_pending(_without_spark, lake, engine=Engine.DUCKDB)
    (parked,) = read_known(lake).parked.values()
    assert parked.needs_spark
    assert "a new column has a value in older rows" in parked.reason
    assert read_known(lake).tables[parked.table].position <= parked.lsn


def test_what_else_a_transaction_holds_does_not_count(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large row of another table, or a forged message, parks no table with few changes."""
    execute(database, "create table t (id int primary key)", "create table large (id int primary key, v text)")
    lake = make_lake(database, tmp_path / "lake")
    few = "insert into t values (1); truncate t; insert into t values (2)"
    forged = "select pg_logical_emit_message(true, 'auditlake:ddl', repeat('x', 10000))"
    execute(database, f"insert into large values (1, repeat('x', 10000)); {few}", f"{forged}; truncate t; {few}")
    monkeypatch.setattr(row_groups, "GROUP_BYTES", 2000)
    capture(database, lake)
    monkeypatch.setattr(parts, "HELD_BYTES", 2000)
    monkeypatch.setattr(large_rows, "LARGE_BYTES", 2000)
    apply_pending(_without_spark, lake, engine=Engine.DUCKDB)
    (parked,) = read_known(lake).parked.values()
    assert parked.table.table == "large"
    assert list(auditlake.Lake(lake.root).as_of().table("t").texts()) == [{"id": "2"}]


def _versions(lake: Lake) -> list[str]:
    """Return the versions of the table with a key, with those of changes that are not applied."""
    question = "select * from public.keyed for system_time all"
    return sorted(map(repr, auditlake.Lake(lake.root).sql(question, dialect="spark")))


def test_histories_equal_postgresql_without_spark(database: str, tmp_path: Path) -> None:
    """All changes applied at once; `tests/release` applies after each of them."""
    check_histories(database, tmp_path, len(_CHANGES))


def check_histories(database: str, folder: Path, applied: int) -> None:
    """Apply after so many changes, and compare every state between two; and all versions, before and after."""
    execute(database, *_SCHEMA)
    install_trigger(database)
    lake = make_lake(database, folder / "lake")
    moments = []
    for number, statements in enumerate(_CHANGES.values(), start=1):
        execute(database, *(f"set search_path = public; {each}" for each in statements.split("; ")))
        bag = "bag" if number < 7 else "sack"
        moments.append(oracle.take_moment(database, ["keyed", "blank", bag]))
        capture(database, lake)
        versions = _versions(lake)
        if number % applied == 0 or number == len(_CHANGES):
            apply_pending(_without_spark, lake)
            assert _versions(lake) == versions
    assert not read_known(lake).parked
    for moment in moments:
        for name, rows in moment.states.items():
            found = auditlake.Lake(lake.root).as_of(str(moment.lsn)).table(name).texts()
            assert Counter(tuple(row.values()) for row in found) == rows, (name, moment)
    assert oracle.assert_periods(lake)
