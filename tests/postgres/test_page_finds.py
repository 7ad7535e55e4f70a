"""The page across changes of the schema: former values and names of columns, tables renamed and created again."""

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from auditlake.api.lake import Lake as LakeApi
from auditlake.audit.json_output import MASKED
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from auditlake.mcp_server import AnswerLimits, Tools
from auditlake.snapshot import new_tables
from auditlake.snapshot.bootstrap import Target
from tests import command
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.page import Page
from tests.running import Running, await_true
from tests.s3_server import chosen_lake

pytestmark = pytest.mark.pg


def test_former_values_are_found_across_schema_changes(database: str, tmp_path: Path) -> None:
    """In the tail: by the table's old and new name, in renamed, dropped and added columns, in deleted rows."""
    with psycopg.connect(database, autocommit=True) as conn:
        lake, before = change_items(conn, database, tmp_path)
    require_found(Page(lake), "goods", before)


def change_items(conn: psycopg.Connection, database: str, folder: Path) -> tuple[Lake, str]:
    """Capture the life of a table; return the lake, and an LSN before the table is renamed and loses a column."""
    conn.execute("create table items (id int primary key, label text, old text, n int)")
    lake = make_lake(database, folder / "lake")
    conn.execute("insert into items values (1, 'first', 'gone', 7), (2, 'second', 'left', 8)")
    capture(database, lake)
    conn.execute("alter table items rename label to title")
    conn.execute("update items set title = 'third' where id = 1")
    capture(database, lake)
    before = str(Page(lake).json("lake")["at"]["lsn"])
    conn.execute("alter table items drop old, add extra text default 'same'")
    capture(database, lake)
    conn.execute("alter table items rename to goods")
    conn.execute("update goods set extra = 'more' where id = 1")
    conn.execute("delete from goods where id = 2")
    capture(database, lake)
    return lake, before


def require_found(page: Page, name: str, before: str) -> None:
    """Check what is found: now, under both names, and at an LSN before the table was renamed."""
    for table in (name, "items"):
        for value, key, state, column in (
            ("first", "1", "exists", "title"),
            ("second", "2", "deleted", "title"),
            ("third", "1", "exists", "title"),
            ("gone", "1", "exists", "old"),
            ("left", "2", "deleted", "old"),
            ("more", "1", "exists", "extra"),
        ):
            answer = page.json("find", table=table, value=value)
            (found,) = answer["found"]
            assert (found["key"], found["state"], found["columns"]) == ([key], state, [column]), value
            place = [each["name"] for each in answer["columns"]].index(column)
            assert found["values"][place] == value
            assert answer["table"] == f"public.{name}"
    same = page.json("find", table=name, value="same", column="extra")["found"]
    assert {tuple(each["key"]): each["state"] for each in same} == {("1",): "exists", ("2",): "deleted"}
    past = page.json("find", table="items", value="second", at=before)
    assert [(each["key"], each["state"], each["columns"]) for each in past["found"]] == [(["2"], "exists", ["title"])]
    assert past["table"] == "public.items"
    assert [each["name"] for each in page.json("rows", table="items", at=before)["columns"]] == [
        "id",
        "title",
        "old",
        "n",
    ]
    assert [each["table"] for each in page.json("tables")["tables"]] == [f"public.{name}"]
    assert [each["table"] for each in page.json("tables", at=before)["tables"]] == ["public.items"]
    assert f"<option selected>public.{name}</option>" in page.get("/find", table=name, value="first").text
    assert page.get("/find", table=name, value="zzz").status_code == 200


