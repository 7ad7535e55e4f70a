"""The page finds rows by former values across renamed, dropped and added columns, and a renamed table."""

from pathlib import Path

import psycopg
import pytest

from auditlake.lake.layout import Lake
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.page import Page

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
