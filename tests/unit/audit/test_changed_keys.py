"""A key is one of the table that a question means, by the columns that identify a row at its moment: every way to ask.

Over `tests.rekeyed_lake`: `moved` was identified by `code`, and is by `id`; `again` is another table today.
"""

from collections.abc import Callable

import pytest

import auditlake
from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.mcp_server import AnswerLimits, Tools
from tests.command import run_here
from tests.page import Page
from tests.rekeyed_lake import write_rekeyed_lake

_BEFORE = "0/580"
_TABLES = pytest.mark.parametrize("table", ["moved", "again"])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake, which no test changes."""
    return write_rekeyed_lake(tmp_path_factory.mktemp("rekeyed") / "lake")


@_TABLES
@pytest.mark.parametrize("key", ["a", ["a"], {"code": "a"}])
def test_python_names_a_key_by_the_table_of_the_moment(lake: Lake, table: str, key: object) -> None:
    """A value alone as a mapping, and as the command line."""
    asked = auditlake.Lake(lake.root)
    assert [each.op for each in asked.row(table, key, until=_BEFORE)] == ["update", "snapshot"]
    assert {each.column: each.text for each in asked.blame(table, key, as_of=_BEFORE)}["v"] == "2"
    assert [each.lsn for each in asked.log(table=table, key=key, until=_BEFORE)] == [0x500]
    done = run_here(["row", table, "a", "--until", _BEFORE, "--lake", lake.root])
    assert (done.code, done.stdout.count("code=a")) == (0, 2), done.stderr


def test_python_names_a_key_of_now_by_the_columns_of_now(lake: Lake) -> None:
    """A value that looks like a named column is a value; a mapping has the names of the key and no others."""
    asked = auditlake.Lake(lake.root)
    (event,) = asked.row("moved", 30)
    assert (event.key, event.op) == ({"id": 30}, "insert")
    for key, why in (
        ({"code": "a"}, "the key of public.moved is id, not code"),
        ({"nothing": "a"}, "the key of public.moved is id, not nothing"),
        ({}, "the key of public.moved is id, not 0 values"),
        ([], "the key of public.moved is id, not 0 values"),
        ("id=30", "the value for id is not a valid integer"),
    ):
        for ask in (asked.row, asked.blame, lambda table, key: asked.log(table=table, key=key)):
            with pytest.raises(BadUsage, match=why):
                ask("moved", key)
    assert not asked.row("moved", "code=a", until=_BEFORE)


@_TABLES
def test_a_language_model_names_a_key_by_the_table_of_the_moment(lake: Lake, table: str) -> None:
    """Each way to send a key."""
    tools = Tools(auditlake.Lake(lake.root), AnswerLimits(10))
    for key in ("a", ["a"], {"code": "a"}):
        assert len(tools.row(table, key, until=_BEFORE)["found"]) == 2
        assert tools.blame(table, key, as_of=_BEFORE)["found"]
        assert len(tools.log(table=table, key=key, until=_BEFORE)["found"]) == 1
    with pytest.raises(BadUsage, match="a text that may be one value of moved"):
        tools.row("moved", '["a"]', until=_BEFORE)
    with pytest.raises(BadUsage, match="a key needs a table"):
        tools.log(key="a")


def test_a_masked_key_is_refused_where_it_was_the_key(lake: Lake) -> None:
    """Also by its value alone: the answer would tell who has it."""
    tools = Tools(auditlake.Lake(lake.root), AnswerLimits(10, ("public.moved.code",)))
    asks: tuple[Callable[[], object], ...] = (
        lambda: tools.row("moved", "a", until=_BEFORE),
        lambda: tools.blame("moved", ["a"], as_of=_BEFORE),
        lambda: tools.log(table="moved", key="a", until=_BEFORE),
    )
    for ask in asks:
        with pytest.raises(BadUsage, match="column code of moved is masked"):
            ask()
    assert len(tools.row("moved", 30)["found"]) == 1


@_TABLES
def test_the_page_names_a_key_by_the_table_of_the_moment(lake: Lake, table: str) -> None:
    """The row, its transactions, and every row that leads to it."""
    page = Page(lake)
    found = page.json("row", table=table, key="a", at=_BEFORE)
    assert (found["key_columns"], found["key"], found["exists"]) == (["code"], ["a"], True)
    assert [each["key"] for each in found["events"]] == [{"code": "a"}] * 2
    by_row = page.json("transaction", transaction="0/500", table=table, key="a")["neighbours"][1]
    assert by_row == {"by": "row", "before": None, "after": None}
    rows = page.json("rows", table=table, at=_BEFORE)
    assert [each["name"] for each in rows["columns"] if each["key"]] == ["code"]
    assert [each["key"] for each in rows["rows"]] == [["a"]]
    assert [each["key"] for each in page.json("find", table=table, value="a", at=_BEFORE)["found"]] == [["a"]]


def test_the_page_names_a_key_of_now_by_the_columns_of_now(lake: Lake) -> None:
    """The same row has another key then."""
    page = Page(lake)
    assert [each["key"] for each in page.json("rows", table="moved")["rows"]] == [["10"], ["30"]]
    assert page.json("row", table="moved", key="30")["key_columns"] == ["id"]
    assert page.json("neighbour", table="moved", key="10")["key"] == ["30"]
    assert page.json("neighbour", table="moved", key="a", at=_BEFORE)["key"] is None


def test_the_page_shows_a_row_that_was_not_written_since_its_key_changed(lake: Lake) -> None:
    """Only who set its values before is not known by this key; a moment before the change is none to compare with."""
    page = Page(lake)
    found = page.json("row", table="moved", key="10")
    assert (found["key_columns"], found["exists"], found["events"], found["blame"]) == (["id"], True, [], [])
    changed = "the key of public.moved changed at 0/600"
    unknown = f"who set each value is not known: {changed}, and values of this row were set before"
    assert found["notes"] == [f"{changed}: the answer starts there", unknown]
    html = page.get("/row", table="moved", key="10", column="v").text
    assert ("exists</span>" in html, "no row had this key" in html, "<option selected>v" in html) == (True, False, True)
    assert len(page.json("row", table="moved", key="30")["blame"]) == 3
    assert page.json("row", table="moved", key="10", versus="0/680")["difference"]["changed"] == {}
    refused = page.get("/api/v1/row", table="moved", key="10", versus=_BEFORE)
    assert (refused.status_code, "changed at 0/600, after 0/580" in refused.json()["error"]) == (422, True)
