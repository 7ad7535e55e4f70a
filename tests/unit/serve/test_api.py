"""JSON API of the page: answers as of several moments, each valid by the OpenAPI document; errors with their status."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self, cast

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditlake.audit import bounds
from auditlake.audit.lake_reader import Reader
from auditlake.delta.append_table import open_delta
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lsn import Lsn
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.embedded.engine import Embedded
from auditlake.query.statement import prepare_statement, read_state
from auditlake.relation import TableName
from auditlake.sandbox.statements import cache_key
from auditlake.serve import commit_answers, lake_answers, models
from auditlake.serve.held_tables import Held, HeldRows, HeldTables
from auditlake.serve.resources import Limits
from auditlake.store.place import parse_url
from tests.attacks import ATTACKS, READ_DIFFERENTLY
from tests.page import LONG, SCRIPT, Page, answered_here, capture_transaction, write_lake
from tests.s3_server import chosen_store
from tests.small_lake import T0, T0_US

_ROWS: dict[str, list[list[str | None]]] = {
    "0/100": [["1", "a", "1.00"], ["2", "", "10.50"]],
    "0/150": [["1", "b", "2.00"], ["2", "", "10.50"]],
    "0/200": [["1", "b", "2.00"], ["3", None, None]],
    "0/250": [["1", "c", "3.00"], ["3", None, None], ["4", "new", "4.00"]],
    "0/300": [["1", "c", "3.00"], ["4", "new", "4.00"]],
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of the small lake."""
    return Page(write_lake(tmp_path_factory.mktemp("serve") / "lake"))


class _AtOnce(HeldTables):
    """Held tables that are waited for: no answer comes from the files."""

    @contextmanager
    def using(self, reader: Reader, rows: HeldRows, *, request: bool = True) -> Iterator[Held | None]:
        with super().using(reader, rows):
            self.wait()
        with super().using(reader, rows, request=request) as held:
            assert held is not None
            yield held


@pytest.fixture(scope="module")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The same page, with the rows of every table in memory."""
    page = Page(write_lake(tmp_path_factory.mktemp("held") / "lake"))
    page.resources.held = _AtOnce(page.resources.cursor, least_rows=0, quiet_s=0)
    return page


@pytest.fixture(scope="module")
def remote(bucket: str) -> Page:
    """The page of a lake in an object store."""
    return Page(write_lake(cast("Path", parse_url(f"{bucket}/page"))))


@pytest.fixture(params=["page", "holding", "remote"])
def any_page(request: pytest.FixtureRequest) -> Page:
    """The page that reads files, of a disk or a store, and the one that holds rows: their answers are the same."""
    found: Page = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("lsn", _ROWS)
def test_rows_are_those_of_the_moment(any_page: Page, lsn: str) -> None:
    """By hand from the docstring of the small lake: below and above the table's position, with the count."""
    answer = any_page.json("rows", table="orders", at=lsn)
    assert _ROWS[lsn] == [row["values"][:3] for row in answer["rows"]]
    assert answer["count"] == len(_ROWS[lsn])
    assert answer["at"]["lsn"] == lsn
    listed = {each["table"]: each["rows"] for each in any_page.json("tables", at=lsn)["tables"]}
    assert listed["public.orders"] == len(_ROWS[lsn])


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["amount:is:NaN"], [2]),
        (["amount:is:1.5"], [1]),
        (["amount:lt:0"], [3, 5]),
        (["amount:ge:-2"], [1, 2, 5]),
        (["amount:null:"], [4]),
        (["amount:notnull:", "day:gt:2000-01-01"], [1, 3]),
        (["day:le:1999-12-31"], [2, 5]),
        (["text:has:alert"], [1]),
        (["text:begins:bell"], [2]),
        (["text:is:"], [3]),
        (["text:null:"], [4]),
        (["id:gt:3"], [4, 5]),
    ],
)
def test_filters_compare_as_postgresql_does(any_page: Page, where: list[str], expected: list[int]) -> None:
    """Values beyond their type are before or after all others; NULL matches nothing but `null`."""
    answer = any_page.json("rows", table="hostile", where=where)
    assert expected == [int(row["key"][0]) for row in answer["rows"]]
    assert answer["count"] == len(expected)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("amount", [3, 5, 1, 2, 4]), ("-amount", [4, 2, 1, 5, 3]), ("day", [2, 5, 1, 3, 4]), ("-id", [5, 4, 3, 2, 1])],
)
def test_rows_sort_as_in_postgresql(any_page: Page, sort: str, expected: list[int]) -> None:
    """-Infinity first, NaN and infinity last, NULL after all, first if descending."""
    assert expected == [int(row["key"][0]) for row in any_page.json("rows", table="hostile", sort=sort)["rows"]]
    second = any_page.json("rows", table="hostile", sort=sort, offset=1, limit=2)["rows"]
    assert expected[1:3] == [int(row["key"][0]) for row in second]


