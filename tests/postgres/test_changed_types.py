"""Types that change the text of rows which were written before: labels of enums, columns of composites and tables."""

from collections import Counter
from pathlib import Path

import pytest

import auditlake
from auditlake.failpoints import After
from auditlake.lake.gaps import read_gaps
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from tests import command, oracle
from tests.crash.killed import killed_at
from tests.server import execute, install_trigger

pytestmark = pytest.mark.pg

_TYPES = (
    "create type mood as enum ('sad', 'ok')",
    "create type pair as (m mood, n int)",
    "create type outer_pair as (p pair)",
    "create domain small as mood",
    "create domain of_pair as pair",
    "create type span as range (subtype = mood)",
    "create table part (id int primary key, m int)",
)
_VALUES = {
    "mood": "'sad'",
    "mood[]": "'{sad}'",
    "small": "'sad'",
    "small[]": "'{sad}'",
    "pair": "row('sad', 1)",
    "pair[]": "array[row('sad', 1)::pair]",
    "of_pair": "row('sad', 1)",
    "outer_pair[]": "array[row(row('sad', 1))::outer_pair]",
    "span": "'[sad,ok]'",
    "part": "row(1, 2)",
}
_TABLES = [f"t{n}" for n, _ in enumerate(_VALUES)]
CHANGES = {
    "labels exchanged": [
        "alter type mood rename value 'sad' to 'low'",
        "alter type mood rename value 'ok' to 'sad'",
        "alter type mood rename value 'low' to 'ok'",
    ],
    "label added and renamed": [
        "alter type mood add value 'new'",
        "update t0 set v = 'new'",
        "update t1 set v = '{new}'",
        "update t2 set v = 'new'",
        "update t3 set v = '{new}'",
        "update t4 set v = row('new', 1)",
        "update t5 set v = array[row('new', 1)::pair]",
        "update t6 set v = row('new', 1)",
        "update t7 set v = array[row(row('new', 1))::outer_pair]",
        "update t8 set v = '[sad,new]'",
        "alter type mood rename value 'new' to 'good'",
    ],
    "label renamed and renamed back": [
        "alter type mood rename value 'sad' to 'low'",
        "insert into t0 values (2, 'low')",
        "alter type mood rename value 'low' to 'sad'",
    ],
    "column of a new type added, whose label is renamed": [
        "create type fresh as enum ('new', 'newer')",
        "alter table t0 add f fresh",
        "update t0 set f = 'new'",
        "alter type fresh rename value 'new' to 'good'",
    ],
    "column of a composite added": ["alter type pair add attribute c int cascade"],
    "column of a table added, whose rows are values": [
        f"alter table {_TABLES[-1]} add other int",
        "alter table part add c int",
    ],
}


def _make(dsn: str, lake: Path, *kinds: str, with_trigger: bool) -> list[str | Path]:
    """Make a table of each type, or of these, with a row, and its lake; return the settings of a command."""
    tables = {name: kind for name, kind in zip(_TABLES, _VALUES, strict=True) if kind in (kinds or _VALUES)}
    made = [f"create table {name} (id int primary key, v {kind})" for name, kind in tables.items()]
    filled = [f"insert into {name} values (1, {_VALUES[kind]})" for name, kind in tables.items()]
    execute(dsn, *_TYPES, *made, *filled, "create table plain (id int primary key)", "insert into plain values (1)")
    if with_trigger:
        install_trigger(dsn)
    settings: list[str | Path] = ["--source", dsn, "--lake", lake]
    assert command.run_here(["bootstrap", *settings]).code == 0
    return settings


def _follow(settings: list[str | Path]) -> None:
    done = command.run_here(["follow", "--until-current", *settings])
    assert done.code == 0, done.stderr


WITH_TRIGGER = ("labels exchanged", "label added and renamed", "column of a composite added")


@pytest.mark.parametrize("change", WITH_TRIGGER)
def test_now_shows_rows_as_their_types_show_them(database: str, tmp_path: Path, change: str) -> None:
    """As the trigger reports a change, also of types inside others; `tests/release` has the other changes."""
    check_now(database, tmp_path / "lake", change, with_trigger=True)


def test_now_shows_rows_as_their_types_show_them_without_the_trigger(database: str, tmp_path: Path) -> None:
    """As the catalog shows a change; `tests/release` has the other changes."""
    check_now(database, tmp_path / "lake", "labels exchanged", with_trigger=False)


