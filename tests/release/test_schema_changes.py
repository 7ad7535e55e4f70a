"""Every change in docs/schema-changes.md has the effects listed there, on the oldest and newest supported server."""

from pathlib import Path

import psycopg
import pytest

from auditlake.lake.gaps import read_gaps
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from auditlake.lake.parking import read_parked
from auditlake.lake.relations import ShapeSource, read_versions
from auditlake.snapshot.bootstrap import Target
from auditlake.snapshot.new_tables import find_new
from auditlake.source.connection import connect
from tests import command
from tests.server import install_trigger

pytestmark = pytest.mark.pg

_PAGE = Path(__file__).parents[2] / "docs" / "schema-changes.md"
SCHEMA = """
create type mood as enum ('sad', 'ok');
create type pair as (a int, b text);
create domain small as int;
create table t (id int primary key, a varchar(100), n int, m mood, p pair, s small default 1);
create table parts (id int primary key) partition by range (id);
create table parts_1 partition of parts for values from (0) to (10);
create table parts_2 partition of parts for values from (10) to (20);
create table other (id int primary key);
insert into t values (1, 'x', 5, 'sad', (1, 'y'), 3);
insert into parts values (1), (11);
insert into other values (50);
"""
STATEMENTS = {
    "add a column, nullable": "alter table t add c int",
    "add a column, constant default": "alter table t add c int default 5",
    "add a column, volatile default": "alter table t add c float default random()",
    "add a column, identity": "alter table t add c int generated always as identity",
    "add a column, stored generated": "alter table t add c int generated always as (n * 2) stored",
    "drop a column": "alter table t drop a",
    "rename a column": "alter table t rename a to z",
    "drop and add a column of the same name": "alter table t drop a, add a varchar(100)",
    "longer varchar, varchar to text": "alter table t alter a type text",
    "wider type (int to bigint)": "alter table t alter n type bigint",
    "type with USING, or narrower": "alter table t alter n type smallint using n + 1",
    "type of another kind": "alter table t alter n type text",
    "defaults, NOT NULL, CHECK, UNIQUE, foreign keys": (
        "alter table t alter a set default 'q', alter n set not null, add check (n > 0), add unique (a);"
        " alter table t alter s drop default, add foreign key (id) references t (id)"
    ),
    "primary key": "alter table t drop constraint t_pkey, alter n set not null, add primary key (id, n)",
    "primary key under REPLICA IDENTITY FULL": (
        "alter table t replica identity full;"
        " alter table t drop constraint t_pkey, alter n set not null, add primary key (id, n)"
    ),
    "replica identity": "alter table t replica identity full",
    "rename the table": "alter table t rename to renamed",
    "change the table's schema": "create schema elsewhere; alter table t set schema elsewhere",
    "rename the schema": "alter schema public rename to elsewhere",
    "drop the table": "drop table t",
    "drop and create the table": "drop table t; create table t (id int primary key)",
    "CREATE TABLE, CREATE TABLE AS": "create table later as select 1 as id; alter table later add primary key (id)",
    "SET UNLOGGED": "alter table t set unlogged",
    "SET UNLOGGED, then SET LOGGED": "alter table t set unlogged; alter table t set logged",
    "add an enum value": "alter type mood add value 'good'",
    "rename an enum value": "alter type mood rename value 'sad' to 'low'",
    "change a composite type": "alter type pair add attribute c int",
    "constraint of a domain": "alter domain small add check (value > 0)",
    "create a partition": "create table parts_3 partition of parts for values from (20) to (30)",
    "attach a table with rows as a partition": "alter table parts attach partition other for values from (50) to (60)",
    "detach a partition": "alter table parts detach partition parts_1",
    "drop a partition": "drop table parts_1",
    "truncate a partition": "truncate parts_1",
    "an unlogged or foreign partition": "create unlogged table parts_3 partition of parts for values from (20) to (30)",
    "SET UNLOGGED, then SET LOGGED of a partition": "alter table parts_1 set unlogged; alter table parts_1 set logged",
    "replica identity of a partition, without the table's key": "alter table parts_1 replica identity nothing",
    "TRUNCATE": "truncate t",
    "TRUNCATE of a partitioned table": "truncate parts",
    "TRUNCATE of a table without a TOAST table": "truncate other",
    "VACUUM FULL, CLUSTER": "vacuum full t",
    "VACUUM FULL, CLUSTER of a table without a TOAST table": "vacuum full other",
    "a command that is rolled back": "begin; alter table t drop a; rollback",
}
_LINES = {
    cells[0]: (cells[1], cells[2])
    for line in _PAGE.read_text().splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 4 and cells[0] not in {"change", "---"}
}


def test_every_line_of_the_page_is_tested_and_every_test_has_a_line() -> None:
    """The page and the statements have the same changes."""
    assert list(_LINES) == list(STATEMENTS)
    assert {word for each in _LINES.values() for word in each} <= {
        "exact",
        "range",
        "new snapshot",
        "ends",
        "nothing",
        "new table",
    }


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
@pytest.mark.parametrize("change", STATEMENTS)
def test_a_change_has_the_effect_on_its_line(
    database_of_version: str, tmp_path: Path, change: str, *, with_trigger: bool
) -> None:
    """One change without a later row, after a row of every table was captured."""
    dsn, lake = database_of_version, Lake(tmp_path / "lake")
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SCHEMA.encode())
        conn.execute("create publication auditlake for all tables with (publish_via_partition_root = true)")
        if with_trigger:
            install_trigger(dsn)
        _run("bootstrap", dsn, lake)
        conn.execute("update t set n = 6; insert into parts values (2); insert into other values (51)")
        _run("capture", dsn, lake, "--until-current")
        known = len(read_versions(lake))
        for statement in [STATEMENTS[change]] if "begin" in STATEMENTS[change] else STATEMENTS[change].split("; "):
            conn.execute(statement.encode())
        _run("capture", dsn, lake, "--until-current")
    assert _effect(dsn, lake, known) == _LINES[change][0 if with_trigger else 1]


def _run(name: str, dsn: str, lake: Lake, *options: str) -> None:
    done = command.run_here([name, "--source", dsn, "--lake", lake.root, *options])
    assert done.code == 0, done.stderr


def _effect(dsn: str, lake: Lake, known: int) -> str:
    """Return the effect of the change, as the lake records it."""
    parked = list(read_parked(lake, list_histories(lake)).values())
    if parked:
        return "ends" if parked[0].ended else "new snapshot"
    with connect(dsn) as conn:
        if find_new(conn, Target(dsn, lake, "auditlake", "auditlake", None)):
            return "new table"
    fresh = read_versions(lake)[known:]
    if any(version.source is ShapeSource.CATALOG for version in fresh) or read_gaps(lake):
        return "range"
    return "exact" if fresh else "nothing"