def test_facets_count_exact_values(any_page: Page) -> None:
    """Every text of a column with its number of rows, at the moment."""
    values = any_page.json("facets", table="hostile", column="amount")["values"]
    assert {each["value"]: each["rows"] for each in values} == dict.fromkeys(
        ["1.50", "NaN", "-Infinity", None, "-2.00"], 1
    )
    assert any_page.json("facets", table="orders", column="note", at="0/250")["distinct"] == 3


def test_a_deleted_row_is_found_by_a_former_value(any_page: Page) -> None:
    """`b` was order 1's note from 0/150 to 0/250; order 3 is gone."""
    (found,) = any_page.json("find", table="orders", value="b")["found"]
    assert (found["key"], found["state"], found["columns"]) == (["1"], "exists", ["note"])
    assert (found["from_lsn"], found["to_lsn"]) == ("0/150", "0/250")
    (gone,) = any_page.json("find", table="orders", value="3", column="id")["found"]
    assert (gone["key"], gone["state"]) == (["3"], "deleted")
    assert any_page.json("find", table="orders", value="ne", contains=True)["found"][0]["key"] == ["4"]
    assert any_page.json("find", table="orders", value="new", at="0/200")["found"] == []


def test_the_life_of_a_row_has_every_version(page: Page) -> None:
    """Order 1: snapshot, then b, then c; newest first."""
    answer = page.json("row", table="orders", key="1")
    assert [(e["lsn"], e["op"]) for e in answer["events"]] == [
        ("0/250", "update"),
        ("0/150", "update"),
        ("0/100", "snapshot"),
    ]
    assert answer["events"][0]["changed"]["note"] == {"old": "b", "new": "c"}
    assert answer["exists"]
    assert not page.json("row", table="orders", key="3")["exists"]
    assert {each["column"]: each["lsn"] for each in answer["blame"]}["note"] == "0/250"


def test_a_transaction_has_its_changes_and_neighbours(page: Page) -> None:
    """0/250 changes two tables; the neighbours are by commit and by table, and by the row that was asked for."""
    answer = page.json("transaction", transaction="0/250", table="orders", key="1")
    changes = [(c["ordinal"], c["op"], c["table"], c["key"]) for c in answer["changes"]]
    assert changes == [
        (0, "update", "public.orders", {"id": "1"}),
        (1, "insert", "public.orders", {"id": "4"}),
        (2, "update", "public.customers", {"id": "1"}),
    ]
    around = {each["by"]: (each["before"], each["after"]) for each in answer["neighbours"]}
    assert around == {
        "transaction": ("0/200", "0/300"),
        "row": ("0/150", None),
        "table public.orders": ("0/200", "0/300"),
        "table public.customers": (None, None),
    }


def test_the_log_is_paged(page: Page) -> None:
    """Newest first, up to the moment, and before the last one of the page before."""
    first = page.json("log", limit=3)
    assert [each["lsn"] for each in first["transactions"]] == ["0/300", "0/250", "0/200"]
    assert [each["lsn"] for each in page.json("log", before=first["before"])["transactions"]] == ["0/150"]
    assert [each["lsn"] for each in page.json("log", table="customers")["transactions"]] == ["0/250"]
    assert page.json("log", at="0/200", since="0/200")["transactions"][0]["lsn"] == "0/200"


