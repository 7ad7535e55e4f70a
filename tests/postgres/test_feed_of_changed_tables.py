"""The feed of tables that are renamed and get other columns and keys: complete, or refused by name."""

from pathlib import Path

import pytest

import auditlake
from auditlake.errors import NotAnswerable
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.feed_changes import changes_of
from tests.server import execute

pytestmark = pytest.mark.pg


def test_a_renamed_table_is_followed(database: str, tmp_path: Path) -> None:
    """A subscriber gets every change under every name, also one that stores cursors and asks by the former name."""
    execute(database, "create table t (id int primary key, v text); create table other (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    with auditlake.changes(lake.root, tables=["t"]) as feed:
        execute(database, "insert into t values (1)", "alter table t rename to u", "insert into other values (1)")
        capture(database, lake)
        (first,) = feed.take(10)
        execute(database, "insert into u values (2)")
        capture(database, lake)
        (second,) = feed.take(10)
    assert [change.key for each in (first, second) for change in each.changes] == [{"id": 1}, {"id": 2}]
    after = auditlake.changes(lake.root, tables=["t"], after=first.cursor, follow=False)
    assert [(str(c.table), c.key) for each in after for c in each.changes] == [("public.u", {"id": 2})]
    both = [("t", "insert", {"id": 1}), ("u", "insert", {"id": 2})]
    assert changes_of(lake, tables=["t"]) == changes_of(lake, tables=["u"]) == both
    assert changes_of(lake, tables=["u"], key=1) == both[:1]


def test_filters_follow_renamed_columns(database: str, tmp_path: Path) -> None:
    """Key and changed column are compared by attribute number; REPLICA IDENTITY FULL sends no other sign of the key."""
    execute(
        database,
        "create table t (id int primary key, v text, w text); alter table t replica identity full",
        "create table k (id int primary key, code int not null)",
    )
    lake = make_lake(database, tmp_path / "lake")
    execute(
        database,
        "insert into t values (1, 'a', 'x'), (2, 'b', 'x')",
        "update t set v = 'c' where id = 1",
        "alter table t rename column id to number; alter table t rename column v to tmp",
        "alter table t rename column w to v; alter table t rename column tmp to w",
        "alter table t rename to u",
        "update u set w = 'd' where number = 1",
        "update u set v = 'y' where number = 2",
        "insert into k values (1, 7)",
    )
    capture(database, lake)
    changes = [("t", "insert", {"id": 1}), ("t", "update", {"id": 1}), ("u", "update", {"number": 1})]
    assert changes_of(lake, tables=["t"], key=1) == changes
    assert changes_of(lake, tables=["u"], column="w") == changes[1:]
    assert changes_of(lake, tables=["t"], column="v") == [("u", "update", {"number": 2})]
    execute(database, "alter table k drop constraint k_pkey, add primary key (code)", "insert into k values (7, 1)")
    capture(database, lake)
    assert changes_of(lake, tables=["k"]) == [("k", "insert", {"id": 1}), ("k", "insert", {"code": 1})]
    with pytest.raises(NotAnswerable, match=r"rows of public.k are identified by \(code\) at .* of \(id\)"):
        changes_of(lake, tables=["k"], key=1)


def test_a_key_whose_equal_values_have_several_texts_is_selected(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number as the same number; a value of another such type by its text, and the notice says so."""
    execute(database, "create type mood as enum ('sad', 'glad')")
    kinds = ("numeric", "float8", "mood", "interval")
    for kind in kinds:
        execute(database, f"create table of_{kind} (k {kind} primary key, v int)")
    lake = make_lake(database, tmp_path / "lake")
    execute(
        database, "insert into of_numeric values ('NaN'), (2), (1.5)", "update of_numeric set k = 1.50 where k = 1.5"
    )
    execute(database, "update of_numeric set v = 1", "insert into of_float8 values ('-0'), (2), ('NaN')")
    execute(database, "insert into of_mood values ('sad'), ('glad')")
    execute(database, "insert into of_interval values ('1 day'), ('2 days')")
    capture(database, lake)
    assert [op for _, op, _ in changes_of(lake, tables=["of_numeric"], key="1.500")] == ["insert", "update", "update"]
    assert [op for _, op, _ in changes_of(lake, tables=["of_numeric"], key="NaN")] == ["insert", "update"]
    assert (
        len(changes_of(lake, tables=["of_float8"], key=0))
        == len(changes_of(lake, tables=["of_float8"], key="NaN"))
        == 1
    )
    assert len(changes_of(lake, tables=["of_mood"], key="sad")) == 1
    assert capsys.readouterr().err == ""
    assert len(changes_of(lake, tables=["of_interval"], key="1 day")) == 1
    told = "equal values can have another text (k of interval): rows under another one are not selected"
    assert told in capsys.readouterr().err
