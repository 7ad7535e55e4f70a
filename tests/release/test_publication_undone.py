"""Changes of a publication that were undone before a comparison: rows changed meanwhile are not in the stream."""

from pathlib import Path

import pytest

from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from auditlake.temporal.moments import read_known
from tests import command
from tests.running import Running, await_true, inserted
from tests.s3_server import chosen_lake
from tests.server import execute, install_trigger

pytestmark = pytest.mark.pg

_SETUP = """
create schema s; create schema elsewhere;
create table s.t (id int primary key, v text);
create table s.root (id int primary key) partition by range (id);
create table s.leaf partition of s.root default;
create table u (id int primary key);
"""
_SCHEMA = "for tables in schema s, table u with (publish_via_partition_root = true)"
_ALL = "for all tables with (publish_via_partition_root = true)"
_EVERY_TABLE = {"public.u", "s.root", "s.t"}
# Publication, statements, and the tables whose changes may be missing.
_UNDONE = {
    "a schema": (
        _SCHEMA,
        (
            "alter publication auditlake drop tables in schema s",
            "insert into s.t values (1)",
            "alter publication auditlake add tables in schema s",
        ),
        {"s.root", "s.t"},
    ),
    "a schema, in one transaction": (
        _SCHEMA,
        (
            """begin; alter publication auditlake drop tables in schema s; insert into s.t values (1);
            alter publication auditlake add tables in schema s; commit""",
        ),
        {"s.root", "s.t"},
    ),
    "a table": (
        _SCHEMA,
        (
            "alter publication auditlake drop table u",
            "insert into u values (1)",
            "alter publication auditlake add table u",
        ),
        {"public.u"},
    ),
    "operations": (
        _ALL,
        (
            """begin; alter publication auditlake set (publish = 'update, delete, truncate');
            insert into s.t values (1);
            alter publication auditlake set (publish = 'insert, update, delete, truncate'); commit""",
        ),
        _EVERY_TABLE,
    ),
    "the root of partitions": (
        _SCHEMA,
        (
            "alter publication auditlake set (publish_via_partition_root = false)",
            "insert into s.root values (1)",
            "alter publication auditlake set (publish_via_partition_root = true)",
        ),
        _EVERY_TABLE,
    ),
}


@pytest.fixture(params=_UNDONE)
def undone(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> tuple[Lake, str]:
    """A lake with a publication that was copied, and the change that is undone."""
    kind = str(request.param)
    execute(database, _SETUP, f"create publication auditlake {_UNDONE[kind][0]}")
    lake = chosen_lake(tmp_path / "lake")
    done = command.run_here(["bootstrap", "--source", database, "--lake", lake.root])
    assert done.code == 0, done.stderr
    _capture(database, lake)
    return lake, kind


def _capture(dsn: str, lake: Lake) -> None:
    done = command.capture_here(dsn, lake)
    assert done.code == 0, done.stderr


def _parked(lake: Lake) -> set[str]:
    return {str(name) for name in read_known(lake).parked}


def test_tables_are_parked_if_nothing_captured_meanwhile(database: str, undone: tuple[Lake, str]) -> None:
    """They are known up to a moment before, and not before their snapshot; no commit is between the two."""
    lake, kind = undone
    known = read_known(lake).last_lsn
    execute(database, *_UNDONE[kind][1], "insert into u values (2)")
    for _ in range(2):
        _capture(database, lake)
        assert _parked(lake) == _UNDONE[kind][2]
    (upto,) = {parked.lsn for parked in read_known(lake).parked.values()}
    assert list_histories(lake)[0].snapshot_lsn <= upto <= known


def test_tables_are_parked_before_a_later_commit_can_be_asked_for(database: str, undone: tuple[Lake, str]) -> None:
    """A running capture compares the publication before a batch becomes durable, not only every 30 s."""
    lake, kind = undone
    with Running(database, lake) as running:
        execute(database, "insert into u values (7)")
        running.await_keys(7)
        execute(database, *_UNDONE[kind][1], "insert into u values (8)")
        await_true(lambda: inserted(lake)[-1] == 8)
        assert _parked(lake) == _UNDONE[kind][2]


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_a_table_that_was_in_another_schema_is_parked(database: str, tmp_path: Path, *, with_trigger: bool) -> None:
    """Its changes there are not in the stream, so the trigger does not help. It is known up to the last comparison."""
    execute(database, _SETUP, f"create publication auditlake {_SCHEMA}")
    if with_trigger:
        install_trigger(database)
    lake = chosen_lake(tmp_path / "lake")
    assert command.run_here(["bootstrap", "--source", database, "--lake", lake.root]).code == 0
    _capture(database, lake)
    execute(
        database,
        "alter table s.t set schema elsewhere",
        "insert into elsewhere.t values (1)",
        "alter table elsewhere.t set schema s",
        "alter table u rename to v; alter table v rename to u",
    )
    for _ in range(2):
        _capture(database, lake)
        assert _parked(lake) == {"s.t"}


def test_a_renamed_or_moved_table_is_not_parked(database: str, tmp_path: Path) -> None:
    """From one published schema to another, also while nothing captures; new schemas and tables change nothing."""
    execute(database, _SETUP, "create publication auditlake for tables in schema s, elsewhere")
    lake = chosen_lake(tmp_path / "lake")
    assert command.run_here(["bootstrap", "--source", database, "--lake", lake.root]).code == 0
    _capture(database, lake)
    execute(
        database,
        "alter table s.t rename to renamed",
        "alter table s.renamed set schema elsewhere",
        "alter publication auditlake add tables in schema public",
    )
    for _ in range(2):
        _capture(database, lake)
        assert _parked(lake) == set()
    execute(
        database,
        "alter publication auditlake drop tables in schema elsewhere; insert into elsewhere.renamed values (1)",
        "alter publication auditlake add tables in schema elsewhere",
    )
    _capture(database, lake)
    assert _parked(lake) == {"s.t"}