@pytest.mark.parametrize(
    ("asked", "lsns"),
    [
        ({"op": "delete"}, ["0/300", "0/200"]),
        ({"op": "insert"}, ["0/250", "0/200"]),
        ({"op": "insert", "table": "customers"}, []),
        ({"op": "update", "table": "customers"}, ["0/250"]),
        ({"op": "delete", "table": "orders", "since": "0/201"}, ["0/300"]),
        ({"table": ["orders", "customers"]}, ["0/250"]),
        ({"table": ["orders", ""]}, ["0/300", "0/250", "0/200", "0/150"]),
        ({"table": ["customers", "hostile"]}, []),
        ({"op": "insert", "table": ["orders", "customers"]}, ["0/250"]),
    ],
)
def test_the_log_is_filtered_by_operation_and_tables(page: Page, asked: dict[str, Any], lsns: list[str]) -> None:
    """The operation is one on the tables named; of several tables, a transaction changed each."""
    assert [each["lsn"] for each in page.json("log", **asked)["transactions"]] == lsns
    html = page.get("/log", **asked).text
    assert ("passes these filters" in html) == (not lsns)


def test_many_transactions_with_an_operation_are_read_in_parts(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newest first across the parts, and only as many as are asked for."""
    monkeypatch.setattr(commit_answers, "MOST_LISTED", 1)
    found = [page.json("log", table="orders", op="update", limit=limit) for limit in (5, 1)]
    assert [[each["lsn"] for each in log["transactions"]] for log in found] == [["0/250", "0/150"], ["0/250"]]


def test_two_moments_are_compared_and_undone(page: Page) -> None:
    """From 0/200 to 0/300: order 1 modified, 3 removed, 4 added; the script goes back."""
    tables = page.json("compare", before="0/200", after="0/300")["tables"]
    orders = next(each for each in tables if each["table"] == "public.orders")
    assert (orders["added"], orders["removed"], orders["modified"]) == (1, 1, 1)
    assert [(entry["diff"], entry["key"]) for entry in orders["entries"]] == [
        ("added", {"id": "4"}),
        ("removed", {"id": "3"}),
        ("modified", {"id": "1"}),
    ]
    script = page.get("/api/v1/undo", before="0/200", after="0/300", table="orders").text
    assert "begin isolation level repeatable read read write;" in script
    assert "array['1','c','3.00'" in script.replace(", ", ",")


def test_a_table_that_changed_without_a_transaction_is_compared(tmp_path: Path) -> None:
    """Its changes are in a gap; while capture has not passed that, a comparison with now shows why there is none."""
    for end, problem in ((0x380, None), (0x390, "as of now, it is known again from 0/390 on")):
        lake = write_lake(tmp_path / f"lake{end}")
        record_gaps(lake, [Gap(TableName("public", "orders"), Lsn(0x300), Lsn(end), "a partition was attached")])
        found = {each["table"]: each for each in Page(lake).json("compare", before="0/300", table="orders")["tables"]}
        listed = {each["table"]: each for each in Page(lake).json("compare", before="0/300")["tables"]}
        assert found.keys() == {"public.orders"}
        assert ("public.orders" in listed) is (problem is not None)  # no row differs
        assert (problem or "") in (found["public.orders"]["problem"] or "")


def test_the_timeline_counts_every_commit_once(page: Page) -> None:
    """Four commits, at 6, 10, 10 and 30 s; steps go from one to the next, and to the copies before the first."""
    whole = page.json("timeline", bars=24)
    assert (whole["first_us"], whole["last_us"]) == (T0_US + 6_000_000, T0_US + 30_000_000)
    assert [bar["commits"] for bar in whole["bars"] if bar["commits"]] == [1, 2, 1]
    zoomed = page.json("timeline", from_us=T0_US + 9_000_000, to_us=T0_US + 11_000_000, bars=2)
    assert [(bar["commits"], bar["lsn"]) for bar in zoomed["bars"]] == [(0, "0/150"), (2, "0/250")]
    assert page.json("step", at="0/200", by=1)["lsn"] == "0/250"
    assert page.json("step", at="0/200", by=-1)["lsn"] == "0/150"
    beginning = {"number": 0, "lsn": "0/100", "time": None, "time_us": T0_US + 6_000_000}
    assert page.json("step", at="0/150", by=-9) == page.json("step", time_us=T0_US) == beginning
    assert page.json("step", at="0/100", by=1)["lsn"] == "0/150"
    assert page.json("step", time_us=T0_US + 12_000_000)["lsn"] == "0/250"


def test_rows_are_walked_in_the_order_of_their_keys(any_page: Page) -> None:
    """Forwards and backwards, from a key that does not exist, too; the last one has no next."""

    def beside(key: str, way: str, at: str = "0/250") -> list[str] | None:
        found: list[str] | None = any_page.json("neighbour", table="orders", key=key, way=way, at=at)["key"]
        return found

    assert [beside(key, "next") for key in ("0", "1", "2", "3", "4")] == [["1"], ["3"], ["3"], ["4"], None]
    assert [beside(key, "previous") for key in ("5", "4", "3", "2", "1")] == [["4"], ["3"], ["1"], ["1"], None]
    assert beside("1", "next", "0/100") == ["2"]
    assert any_page.get("/api/v1/neighbour", table="orders", key=["1", "2"]).status_code == 400


def test_exports_have_every_value(page: Page) -> None:
    """CSV distinguishes NULL from the empty text; JSON and Parquet have the texts."""
    assert page.get("/api/v1/export", table="orders", at="0/200").text.splitlines()[1:] == [
        "1,b,2.00,2026-01-01 12:00:00.25+00",
        "3,,,2026-01-01 12:00:00.25+00",
    ]
    lines = page.get("/api/v1/export", table="hostile", format="json", sort="id").text.splitlines()
    assert [json.loads(line)["text"] for line in lines][0:4:2] == [SCRIPT, ""]
    assert json.loads(lines[4])["text"] == LONG
    assert page.get("/api/v1/export", table="orders", at="0/150").text.splitlines()[2].startswith('2,"",10.50')
    parquet = pa.BufferReader(page.get("/api/v1/export", table="hostile", format="parquet", sort="id").content)
    assert pq.read_table(parquet)["amount"].to_pylist() == ["1.50", "NaN", "-Infinity", None, "-2.00"]


def test_an_export_is_refused_rather_than_cut(tmp_path: Path) -> None:
    """More rows than the server allows is an error before the first byte."""
    page = Page(write_lake(tmp_path / "lake"), limits=Limits(export_rows=4))
    response = page.get("/api/v1/export", table="hostile")
    assert response.status_code == 422
    assert "5 rows" in response.json()["error"]


@pytest.mark.parametrize(
    ("path", "parameters", "status"),
    [
        ("rows", {"table": "nope"}, 400),
        ("rows", {}, 400),
        ("rows", {"table": "orders", "limit": "501"}, 400),
        ("rows", {"table": "orders", "where": "nope:is:1"}, 400),
        ("rows", {"table": "orders", "where": "id:is:x"}, 400),
        ("rows", {"table": "orders", "at": "0/99"}, 422),
        ("rows", {"table": "orders", "at": "0/999"}, 422),
        ("rows", {"table": "orders", "at": "soon"}, 400),
        ("rows", {"table": "orders", "strange": "1"}, 400),
        ("timeline", {"bars": "many"}, 400),
        ("transaction", {"transaction": "0/151"}, 422),
        ("nothing", {}, 404),
    ],
)
def test_what_cannot_be_answered_is_a_problem(page: Page, path: str, parameters: Any, status: int) -> None:
    """Errors have a status, a message and the exit code of the command; never the values of a request."""
    response = page.get(f"/api/v1/{path}", **parameters)
    assert response.status_code == status
    assert set(response.json()) == {"error", "hint", "code"}


_ASKED: list[tuple[str, dict[str, Any]]] = [
    ("lake", {}),
    ("tables", {"at": "0/200"}),
    ("rows", {"table": "hostile"}),
    ("facets", {"table": "hostile", "column": "text"}),
    ("find", {"table": "orders", "value": "b"}),
    ("row", {"table": "orders", "key": "3"}),
    ("row", {"table": "orders", "key": "1", "versus": "0/150", "column": "note"}),
    ("neighbour", {"table": "orders", "key": "1"}),
    ("log", {}),
    ("transaction", {"transaction": "0/250"}),
    ("compare", {"before": "0/150"}),
    ("timeline", {}),
    ("step", {"by": -1}),
    ("status", {}),
]


def test_every_answer_is_valid_by_the_document(page: Page) -> None:
    """Each path of the OpenAPI document is asked, and answers with its schema; so do errors."""
    document = page.get("/api/openapi.json").json()
    for name, parameters in _ASKED:
        operation = document["paths"][f"/api/v1/{name}"]["get"]
        known = {each["name"] for each in operation["parameters"]}
        assert set(parameters) <= known
        _validate(document, operation, "200", page.json(name, **parameters))
    problem = page.get("/api/v1/rows", table="nope").json()
    _validate(document, document["paths"]["/api/v1/rows"]["get"], "400", problem)
    completed = page.ask("POST", "/api/v1/complete", json={"sql": "select * from ord"}).json()
    assert completed["completions"][0]["text"] == "orders"
    _validate(document, document["paths"]["/api/v1/complete"]["post"], "200", completed)
    answered = page.ask("POST", "/api/v1/sql", json={"sql": "select 1 as one", "at": "0/150"}).json()
    _validate(document, document["paths"]["/api/v1/sql"]["post"], "200", answered)
    asked = {f"/api/v1/{name}" for name, _ in _ASKED} | {"/api/v1/sql", "/api/v1/complete"}
    assert set(document["paths"]) == asked


def _validate(document: Any, operation: Any, status: str, answer: Any) -> None:
    reference = operation["responses"][status]["content"]["application/json"]["schema"]["$ref"]
    schema = {"$ref": reference, "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)


def test_an_answer_is_asked_for_again_and_not_sent_twice(tmp_path: Path) -> None:
    """Also one as of a past LSN, which has the number of all commits."""
    page = Page(write_lake(tmp_path / "lake"))
    asked = "/api/v1/rows?table=orders&at=0/200"
    past = page.ask("GET", asked)
    assert past.headers["cache-control"] == "private, no-cache"
    tag = {"if-none-match": past.headers["etag"]}
    for had in (past.headers["etag"], f'"other", W/{past.headers["etag"]}'):  # weak, once a proxy has compressed it
        again = page.ask("GET", asked, headers={"if-none-match": had})
        assert (again.status_code, again.content) == (304, b"")
    capture_transaction(page.resources.lake, 0x500)
    later = Page(page.resources.lake).ask("GET", asked, headers=tag)
    assert later.json()["at"]["commits"] > past.json()["at"]["commits"]


def test_rows_of_the_past_are_those_of_the_table_s_version(tmp_path: Path) -> None:
    """A new snapshot may correct them: what a former version of the history showed is not kept."""
    page = Page(write_lake(tmp_path / "lake"))
    assert page.json("rows", table="hostile", at="0/200")["count"] == 5
    history = open_delta(page.resources.lake.root / "history/public/hostile")
    assert history is not None
    history.delete("id = 5")
    page.resources._latest.reader = None  # noqa: SLF001 - as a second later
    found = page.json("rows", table="hostile", at="0/200")
    assert (found["count"], [row["key"] for row in found["rows"]]) == (4, [["1"], ["2"], ["3"], ["4"]])


def test_sql_shows_no_row_that_was_erased(tmp_path: Path) -> None:
    """Neither from what a process knows of the lake, nor from the answers that are kept."""
    page = Page(write_lake(tmp_path / "lake"))

    def asked() -> list[int]:
        found = page.ask("POST", "/api/v1/sql", json={"sql": "select id from hostile order by id", "at": "0/200"})
        return [int(row[0]) for row in found.json()["rows"]]

    assert asked() == asked() == [1, 2, 3, 4, 5]
    history = open_delta(page.resources.lake.root / "history/public/hostile")
    assert history is not None
    history.delete("id = 5")
    page.resources._latest.reader = None  # noqa: SLF001 - as a second later
    assert asked() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("at", "expected"), [("0/150", [["1", "b"], ["2", ""]]), ("0/300", [["1", "c"], ["4", "new"]])]
)
def test_sql_is_as_of_the_moment(any_page: Page, at: str, expected: list[list[str]]) -> None:
    """Without a JVM, for a statement that means the same in DuckDB; NULL and the empty text differ."""
    asked = {"sql": "select id, note from orders order by id", "at": at}
    answer = any_page.ask("POST", "/api/v1/sql", json=asked).json()
    assert (answer["engine"], answer["rows"], answer["at"]["lsn"]) == ("DuckDB", expected, at)
    shown = any_page.ask("POST", "/sql/answer", json=asked).json()
    assert (shown["rows"], "<bdi>note</bdi>" in shown["html"]) == (2, True)


def test_the_charts_of_an_answer_have_the_same_samples(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another request adds one while they are made."""
    answers, made = lake_answers.StatusAnswers(), models.ChartJson

    def meanwhile(**given: Any) -> models.ChartJson:
        answers._read(page.resources)  # noqa: SLF001 - another request
        return made(**given)

    monkeypatch.setattr(lake_answers, "_FRESH_S", -1.0)
    monkeypatch.setattr(models, "ChartJson", meanwhile)
    charts = answers.status(page.resources, lake_answers.At()).charts
    assert {(len(each.times_us), len(each.values)) for each in charts if each.name == "parked tables"} == {(1, 1)}
    assert all(len(each.times_us) == len(each.values) for each in charts)


def test_status_is_read_again_whatever_the_clock_shows(page: Page) -> None:
    """A clock that was ahead when it was read last leaves no status from then."""
    answers = lake_answers.StatusAnswers()
    first, _ = answers._read(page.resources)  # noqa: SLF001 - what requests share
    answers._last = replace(first, read_at_s=first.read_at_s + 3600)  # noqa: SLF001 - as above
    answers._read_at -= 3600  # noqa: SLF001 - as above
    again, samples = answers._read(page.resources)  # noqa: SLF001 - as above
    assert (again.read_at_s < first.read_at_s + 3600, len(samples)) == (True, 2)


def test_sql_is_read_in_the_dialect_that_is_asked_for(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """With PostgreSQL's names and types; errors are the statement's, and no engine is started for them."""
    asked = {"sql": "select id::text || '!', at, price / 3 from orders where id = 1", "dialect": "postgres"}
    answer = page.ask("POST", "/api/v1/sql", json=asked).json()
    assert answer["rows"] == [["1!", "2026-01-01T12:00:00.250000Z", "1.00000000000000000000"]]
    assert [(each["name"], each["type"], each["numeric"]) for each in answer["columns"]] == [
        ("?column?", "text", False),
        ("at", "timestamp with time zone", False),
        ("?column?", "numeric", True),
    ]
    for sql, status, message in (
        ("select id / 0 from orders", 400, "division by zero"),
        ("select nte from orders", 400, "there is no column nte at line 1, column 8"),
        ("explain select id from orders", 400, ""),
        ("select pg_sleep(1)", 422, "not translated"),
    ):
        refused = page.ask("POST", "/api/v1/sql", json={"sql": sql, "dialect": "postgres"})
        assert (refused.status_code, message in refused.json()["error"]) == (status, True), refused.text
    monkeypatch.setattr(page.resources, "dialect", "postgres")
    assert page.ask("POST", "/api/v1/sql", json={"sql": "select 7 / 2"}).json()["rows"] == [["3"]]


def test_answers_of_one_text_in_two_dialects_are_kept_apart(page: Page) -> None:
    """And those of a clock: `now()` is the time of each run."""
    for dialect, rows in (("spark", "3.5"), ("postgres", "3")):
        asked = {"sql": "select max(id) * 7 / 8 as n from orders where id = 4", "dialect": dialect}
        assert page.ask("POST", "/api/v1/sql", json=asked).json()["rows"] == [[rows]]
    asked = {"sql": "select now() from orders", "dialect": "postgres"}
    assert len({str(page.ask("POST", "/api/v1/sql", json=asked).json()["rows"]) for _ in range(2)}) == 2


def test_sql_returns_long_rows_up_to_a_number_of_characters(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows with 2 and 1 characters, the first one fits into 2, and none into 1."""
    for most, status, rows in ((3, 200, [["1", "b"], ["2", ""]]), (2, 200, [["1", "b"]]), (1, 422, None)):
        monkeypatch.setattr(bounds, "ANSWER_CHARACTERS", most)
        asked = {"sql": f"select id, note from orders where id < 3 and id > -{most} order by id", "at": "0/150"}
        answered = page.ask("POST", "/api/v1/sql", json=asked)
        assert answered.status_code == status
        answer = answered.json()
        assert (answer.get("rows"), answer.get("more", True)) == (rows, most < 3)


def test_sql_only_reads_the_lake(page: Page) -> None:
    """Anything else is refused before an engine starts, and so is what shows files of the lake."""
    for attack in (*ATTACKS, *READ_DIFFERENTLY, "explain select id from orders", "-- a\n/* b */ explain select 1"):
        sql = attack.format(path="/etc/hostname")
        answered = page.ask("POST", "/api/v1/sql", json={"sql": sql, "dialect": "spark"})
        assert answered.status_code == 400, sql
        assert "HOSTNAME" not in answered.text
        if attack in ATTACKS:
            answered = page.ask("POST", "/api/v1/sql", json={"sql": sql})
            assert answered.status_code in {400, 422}, sql
            assert "HOSTNAME" not in answered.text


def test_relative_times_of_a_statement_are_asked_again(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an idle lake too: the same text is another question a minute later; within a moment it is kept."""

    def answered(seconds: int) -> tuple[object, object]:
        class Later(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Self:
                return cls.fromtimestamp((T0 + timedelta(seconds=seconds)).timestamp(), tz)

        monkeypatch.setattr("auditlake.query.statement.datetime", Later)
        sql = "select id, note from orders for system_time as of '-40s' order by id"
        answer = answered_here(page.resources.lake, sql)
        return answer["rows"], answer["key"]

    early, late = answered(47), answered(75)
    assert (early[0], late[0]) == ([["1", "b"], ["2", ""]], [["1", "c"], ["4", "new"]])
    assert early[1] == answered(47)[1] != late[1]


def test_only_what_depends_on_the_lake_alone_is_kept(page: Page) -> None:
    """The key of an answer has the LSNs and versions that it reads; a log has none, so its answers are not kept."""

    def key(sql: str) -> object:
        return cache_key(prepare_statement(read_state(page.resources.lake, None, UTC), sql, {}), sql)

    assert key("select id from orders") == key("select id from orders") is not None
    assert key("select id from orders for system_time as of '0/150'") != key("select id from orders")
    assert key("select * from auditlake.gaps") is None
    for sql in ("now()", "current_timestamp", "current_date", "rand()", "uuid()", "unix_timestamp()", "localtimestamp"):
        query = prepare_statement(read_state(page.resources.lake, None, UTC), f"select {sql} as n", {})
        with pytest.raises(NotEmbedded):
            Embedded({}).answer(read_state(page.resources.lake, None, UTC), query)


def test_a_damaged_file_is_no_bug(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever error the library makes of it: the answer names the file, as the command line does."""
    page = Page(write_lake(tmp_path / "lake"))
    (file,) = (page.resources.lake.history(TableName("public", "hostile"))).glob("_part=open/*.parquet")
    file.write_bytes(b"")
    for name in ("rows", "export"):
        failed = page.get(f"/api/v1/{name}", table="hostile")
        assert (failed.status_code, failed.json()["code"]) == (503, 6), failed.text
        assert f"damaged: public.hostile, _part=open/{file.name}: file size" in failed.json()["error"]
    assert "bug" not in capsys.readouterr().err


@pytest.mark.parametrize("store", ["disk", "s3"])
def test_a_missing_file_is_a_problem_of_the_lake(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str], store: str
) -> None:
    """Status 503 and no report of a bug; the list of tables names the problem, and counts the others."""
    root = chosen_store(tmp_path / "lake") if store == "disk" else request.getfixturevalue("remote_folder")
    page = Page(write_lake(root))
    for file in (root / "history/public/hostile").glob("_part*/*"):
        file.unlink()
    asked: tuple[tuple[str, dict[str, str]], ...] = (
        ("rows", {}),
        ("find", {"value": "1"}),
        ("row", {"key": "1"}),
        ("export", {}),
    )
    of_file = {"disk": ("cannot be read",), "s3": ("cannot be read", "No such object")}[store]
    for name, parameters in asked:
        failed = page.get(f"/api/v1/{name}", table="hostile", **parameters)
        assert (failed.status_code, failed.json()["code"]) == (503, 6), failed.text
        assert any(text in failed.json()["error"] for text in of_file), failed.text
    listed = {each["table"]: (each["rows"], each["problem"]) for each in page.json("tables")["tables"]}
    assert listed["public.orders"] == (2, None)
    assert any(text in str(listed["public.hostile"][1]) for text in of_file)
    assert "bug" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cursor", "status", "error"),
    [
        ("7:0/FFF", 422, "this lake knows them up to 0/300"),
        ("7:0/10", 422, "this lake begins at"),
        ("8:0/200", 422, "belongs to the source with system identifier 8"),
        ("7:0/200, 7:0/250", 400, "is not a cursor"),
        ("9" * 5_000, 400, "is not a cursor"),
    ],
)
def test_a_reader_reconnects_with_a_cursor_of_this_lake(page: Page, cursor: str, status: int, error: str) -> None:
    """From another lake, ahead of it, before it, or forged: an error of the client, whatever else it asks for."""
    answered = page.ask("GET", "/api/v1/changes?since=beginning", headers={"Last-Event-ID": cursor})
    assert (answered.status_code, error in answered.json()["error"]) == (status, True), answered.text