def check_now(database: str, lake: Path, change: str, *, with_trigger: bool) -> None:
    """Change a type, and compare the rows of all tables with PostgreSQL, although none was written since."""
    settings = _make(database, lake, with_trigger=with_trigger)
    execute(database, *CHANGES[change])
    _follow(settings)
    for table, rows in oracle.take_moment(database, _TABLES).states.items():
        shown = auditlake.Lake(lake).as_of().table(table).texts()
        assert Counter(tuple(row.values()) for row in shown) == rows, table


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_a_column_of_a_new_composite_type_which_gets_a_column(
    database: str, tmp_path: Path, *, with_trigger: bool
) -> None:
    """The record of the table does not have the type yet."""
    settings = _make(database, tmp_path / "lake", "mood", with_trigger=with_trigger)
    execute(
        database,
        "create type fresh as (a int)",
        "alter table t0 add f fresh",
        "update t0 set f = row(1)",
        "alter type fresh add attribute b int",
    )
    _follow(settings)
    assert [row["f"] for row in auditlake.Lake(tmp_path / "lake").as_of().table("t0").texts()] == ["(1,)"]


@pytest.mark.parametrize(
    ("kind", "value", "change"),
    [
        ("mood", "sad", ["alter type mood rename value 'sad' to 'low'"]),
        ("mood[]", "{sad}", ["alter type mood rename value 'sad' to 'low'"]),
        ("mood[]", "{sad}", CHANGES["labels exchanged"]),
        ("pair[]", '{"(sad,1)"}', ["alter type pair add attribute c int cascade"]),
        ("of_pair", "(sad,1)", ["alter type pair add attribute c int cascade"]),
        ("part", "(1,2)", ["alter table part add c int"]),
    ],
)
def test_a_new_column_of_a_type_that_changes_before_capture_looks(
    database: str, tmp_path: Path, kind: str, value: str, change: list[str]
) -> None:
    """The trigger reports the column, and the type, but not that the column has it."""
    settings = _make(database, tmp_path / "lake", kind, with_trigger=True)
    execute(database, "alter table plain add n " + kind, f"update plain set n = '{value}'", *change)
    execute(database, "alter table plain add m int")
    _follow(settings)
    for table, rows in oracle.take_moment(database, ["plain"]).states.items():
        shown = auditlake.Lake(tmp_path / "lake").as_of().table(table).texts()
        assert Counter(tuple(row.values()) for row in shown) == rows


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_added_labels_need_no_new_snapshot(database: str, tmp_path: Path, *, with_trigger: bool) -> None:
    """Several of them while capture was away, used in rows."""
    lake = tmp_path / "lake"
    settings = _make(database, lake, with_trigger=with_trigger)
    execute(
        database,
        "alter type mood add value 'new'",
        "insert into t0 values (2, 'new')",
        "alter type mood add value 'newer' before 'sad'",
        "insert into t0 values (3, 'newer'), (4, null)",
    )
    _follow(settings)
    assert not read_gaps(Lake(lake))
    shown = {row["id"]: row["v"] for row in auditlake.Lake(lake).as_of().table("t0").texts()}
    assert shown == {"1": "sad", "2": "new", "3": "newer", "4": None}


def test_added_labels_inside_arrays_domains_and_ranges_need_no_new_snapshot(database: str, tmp_path: Path) -> None:
    """All labels of their values are those of the type."""
    lake = tmp_path / "lake"
    settings = _make(database, lake, with_trigger=False)
    before = {history.name: history.snapshot_lsn for history in list_histories(Lake(lake))}
    execute(
        database,
        "alter type mood add value 'new'",
        "update t1 set v = '{new,sad,NULL}'",
        "insert into t1 values (2, '{{ok,new},{sad,sad}}'), (3, '{}'), (4, null)",
        "update t2 set v = 'new'",
        "update t3 set v = '{new}'",
        "update t8 set v = '[sad,new]'",
        "insert into t8 values (2, 'empty'), (3, '(,new)')",
    )
    _follow(settings)
    assert {history.name: history.snapshot_lsn for history in list_histories(Lake(lake))} == before


@pytest.mark.parametrize("with_trigger", [True, False], ids=["trigger", "catalog"])
def test_a_label_that_is_renamed_after_a_kill(database: str, tmp_path: Path, *, with_trigger: bool) -> None:
    """The killed capture had seen the label, and made a row with it durable."""
    lake = tmp_path / "lake"
    settings = _make(database, lake, "mood", with_trigger=with_trigger)
    execute(database, "alter type mood add value 'new'", "update t0 set v = 'new'")
    killed_at(After.ACKNOWLEDGED, ["capture", *settings])
    execute(database, "alter type mood rename value 'new' to 'good'")
    _follow(settings)
    assert [row["v"] for row in auditlake.Lake(lake).as_of().table("t0").texts()] == ["good"]
