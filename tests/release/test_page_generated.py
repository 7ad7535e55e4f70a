"""Requests generated from the OpenAPI document: no question of any form is a bug, and every answer has its schema.

Values are those of the document's types, within their bounds and at them, mixed with names, keys, moments and filters
of the small lake, so that most requests are answered and the others are refused by name.
"""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.page import Page, write_lake

_EXAMPLES = 600
_OF_THE_LAKE: dict[str, list[str]] = {
    "table": ["orders", "public.orders", "public.hostile", "customers", '"public"."orders"', "nope", "public."],
    "column": ["id", "note", "text", "amount", "day", "price", "nope"],
    "sort": ["id", "-id", "amount", "-day", "-", "nope"],
    "where": [
        "id:is:1",
        "amount:ge:-2",
        "amount:lt:NaN",
        "day:le:infinity",
        "text:has:%",
        "note:null:",
        "id:is:x",
        ":::",
    ],
    "key": ["1", "2", "id=3", "99999999999999999999", "NaN", "1,2"],
    "value": ["b", "1", "NaN", "0044-03-15 BC", "", "''"],
    "transaction": ["0/250", "0/300", "10", "xid:12", "0/FFFFFFFF", "18446744073709551615"],
    "actor": ["app", ""],
}
_MOMENTS = [
    "0/150",
    "0/200",
    "0/250",
    "0/300",
    "0/100",
    "0/0",
    "FFFFFFFF/FFFFFFFF",
    "xid:11",
    "-2h",
    "now",
    "2026-11-21",
]
_MOMENTS += ["2026-11-21 09:00:10", "0001-01-01", "9999-12-31 23:59:59.999999", "xid:99999999999999999999", "-9999999h"]
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
_LSN_NAMES = {"at", "before", "after", "since", "until"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of the small lake."""
    return Page(write_lake(tmp_path_factory.mktemp("generated") / "lake"))


def _document(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.get("/api/openapi.json").json()
    return found


def _values(name: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values of a parameter: by its schema, of the lake, and any text."""
    kinds = schema.get("anyOf", [schema])
    kinds = [kind for kind in kinds if kind.get("type") != "null"]
    kind = kinds[0]
    if kind["type"] == "array":
        return st.lists(_values(name, kind["items"]), max_size=3)
    if kind["type"] == "integer":
        low, high = kind.get("minimum", -(2**70)), kind.get("maximum", 2**70)
        return st.one_of(st.integers(low, min(high, low + 100)), st.sampled_from([low, high, low - 1, high + 1, 0]))
    if kind["type"] == "boolean":
        return st.sampled_from(["true", "false", "1", "maybe"])
    known = kind.get("enum") or _OF_THE_LAKE.get(name) or (_MOMENTS if name in _LSN_NAMES else [])
    return st.one_of(*[st.sampled_from(known)] * (3 if known else 0), _TEXTS) if known else _TEXTS


def _requests(document: dict[str, Any]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """Return requests of any path that is asked with GET: required parameters nearly always, others at times."""
    paths = []
    for path, operations in document["paths"].items():
        if "get" not in operations:
            continue
        required: dict[str, st.SearchStrategy[Any]] = {}
        optional: dict[str, st.SearchStrategy[Any]] = {}
        for parameter in operations["get"]["parameters"]:
            of = required if parameter["required"] else optional
            of[parameter["name"]] = _values(parameter["name"], parameter["schema"])
        paths.append(st.tuples(st.just(path), st.fixed_dictionaries(required, optional=optional)))
    return st.one_of(paths)


def _validate(document: dict[str, Any], operation: dict[str, Any], status: int, answer: Any) -> None:
    assert str(status) in operation["responses"], (status, answer)
    reference = operation["responses"][str(status)]["content"]["application/json"]["schema"]["$ref"]
    schema = {"$ref": reference, "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)


_SETTINGS = settings(max_examples=_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def test_every_generated_question_is_answered_by_the_document(page: Page) -> None:
    """Status 200, 400, 422 or 503, with the schema that the document has for it; never a bug."""
    document = _document(page)
    statuses: dict[int, int] = {}

    @_SETTINGS
    @given(_requests(document))
    def ask(request: tuple[str, dict[str, Any]]) -> None:
        path, parameters = request
        response = page.get(path, **parameters)
        assert response.status_code in {200, 400, 422}, (path, parameters, response.text)
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
        _validate(document, document["paths"][path]["get"], response.status_code, response.json())

    ask()
    assert statuses[200] > _EXAMPLES / 10, statuses
    assert statuses[400] > _EXAMPLES / 10, statuses


def test_pages_of_generated_questions_are_pages(page: Page) -> None:
    """The same parameters given to the pages: HTML, never a bug."""
    document = _document(page)
    shown = {"/api/v1/tables": "/"} | {f"/api/v1/{n}": f"/{n}" for n in ("rows", "row", "log", "transaction", "status")}
    shown |= {"/api/v1/compare": "/compare", "/api/v1/find": "/find"}

    @_SETTINGS
    @given(_requests(document).filter(lambda request: request[0] in shown))
    def ask(request: tuple[str, dict[str, Any]]) -> None:
        path, parameters = request
        response = page.get(shown[path], **parameters)
        assert response.status_code in {200, 303, 400, 422}, (path, parameters)
        assert response.status_code == 303 or response.text.startswith("<!doctype html>")

    ask()


def test_generated_bodies_are_answered_by_the_document(page: Page) -> None:
    """Completions of any text; bodies of other forms are refused."""
    document = _document(page)
    operation = document["paths"]["/api/v1/complete"]["post"]
    texts = st.one_of(_TEXTS, st.sampled_from(["select ", "select * from o", "select o. from orders o", "with a as ("]))
    bodies = st.one_of(
        st.fixed_dictionaries({"sql": texts}),
        st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), _TEXTS), st.lists, max_leaves=5),
        st.dictionaries(_TEXTS, _TEXTS, max_size=3),
    )

    @_SETTINGS
    @given(bodies)
    def ask(body: Any) -> None:
        headers = {"content-type": "application/json", "sec-fetch-site": "same-origin"}
        response = page.ask("POST", "/api/v1/complete", content=json.dumps(body).encode(), headers=headers)
        assert response.status_code in {200, 400}, (body, response.text)
        _validate(document, operation, response.status_code, response.json())

    ask()


def test_generated_downloads_are_files_or_problems(page: Page) -> None:
    """Exports and undo scripts of any parameters."""
    exports = st.fixed_dictionaries(
        {"table": st.sampled_from(_OF_THE_LAKE["table"])},
        optional={
            "format": st.sampled_from(["csv", "json", "parquet", "xml"]),
            "where": st.lists(st.sampled_from(_OF_THE_LAKE["where"]), max_size=2),
            "sort": st.sampled_from(_OF_THE_LAKE["sort"]),
            "at": st.sampled_from(_MOMENTS),
        },
    )
    undone = st.fixed_dictionaries(
        {"before": st.sampled_from(_MOMENTS)},
        optional={"after": st.sampled_from(_MOMENTS), "table": st.lists(st.sampled_from(_OF_THE_LAKE["table"]))},
    )

    @_SETTINGS
    @given(st.one_of(st.tuples(st.just("export"), exports), st.tuples(st.just("undo"), undone)))
    def ask(request: tuple[str, dict[str, Any]]) -> None:
        name, parameters = request
        response = page.get(f"/api/v1/{name}", **parameters)
        assert response.status_code in {200, 400, 422}, (name, parameters, response.text[:300])

    ask()
