"""Requests of any values to every path of the server: a refusal is one of the client's mistake, never a bug."""

import random
from typing import Any

import pytest

from tests.page import Page, write_lake
from tests.random_seeds import random_seeds

_TEXTS = (
    *("orders", "public.orders", "hostile", "customers", "0/250", "xid:12", "now", "-2h", "1", "id", "-id", "note"),
    *("id:is:1", "note:contains:%", "price:>=:1", "at:before:x", "text:is-null", "id:in:1,2", "::", "id:", ":is:"),
    *("", " ", "\x00", "\x00orders", "\u202e", "\x7f", "a" * 201, "x" * 10_001, "é" * 300),
    *("-1", "0", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 400, "1" * 5_000),
    *("NaN", "nan", "Infinity", "-inf", "1e400", "0x10", "1_0", "\u0663", "+1", "1.5", "true", "null", "[]", "{}", "'"),
    *("-99999999h", "-1e9h", "10000-01-01", "0001-01-01", "infinity", "294277-01-01", "2026-02-30"),
    *("FFFFFFFF/FFFFFFFF", "100000000/0", "0/1FFFFFFFF", "xid:99999999999", "xid:-1", "xid:x", "pg_catalog.x"),
    *("../../etc/passwd", "%2e%2e", "a\r\nb: c", "2026-11-21T10:00:00+99:99", "2026-11-21 10:00 Mars/Sea"),
    *("a.b.c.d", '"', '"a"."b"', "id:is:" + "9" * 400, "at:is:1e99", "price:is:NaN", "day:>:infinity", "id:is:-1"),
)
_STATEMENTS = (
    *(
        "select 1 as a",
        "select * from orders",
        "select",
        ";",
        "",
        "\x00",
        "select '\x00'",
        "(" * 5_000,
        "explain select 1",
    ),
    *("select " + "-" * 19_000, "select " + "1+" * 9_000 + "1", "select $1", "select 1e999999999", "select 1::nope"),
    *("with a as", "select interval '1' year to", "select * from orders for system_time as of '99999999999999999999'"),
    *("select 'é" + "\u202e" * 9_000, "select " + "(" * 300 + "1" + ")" * 300, "select * from orders limit -1"),
    *(
        "select * from orders offset 9223372036854775808",
        "select generate_series(1, 9223372036854775807)",
        "show tables",
    ),
)
_PAGES = {
    "/": "tables",
    "/rows": "rows",
    "/row": "row",
    "/log": "log",
    "/transaction": "transaction",
    "/compare": "compare",
    "/find": "find",
    "/row/next": "neighbour",
    "/api/v1/export": "rows",
    "/api/v1/undo": "compare",
}
_OF_PAGES = {
    "/rows": ("facet", "fc", "fo", "fv", "_fragment"),
    "/sql": ("at", "sql", "dialect", "_fragment"),
    "/log": ("_fragment", "_evidence"),
    "/find": ("_fragment",),
}
"""What only pages take."""
_ALLOWED = frozenset({200, 303, 400, 403, 404, 422})


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A client of the page of the small lake."""
    return Page(write_lake(tmp_path_factory.mktemp("lake") / "lake"))


def _asked(page: Page) -> dict[str, list[dict[str, Any]]]:
    """Return the parameters of each path that is asked with GET."""
    paths = page.get("/api/openapi.json").json()["paths"]
    asked = {path: each["get"]["parameters"] for path, each in paths.items() if "get" in each}
    asked |= {path: asked[f"/api/v1/{name}"] for path, name in _PAGES.items()}
    more = {path: [{"name": name, "required": False} for name in names] for path, names in _OF_PAGES.items()}
    return asked | {path: [*asked.get(path, ()), *parameters] for path, parameters in more.items()}


def _chosen(asked: list[dict[str, Any]], chosen: random.Random) -> list[tuple[str, str]]:
    """Choose values for some parameters, more often of those that are required, and sometimes one many times."""
    given: list[tuple[str, str]] = []
    for each in asked:
        if chosen.random() < (0.95 if each["required"] else 0.4):
            count = chosen.choice((1, 1, 1, 2, 60))
            given += [(each["name"], chosen.choice(_TEXTS)[: 20_000 // count]) for _ in range(count)]
    return given


def test_parameters_of_any_values_are_no_bug(page: Page) -> None:
    """Negative, huge and strange numbers, long texts, names that do not exist, control characters."""
    asked = _asked(page)
    for seed in random_seeds():
        chosen = random.Random(seed)  # noqa: S311 - no secret
        for path, parameters in asked.items():
            given = _chosen(parameters, chosen)
            response = page.ask("GET", path, params=given)
            assert response.status_code in _ALLOWED, (path, given, response.text[:500])


@pytest.mark.parametrize(
    "path", ["/sql?at=", "/rows?table=orders&facet=", "/find?at=", "/compare?after=", "/row/next?at="]
)
def test_a_parameter_of_a_page_may_be_too_long(page: Page, path: str) -> None:
    """It is refused as one of the API is."""
    assert page.ask("GET", path + "9" * 5_000).status_code == 400


def test_a_statement_of_any_text_is_no_bug(page: Page) -> None:
    """Nor is whatever is sent in the place of one."""
    for seed in random_seeds():
        chosen = random.Random(seed)  # noqa: S311 - no secret
        for path in ("/api/v1/sql", "/api/v1/complete", "/sql/answer"):
            body: dict[str, Any] = {"sql": chosen.choice(_STATEMENTS), "dialect": chosen.choice(("postgres", "x", 7))}
            body |= {"at": chosen.choice(_TEXTS), "rest": chosen.choice(_STATEMENTS)}
            given = {name: value for name, value in body.items() if chosen.random() < 0.6}
            response = page.ask("POST", path, json=given)
            assert response.status_code in _ALLOWED, (path, given, response.text[:500])


@pytest.mark.parametrize(
    "sql",
    [
        "select " + "(" * 300 + "1" + ")" * 300 + " as a",
        "select " + "not " * 4_000 + "true as a",
        "select 1 as a" + " union all select 1" * 900,
        "select id from orders where " + "abs(" * 500 + "id" + ")" * 500 + " = 1",
    ],
    ids=["parentheses", "not", "union", "calls"],
)
def test_a_statement_that_is_nested_too_deep_is_named_so(page: Page, sql: str) -> None:
    """Python calls a function in another for each level, and ends at some hundreds; no JVM is started for one."""
    response = page.ask("POST", "/api/v1/sql", json={"sql": sql, "dialect": "spark"})
    assert (response.status_code, response.json()["error"]) == (400, "the SQL is nested too deep")


@pytest.mark.parametrize(
    "path",
    [
        "/static/" + "a" * 300 + ".css",
        "/static/%00.css",
        "/static/..%2fserver.css",
        "/%ff",
        "/rows/%00",
        "/static/%ff.js",
    ],
)
def test_a_path_of_any_name_is_not_found(page: Page, path: str) -> None:
    """Also one that no file can have."""
    assert page.get(path).status_code == 404
