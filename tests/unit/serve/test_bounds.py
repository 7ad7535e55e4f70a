"""Bounds of answers: long rows make them shorter, never incomplete without a word, and no value of the API is cut."""

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from auditlake.audit import bounds
from auditlake.audit.bounds import Room, characters, first_batches
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP
from auditlake.query import formats
from auditlake.relation import Column, TableName
from auditlake.serve import formatting
from auditlake.serve.formatting import LONGEST
from tests.page import Page, answered_here, write_lake
from tests.small_lake import T0_US, version, write_history

_LETTERS = 12_000
_ROWS = 6


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of the small lake, with a table of rows of 12,000 characters; row 1 was changed at every commit."""
    lake = write_lake(tmp_path_factory.mktemp("bounds") / "lake")
    columns = (Column("id", 23, -1, key=True), Column("doc", 25, -1, key=False))
    rows = [{"id": n, "doc": _doc(n)} | version(0x100, None, "snapshot", None) for n in range(2, _ROWS + 1)]
    lsns = [(0x100, "snapshot"), (0x150, "update"), (0x200, "update"), (0x250, "update"), (0x300, "update")]
    for place, (lsn, op) in enumerate(lsns):
        end = lsns[place + 1] if place + 1 < len(lsns) else (None, None)
        rows.append({"id": 1, "doc": _doc(lsn)} | version(lsn, end[0], op, end[1]))
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, TableName("public", "long"), columns, rows, positions)
    return Page(lake)


def _doc(number: int) -> str:
    return f"{number:x}".rjust(_LETTERS, "x")


@pytest.fixture
def two_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer has room for two rows, and for two events, which have both values of the row and the row."""
    monkeypatch.setattr(bounds, "ANSWER_CHARACTERS", int(2.5 * _LETTERS))


@pytest.mark.usefixtures("two_fit")
def test_pages_of_long_rows_have_all_of_them(page: Page) -> None:
    """Whole values, fewer to a page, the next page begins after the last one; each page says so."""
    found: list[Any] = []
    while len(found) < _ROWS:
        answer = page.json("rows", table="long", sort="id", offset=len(found))
        assert (len(answer["rows"]), answer["count"]) == (2, _ROWS)
        found += [row["values"] for row in answer["rows"]]
        assert answer["cut"] == (len(found) < _ROWS)
    assert found == [[str(n), _doc(0x300 if n == 1 else n)] for n in range(1, _ROWS + 1)]
    html = page.get("/rows", table="long", sort="id").text
    assert "only 2 of 50 fit on a page" in html
    assert re.search(r'rel="next" href="/rows\?[^"]*offset=2"', html)


