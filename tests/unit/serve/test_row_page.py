"""The pages of a row, of two moments, of the tables: what a person asks next is one link away. Over the small lake."""

import re
from html import unescape
from pathlib import Path

import pytest

from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP
from auditlake.lake.parking import Cause, Parked, park
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName
from auditlake.serve import models
from auditlake.serve.formatting import has_line, unknown_path
from tests.command import run_here
from tests.page import Page, write_lake
from tests.small_lake import ORDERS, T0_US, version, write_history


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of the small lake, with a table whose key has two columns."""
    lake = write_lake(tmp_path_factory.mktemp("row") / "lake")
    columns = (Column("a", 23, -1, key=True), Column("b", 25, -1, key=True))
    rows = [{"a": a, "b": b} | version(0x100, None, "snapshot", None) for a, b in _PAIRS]
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, TableName("public", "pairs"), columns, rows, positions)
    return Page(lake)


_PAIRS = [(2, "b"), (1, "z"), (10, ""), (2, "a"), (2, "B"), (-1, "x=y")]


def test_a_row_is_compared_with_another_moment(page: Page) -> None:
    """What differs, and how many columns do not; a row that was not there, or is gone; an earlier moment only."""
    found = page.json("row", table="orders", key="1", at="0/250", versus="0/100")["difference"]
    assert found["changed"] == {"note": {"old": "a", "new": "c"}, "price": {"old": "1.00", "new": "3.00"}}
    assert (found["existed"], found["exists"], found["unchanged"], found["before"]["lsn"]) == (True, True, 2, "0/100")
    gone = page.json("row", table="orders", key="3", at="0/300", versus="0/200")["difference"]
    assert (gone["existed"], gone["exists"]) == (True, False)
    new = page.json("row", table="orders", key="4", at="0/300", versus="0/200")["difference"]
    assert (new["existed"], new["exists"], new["changed"]["note"]) == (False, True, {"new": "new"})
    never = page.json("row", table="orders", key="4", at="0/200", versus="0/150")["difference"]
    assert (never["existed"], never["exists"], never["changed"]) == (False, False, {})
    assert page.get("/api/v1/row", table="orders", key="1", at="0/150", versus="0/300").status_code == 400
    assert page.get("/api/v1/row", table="orders", key="1", versus="0/99").status_code == 422
    html = page.get("/row", table="orders", key="1", at="0/250", versus="0/100").text
    assert "2 columns differ, 2 unchanged" in html
    assert "2 columns differ" in page.get("/row", table="orders", key="1", at="0/250", versus="0/100", _evidence=1).text


def test_the_history_of_one_column(page: Page) -> None:
    """Only the events that gave it another value, or began or ended the row, with its values alone."""
    events = page.json("row", table="orders", key="1", column="at")["events"]
    assert [(each["lsn"], list(each["changed"])) for each in events] == [("0/100", ["at"])]
    events = page.json("row", table="orders", key="1", column="note")["events"]
    assert [(each["lsn"], {name: v["new"] for name, v in each["changed"].items()}) for each in events] == [
        ("0/250", {"note": "c"}),
        ("0/150", {"note": "b"}),
        ("0/100", {"note": "a"}),
    ]
    assert [each["row"] for each in events] == [{"note": "c"}, {"note": "b"}, {"note": "a"}]
    refused = page.get("/api/v1/row", table="orders", key="1", column="nothing")
    assert (refused.status_code, "has no column nothing" in refused.json()["error"]) == (400, True)
    html = page.get("/row", table="orders", key="1").text
    assert "/row?table=public.orders&amp;key=1&amp;column=note" in html


def test_keys_of_two_columns_are_walked(page: Page) -> None:
    """By the first column as a number, then by the second byte by byte; every row once, in both directions."""
    expected = [[str(a), b] for a, b in sorted(_PAIRS)]
    for way, wanted in (("next", expected), ("previous", expected[::-1])):
        walked, key = [wanted[0]], wanted[0]
        while (key := page.json("neighbour", table="pairs", key=key, way=way)["key"]) is not None:
            walked.append(key)
        assert walked == wanted
    followed = page.get("/row/next", table="pairs", key=["2", "B"], at="0/200")
    assert (followed.status_code, followed.headers["location"]) == (
        303,
        "/row?table=pairs&key=2&key=a&at=0%2F200",
    )
    last = page.get("/row/next", table="pairs", key=["10", ""])
    assert (last.status_code, "has no next row" in last.text) == (422, True)
    assert page.get("/row/sideways", table="pairs", key=["10", ""]).status_code == 400


def test_what_is_unknown_has_its_place(tmp_path: Path) -> None:
    """On the timeline, of the page's table or of all, and between the events of a row; a parked table, at the end."""
    lake = write_lake(tmp_path / "lake")
    record_gaps(lake, [Gap(ORDERS, Lsn(0x160), Lsn(0x1F0), "a first reason")])
    park(lake, Parked(ORDERS, Cause.SHAPE, Lsn(0x280), Lsn(0x300), "a second reason", "a remedy", 0))
    page = Page(lake)
    for given in ({}, {"table": "orders"}):
        gap, parked = page.json("timeline", **given)["unknown"]
        assert (gap["table"], gap["lsn"], gap["to_lsn"]) == ("public.orders", "0/160", "0/1F0")
        assert (gap["from_us"], gap["to_us"]) == (T0_US + 6_000_000, T0_US + 6_000_000)
        assert (parked["lsn"], parked["to_lsn"], parked["reason"]) == ("0/280", None, "a second reason")
    assert page.json("timeline", table="customers")["unknown"] == []
    html = page.get("/row", table="orders", key="1", at="0/280").text
    places = [html.index(text) for text in ("Parked: nothing is known after 0/280", ">0/250<", "Unknown from 0/160")]
    assert places == sorted(places)
    assert places[-1] < html.rindex(">0/150<")
    assert "shaded: 2 stretches with unknown changes" in html
    assert 'href="/row?table=orders&amp;key=1&amp;at=0%2F1F0"' in html
    assert "public.orders: from" in page.get("/transaction", transaction="0/150").text
    assert "shaded" not in page.get("/rows", table="customers").text


