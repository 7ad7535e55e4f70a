"""Added columns on a server: the decided missing value is the value of existing rows, or it stays undecided."""

from collections import Counter
from itertools import product
from pathlib import Path

import psycopg
import pytest

import auditlake
from auditlake.failpoints import After
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.schema.catalog_snapshot import (
    CatalogSnapshots,
    read_catalog_snapshot,
    read_catalog_snapshots,
    read_column,
)
from auditlake.schema.missing_values import decide, read_added
from auditlake.source.catalog import read_shapes
from auditlake.source.connection import connect, fetch, fetch_one
from auditlake.source.ddl_trigger import install_ddl_trigger
from tests import command, oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.crash.killed import killed_at
from tests.server import execute, install_trigger, oid_of

pytestmark = pytest.mark.pg

_SCHEMA = """
set search_path = public;
create table t (id int primary key, gone int, v text);
alter table t drop column gone;
insert into t values (1, 'a'), (2, 'b');
create table p (id int, k text, primary key (id, k)) partition by list (k);
create table p_a partition of p for values in ('a');
create table p_b (k text not null, gone int, id int not null);
alter table p_b drop column gone;
alter table p attach partition p_b for values in ('b');
insert into p values (1, 'a'), (2, 'b');
create domain positive as int check (value > 0);
"""
_DEFAULTS = (
    "int",
    "int default 5",
    "date default 'infinity'",
    "int[] default '{1,null}'",
    r"""text[] default array['a b', 'x"y', 'c\', null]""",
    "text default 'NULL'",
    "text default ''",
    r"""text default E'a"b\\c,{d}\n'""",
    "timestamptz default now()",
    "box default '((1,1),(0,0))'",
    "box[] default '{(1,1),(0,0);(2,2),(1,1)}'",
    "numeric(5,2) default 1.5",
    "char(5) default 'ab'",
    "bytea default '\\x00ff'",
    "jsonb default '{\"a\": 1}'",
    "float8 default '-0'",
)
_TEXT = "select max(case when {0} is not null then format('%s', {0}) end)"  # char::text would lose spaces
_NOT_KNOWN = (
    ("t", "int default (random() * 100)::int", ""),
    ("t", "serial", ""),
    ("t", "int generated always as identity", ""),
    ("t", "int generated always as (id * 2) stored", ""),
    ("t", "positive default 3", ""),
    ("t", "int default 4", "vacuum full t"),
    ("t", "int", "alter table t drop column c; alter table t add column c int default 3"),
    ("t", "int", "alter table t drop column c"),
    ("t", "int", "alter table t rename column c to d"),
    ("p", "int default 5", "vacuum full p_a"),
    ("p", "int default (random() * 100)::int", ""),
)


def test_a_catalog_snapshot_with_an_unknown_column_is_not_saved(database: str, tmp_path: Path) -> None:
    """A new file is saved; a table with a column unknown to the lake is not, until the column is known or gone."""
    with connect(database) as conn:
        conn.execute("create table public.t (id int primary key)")
        lake, name = make_lake(database, tmp_path / "lake"), TableName("public", "t")
        relation = oid_of(conn, "t")
        first = read_catalog_snapshot(lake, name)
        conn.execute("truncate public.t")
        capture(database, lake)
        second = read_catalog_snapshot(lake, name)
        assert first is not None
        assert second is not None
        assert (second.attributes, second.files.keys()) == (first.attributes, first.files.keys())
        assert second.files != first.files
        conn.execute("alter table public.t add column c int default 5")
        conn.execute("vacuum full public.t")
        CatalogSnapshots(lake).refresh(conn, {name: relation})
        conn.execute("insert into public.t values (1, 6)")
        capture(database, lake)
        assert read_catalog_snapshot(lake, name) == second
        conn.execute("alter table public.t drop column c")
        capture(database, lake)
        assert read_catalog_snapshot(lake, name) != second
        conn.execute("alter table public.t add column c int default 7")
        conn.execute("insert into public.t values (2, 8)")
        capture(database, lake)
    # Since the catalog showed the table without the column, the second one of this name is another column.
    first_added, second_added = (answer for _, answer in sorted(read_added(lake).items(), key=lambda item: item[0].lsn))
    assert first_added.value in {"5", None}
    assert (second_added.value, second_added.problem) == ("7", None)