@pytest.mark.usefixtures("two_fit")
def test_events_that_do_not_fit_are_those_of_an_earlier_moment(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for at the LSN that the answer names, until the first one."""
    monkeypatch.setattr(bounds, "ANSWER_CHARACTERS", 8 * _LETTERS)
    seen, at = [], "0/300"
    while at is not None:
        answer = page.json("row", table="long", key="1", at=at)
        assert answer["events"]
        seen += [each["lsn"] for each in answer["events"]]
        assert answer["events"][0]["row"]["doc"] == _doc(int(seen[-len(answer["events"])].partition("/")[2], 16))
        if (answer["before"] or "") and at == "0/300":
            assert f"the row as of {answer['before']}" in page.get("/row", table="long", key="1", at=at).text
        at = answer["before"]
    assert seen == ["0/300", "0/250", "0/200", "0/150", "0/100"]


@pytest.mark.usefixtures("two_fit")
def test_a_comparison_counts_what_it_does_not_show(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A modified row with both values needs more than there is room for."""
    monkeypatch.setattr(bounds, "ANSWER_CHARACTERS", _LETTERS)
    (table,) = page.json("compare", before="0/100", after="0/300", table="long")["tables"]
    assert (table["modified"], table["entries"], table["more"]) == (1, [], True)
    assert "Not all of these rows are shown" in page.get("/compare", before="0/100", after="0/300", table="long").text


def test_one_part_that_is_too_long_is_refused(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what shows it instead; the rows after it are still reached."""
    monkeypatch.setattr(bounds, "ANSWER_CHARACTERS", _LETTERS // 2)
    refused = page.get("/api/v1/rows", table="long", sort="id", offset=1)
    assert (refused.status_code, refused.json()["error"]) == (422, "the first row has more than 6,000 characters")
    assert "offset 2" in refused.json()["hint"]
    assert page.get("/api/v1/row", table="long", key="1").status_code == 422
    assert page.get("/api/v1/find", table="long", value=_doc(2)[-40:], contains="true").status_code == 422
    assert page.get("/api/v1/rows", table="orders").status_code == 200
    exported = page.get("/api/v1/export", table="long", where="id:is:2").text
    assert _doc(2) in exported


def test_a_row_that_is_too_long_is_not_converted(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a statement: that would take gigabytes, in which the process does nothing else."""
    converted: list[int] = []
    convert = formats.python_rows

    def recorded(schema: pa.Schema, batches: list[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
        converted.extend(batch.nbytes for batch in batches)
        return convert(schema, batches)

    monkeypatch.setattr("auditlake.sandbox.statements.python_rows", recorded)
    long = "select array_agg(repeat('x', 40)) as a from generate_series(1, 1000000)"
    assert (answered_here(page.resources.lake, long)["error"], converted) == ("NotAnswerable", [])
    refused = page.ask("POST", "/api/v1/sql", json={"sql": long})
    assert refused.status_code == 422
    assert refused.json()["error"] == "the first row has more than 8,388,608 characters"
    second = f"select array['1'] as a union all select * from ({long}) q"
    answer = page.ask("POST", "/api/v1/sql", json={"sql": second}).json()
    assert (answer["rows"], answer["more"]) == ([['["1"]']], True)


def test_a_page_cuts_values_and_says_how_to_read_them_whole(page: Page) -> None:
    """The link leads to the same answer as JSON, on every page that shows values; evidence has them whole."""
    for path in (
        "/rows?table=long&facet=id",
        "/row?table=long&key=1&at=0/250",
        "/compare?before=0/150&at=0/250&table=long",
        "/find?table=long&value=2",
    ):
        html = page.ask("GET", path).text
        assert f"the first {LONGEST:,} of {_LETTERS:,} characters" in html
        assert "x" * LONGEST in html
        assert "x" * (LONGEST + 1) not in html
        link = re.findall(r'<a href="(/api/v1/[^"]*)">the same answer as JSON', html)[0].replace("&amp;", "&")
        whole = page.ask("GET", link)
        assert whole.status_code == 200
        assert "x" * (LONGEST + 1) in whole.text
    assert _doc(0x300) in page.get("/row", table="long", key="1", _evidence="1").text
    asked = {"sql": "select doc from long where id = 2"}
    html = page.ask("POST", "/sql/answer", json=asked).json()["html"]
    assert f"the first {LONGEST:,} of {_LETTERS:,} characters" in html
    assert "auditlake sql have them whole" in html


def test_the_characters_of_a_part_are_those_of_its_texts() -> None:
    """In models, lists and dictionaries, also names; each value counts, and an absent one, too."""
    assert characters("abc") - characters("") == 3
    assert characters(["abc", None]) == characters("abc") + characters(None)
    assert characters({"a": ["b"]}) == characters("a") + characters("b")


def test_nothing_fits_after_a_part_that_did_not() -> None:
    """So an answer has the first parts, without holes."""
    room = Room()
    assert room.fitting(["a", "b" * (bounds.ANSWER_CHARACTERS + 1), "c"]) == ["a"]
    assert room.is_cut
    assert not room.takes(0)


def test_an_escape_needs_few_characters() -> None:
    """A run of invisible characters is one box, so a page is at most some times as long as its values."""
    assert formatting.visible_html("a\0\0b") == 'a<span class="ctl">\\u0000\\u0000</span>b'
    assert len(formatting.visible_html("\x07" * 1_000)) < 7_000
    assert formatting.visible_html("<\n>") == '&lt;<span class="ctl">\\n</span><wbr>&gt;'


def test_no_batch_more_is_fetched_once_there_are_enough_characters() -> None:
    """The batches that follow may have any size, and are not made."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": ["x" * (bounds.ANSWER_CHARACTERS + 1)]})
        yield pa.record_batch({"a": ["y"]})
        pytest.fail("a batch more")

    first = first_batches(batches(), 10)
    assert (len(first.batches), first.is_cut) == (1, True)