def test_a_page_has_few_of_many_unknown_stretches(tmp_path: Path) -> None:
    """And their number."""
    lake = write_lake(tmp_path / "lake")
    record_gaps(lake, [Gap(ORDERS, Lsn(0x110), Lsn(0x111 + number), "a reason") for number in range(300)])
    page = Page(lake)
    found = page.json("timeline")
    assert (len(found["unknown"]), found["unknown_count"]) == (200, 300)
    assert "shaded: 300 stretches" in page.get("/log").text


def test_unknown_stretches_are_drawn_within_the_chart() -> None:
    """From the begin if none is known, to the end if there is none; a short one is still seen, one outside is not."""

    def path(*bounds: tuple[int | None, int | None]) -> str:
        unknown = [
            models.StretchJson(table=None, lsn="0/1", to_lsn=None, from_us=a, to_us=b, reason="") for a, b in bounds
        ]
        drawn = models.TimelineJson(
            first_us=0, last_us=100, from_us=0, to_us=100, commits=0, bars=[], unknown=unknown, unknown_count=0
        )
        return unknown_path(drawn)

    assert path((25, 75)) == "M250.0 0h500.0V100H250.0z"
    assert path((None, 10), (90, None)) == "M0.0 0h100.0V100H0.0zM900.0 0h100.0V100H900.0z"
    assert path((50, 50)) == "M500.0 0h2.0V100H500.0z"
    assert path((-20, -10), (200, None)) == ""


def test_a_table_that_begins_between_two_moments_is_new(page: Page) -> None:
    """With its rows after; the script is of the other tables. In the other direction it is not known."""
    tables = {each["table"]: each for each in page.json("compare", before="0/150", after="0/200")["tables"]}
    new = tables["public.customers"]
    assert (new["begins"], new["rows_before"], new["problem"]) == ("0/180", None, None)
    assert new["rows_after"] == page.json("rows", table="customers", at="0/200")["count"]
    html = page.get("/compare", before="0/150", after="0/200").text
    assert "its history begins at 0/180" in html
    scripts = [unescape(each) for each in re.findall(r'href="(/api/v1/undo[^"]*)"', html)]
    assert scripts
    assert all("table=public.orders" in each and "customers" not in each for each in scripts)
    assert page.ask("GET", scripts[0]).status_code == 200
    backwards = {each["table"]: each for each in page.json("compare", before="0/200", after="0/150")["tables"]}
    assert backwards["public.customers"]["problem"]


def test_find_and_sql_begin_with_examples(page: Page) -> None:
    """Each has an answer: a value that some row has, a statement that both dialects read."""
    links = re.findall(r'<li><a href="(/find\?[^"]*)"', page.get("/find").text)
    assert len(links) == 3
    for link in links:
        assert "history</a>" in page.ask("GET", unescape(link)).text
    assert "/find?table=public.orders" in page.get("/find", table="orders").text
    html = page.get("/sql", at="0/200").text
    statements = [unescape(each) for each in re.findall(r'href="/sql\?[^"]*" title="([^"]*)"', html)]
    assert len(statements) >= 5
    for statement in statements:
        for dialect in ("spark", "postgres"):
            answer = page.ask("POST", "/api/v1/sql", json={"sql": statement, "dialect": dialect, "at": "0/200"})
            assert answer.status_code == 200, (statement, answer.text)
    assert "For example" not in page.get("/sql", sql="select 1").text


def test_tables_are_filtered_by_name(page: Page) -> None:
    """Also if there are few."""
    assert 'name="contains"' in page.get("/").text
    html = page.get("/", contains="cust").text
    assert "public.customers" in html
    assert ">public.hostile<" not in html.split("<h2>")[0]


def test_a_chart_without_a_line_is_not_shown() -> None:
    """Of one value, of none, or of zeros."""

    def chart(*values: float | None) -> models.ChartJson:
        return models.ChartJson(name="a", unit="b", times_us=list(range(len(values))), values=list(values))

    assert [has_line(chart(*each)) for each in ((), (1,), (None, 1), (0, 0), (0, 1), (2, None, 2))] == [
        *4 * [False],
        True,
        True,
    ]


def test_an_empty_text_is_a_value(page: Page) -> None:
    """As a part of a key in links, of which none leads to another row, and as a value that is searched for."""
    for path, asked in (("/rows", {}), ("/row", {"key": ["10", ""]}), ("/find", {"value": ""})):
        html = page.get(path, table="pairs", **asked).text
        links = {unescape(link) for link in re.findall(r'href="([^"]*key=10[^"]*|[^"]*/api/v1/find[^"]*)"', html)}
        assert links
        assert {page.ask("GET", link).status_code for link in links} <= {200, 303, 422}, path
        assert all(re.search("key=10&key=(&|$)|value=(&|$)", link) for link in links), path
    found = page.json("find", table="pairs", value="")["found"]
    assert [each["key"] for each in found] == [["10", ""]]
    assert page.get("/api/v1/find", table="pairs").json()["error"] == "value: field required"
    line: list[str | Path] = ["pairs", "10", "", "--json", "--lake", page.resources.lake.root]
    assert [run_here([command, *line]).stdout.count("\n") for command in ("row", "blame")] == [1, 2]