def test_messages_name_tables_that_exchanged_their_names_as_they_are_asked_for(database: str, tmp_path: Path) -> None:
    """Each history has the name that the other table has now."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table a (id int primary key); create table b (id int, line int, primary key (id, line))")
        lake = make_lake(database, tmp_path / "lake")
        conn.execute("alter table a rename to c; alter table b rename to a; alter table c rename to b")
        conn.execute("insert into a values (1, 1); insert into b values (1)")
        capture(database, lake)
    page = Page(lake)
    for table, key in (("a", ["1"]), ("b", ["1", "1"])):
        refused = page.get("/api/v1/row", table=table, key=key)
        assert (refused.status_code, f"the key of public.{table} is" in refused.json()["error"]) == (400, True)


def test_tables_have_the_names_of_the_moment(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows no name of a history; a mask of a table's former name masks it."""
    monkeypatch.setattr(new_tables, "_INTERVAL_S", 0.1)
    lake = chosen_lake(tmp_path / "lake")
    before = _rename_and_recreate(database, lake)
    _require_names(Page(lake), before)
    masked = Tools(LakeApi(lake.root), AnswerLimits(10, ("public.t.v", "public.r.v")))
    assert [each["table"] for each in masked.tables()["found"]] == ["public.s", "public.t"]
    for table in ("s", "public.t"):
        assert [each["v"] for each in masked.rows(table)["found"]] == [MASKED]
    differing: Any = masked.diff(before, tables=["s"])["found"]
    assert {each["to"]["v"] for each in differing} == {MASKED}


def _rename_and_recreate(database: str, lake: Lake) -> str:
    """Drop `t` and create it again, rename `r` to `s`, and follow both; return an LSN before that."""
    stop = threading.Event()
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, v text); insert into t values (1, 'old')")
        conn.execute("create table r (id int primary key, v text); insert into r values (1, 'of r')")
        assert command.run_here(["bootstrap", "--source", database, "--lake", lake.root]).code == 0
        conn.execute("update t set v = 'last'")
        capture(database, lake)
        before = str(Page(lake).json("lake")["at"]["lsn"])
        conn.execute("update r set v = 'of r'")  # without the DDL trigger, t may have been dropped since this commit
        capture(database, lake)
        job = new_tables.Job(Target(database, lake, "auditlake", "auditlake", None, failover=False), {})
        watching = threading.Thread(target=new_tables.watch, args=(job, stop, lambda _: None))
        with Running(database, lake):
            watching.start()
            try:
                conn.execute("drop table t")
                conn.execute("create table t (id int primary key, v text, n int); insert into t values (1, 'new', 5)")
                await_true(lambda: any("@" in table.name.table for table in list_histories(lake)))
                conn.execute("alter table r rename to s; update s set v = 'of s'")
            finally:
                stop.set()
                watching.join()
        capture(database, lake)
    return before


def _require_names(page: Page, before: str) -> None:
    names = {None: ["public.s", "public.t"], before: ["public.r", "public.t"]}
    for at, expected in names.items():
        given = {} if at is None else {"at": at}
        assert [each["table"] for each in page.json("tables", **given)["tables"]] == expected
        assert page.json("lake", **given)["tables"] == expected
    (old,), (new,) = (page.json("rows", table="t", **given)["rows"] for given in ({"at": before}, {}))
    assert (old["values"], new["values"]) == (["1", "last"], ["1", "new", "5"])
    life = page.json("row", table="t", key="1", at=before)
    assert (life["table"], [each["op"] for each in life["events"]]) == ("public.t", ["update", "snapshot"])
    assert [each["table"] for each in page.json("status")["sizes"]] == ["public.s", "public.t", "public.t"]
    compared = {each["table"]: each for each in page.json("compare", before=before)["tables"] if not each["problem"]}
    assert [(each["from"], each["to"]) for each in compared["public.s"]["entries"]] == [({"v": "of r"}, {"v": "of s"})]
    refused = page.get("/api/v1/compare", before=before, table="t")
    assert (refused.status_code, "is one table at" in refused.text) == (422, True)
    for path in ("/", "/log", "/status", "/sql", "/rows?table=t", f"/compare?before={before}"):
        assert "public.t@" not in page.get(path).text, path
