"""Who and why: which message is in force, and what becomes of content that is no JSON."""

import json

import pytest

from auditlake.pgoutput.context import Scope, read_context

Said = list[tuple[str, str] | None]
_SET, _CLEAR = "sequin:transaction_annotations.set", "sequin:transaction_annotations.clear"


def _scope(said: Said) -> Scope:
    """Go through a transaction; None is a change of a row."""
    scope = Scope()
    for ordinal, message in enumerate(said):
        if message is not None:
            scope = scope.after(message[0], message[1].encode(), ordinal)
    return scope


@pytest.mark.parametrize(
    ("said", "app"),
    [
        ([("auditlake", '{"actor": "ann"}'), None], {"actor": "ann"}),
        ([None, ("auditlake", '{"actor": "ann"}')], {"actor": "ann"}),
        ([("auditlake", '{"actor": "ann"}'), None, ("auditlake", '{"actor": "bob"}'), None], {"actor": "bob"}),
        ([("auditlake", '{"a": 1, "b": 1}'), ("auditlake:merge", '{"b": 2}'), None], {"a": 1, "b": 2}),
        ([("auditlake:merge", '{"b": 2}'), None], {"b": 2}),
        ([("auditlake", '"text"'), ("auditlake:merge", '{"b": 2}')], {"b": 2}),
        ([("auditlake", '{"a": 1}'), None, ("auditlake:clear", "")], {"a": 1}),
        ([("auditlake", '{"a": 1}'), ("auditlake:clear", ""), None], None),
        ([(_SET, '{"a": 1}'), None, (_CLEAR, ""), None], {"a": 1}),
        ([(_SET, '{"a": 1}'), ("other", ""), (_CLEAR, ""), None], None),
        ([("_bemi", '{"user_id": 7}'), None], {"user_id": 7}),
        ([("other", '{"a": 1}'), None], None),
        ([("auditlake", "{not json"), None], "{not json"),
        ([("auditlake", "NaN")], "NaN"),
        ([("auditlake", "[" * 100_000)], "[" * 65_536),
    ],
)
def test_what_is_in_force(said: Said, app: object) -> None:
    """The assertion at the end of the transaction counts, else the last that a change was made under."""
    assert app == read_context(_scope(said).text).app


def test_asserted_and_observed_are_apart() -> None:
    """What the trigger says is not overwritten by what the application says, nor the other way round."""
    scope = _scope([("auditlake:db", '{"session_user": "app"}'), ("auditlake", '{"session_user": "root"}'), None])
    context = read_context(scope.text)
    assert (context.app, context.db_user) == ({"session_user": "root"}, "app")
    assert context.actor is None


@pytest.mark.parametrize(
    ("app", "actor"),
    [
        ({"actor": "ann", "user_id": 7}, "ann"),
        ({"user_id": 7}, "7"),
        ({"user": None, "email": "a@b"}, "a@b"),
        ("ann", None),
        ({}, None),
    ],
)
def test_actor(app: object, actor: str | None) -> None:
    """The actor is a text; other prefixes' clients say it under other names."""
    assert actor == read_context(_scope([("auditlake", json.dumps(app))]).text).actor


def test_bytes_that_are_no_text() -> None:
    """They are kept as PostgreSQL spells bytea."""
    assert Scope().after("auditlake", b"\xff\x00", 0).text == '{"app": "\\\\xff00"}'