def test_a_decided_missing_value_is_that_of_the_existing_rows(database: str) -> None:
    """The text is that of the rows, however the default changed afterwards; otherwise the value is undecided."""
    with connect(database) as conn:
        conn.execute(_SCHEMA.encode())
        tables = {name: oid_of(conn, name) for name in ("t", "p")}
        for name, oid in tables.items():
            for column in _DEFAULTS:
                snapshot = read_catalog_snapshots(conn, [oid])[0].snapshot
                conn.execute(
                    f"alter table {name} add column c {column}; alter table {name} alter column c drop default"
                )
                answer = decide(snapshot, read_column(conn, oid, "c"), Lsn(snapshot.lsn + 1))
                assert answer.problem is None
                shown = fetch(conn, f"select distinct case when c is not null then format('%s', c) end from {name}")
                assert shown == [(answer.value,)], column
                conn.execute(f"alter table {name} drop column c")
        for name, column, then in _NOT_KNOWN:
            snapshot = read_catalog_snapshots(conn, [tables[name]])[0].snapshot
            conn.execute(f"alter table {name} add column c {column}")
            for statement in then.split(";"):
                conn.execute(statement)
            answer = decide(snapshot, read_column(conn, tables[name], "c"), Lsn(snapshot.lsn + 1))
            assert answer.problem is not None, (column, then)
            conn.execute(f"alter table {name} drop column if exists c")


@pytest.mark.parametrize(
    "later",
    [
        "alter table {t} rename column {c} to {c}_later",
        "alter table {t} drop column {c}; alter table {t} add column {c} int",
        "vacuum full {t}",
        "alter table {t} rename to u; alter table u rename column {c} to z; update u set k = 'b' where id = 2; {back}",
    ],
)
def test_the_ddl_trigger_tells_the_value_whatever_happened_since(database: str, tmp_path: Path, later: str) -> None:
    """By the settings of capture, not by those of the session that added the column."""
    with connect(database) as conn:
        conn.execute(_SCHEMA.replace("insert into", "-- insert into").replace("v text", "k text").encode())
        lake = make_lake(database, tmp_path / "lake")
        install_ddl_trigger(conn)
        conn.execute("insert into t values (1, 'a'), (2, 'b'); insert into p values (1, 'a'), (2, 'b')")
        expected = {}
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("set datestyle = 'German'; set bytea_output = 'escape'; set timezone = 'Asia/Tokyo'")
            for table, (number, default) in product(("t", "p"), enumerate(_DEFAULTS)):
                column = f"c{number}"
                other.execute(f"alter table {table} add column {column} {default}".encode())
                oid = oid_of(conn, table)
                (expected[oid, column],) = fetch_one(conn, f"{_TEXT.format(column)} from {table}")
                back = f"alter table u rename column z to {column}; alter table u rename to {table}"
                for statement in later.format(t=table, c=column, back=back).split("; "):
                    other.execute(statement.encode())
    capture(database, lake)
    found = {(added.relation, added.column): answer for added, answer in reversed(read_added(lake).items())}
    assert {column: (text, None) for column, text in expected.items()} == {
        column: (found[column].value, found[column].problem) for column in expected
    }


def test_a_shape_has_no_missing_values(database: str) -> None:
    """They are values of rows; only that there is one is compared. 400 columns may have more than a jsonb can hold."""
    with connect(database) as conn:
        conn.execute("create table public.t (id int primary key); insert into public.t values (1)")
        conn.execute("alter table public.t add a text default 'value of a row', add b int")
        oid = oid_of(conn, "t")
        shape, _ = read_shapes(conn, [oid])[oid]
    assert shape.missing == {2: ""}


def test_older_rows_show_the_default_while_only_the_column_is_in_the_history(database: str, tmp_path: Path) -> None:
    """As a killed apply leaves it, at a moment before the next change."""
    lake = tmp_path / "lake"
    execute(database, "create table t (id int primary key)", "insert into t values (1), (2)")
    install_trigger(database)
    assert command.run_here(["bootstrap", "--source", database, "--lake", lake]).code == 0
    execute(database, "alter table t add d int default 5 not null")
    moment = oracle.take_moment(database, ["t"])
    execute(database, "update t set id = 3 where id = 1")
    assert command.run_here(["capture", "--until-current", "--source", database, "--lake", lake]).code == 0
    killed_at(After.COLUMNS_ADDED, ["apply", "--until-current", "--lake", lake])
    shown = auditlake.Lake(lake).as_of(str(moment.lsn)).table("t").texts()
    assert Counter(tuple(row.values()) for row in shown) == moment.states["t"]
