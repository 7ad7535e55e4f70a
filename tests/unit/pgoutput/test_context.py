"""Tests of a transaction's context: the assertion in force, and content that is not JSON."""

import json

import pytest

from auditlake.attribution import Scope, read_context

Messages = list[tuple[str, str] | None]
_SET, _CLEAR = "sequin:transaction_annotations.set", "sequin:transaction_annotations.clear"


def _scope(messages: Messages) -> Scope:
    """Apply the messages of a transaction; None stands for a row change."""
    scope = Scope()
    for ordinal, message in enumerate(messages):
        if message is not None:
            scope = scope.after(message[0], message[1].encode(), ordinal)
    return scope


@pytest.mark.parametrize(
    ("messages", "app"),
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
def test_the_context_is_the_last_assertion_in_force(messages: Messages, app: object) -> None:
    """The assertion in force at the end of the transaction wins, else the last in force for a change."""
    assert app == read_context(_scope(messages).text).app


def test_assertion_and_observation_are_independent() -> None:
    """The application's message does not overwrite the trigger's, nor the reverse."""
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
def test_the_actor_is_found_under_each_client_s_name(app: object, actor: str | None) -> None:
    """The actor is a text; clients with other prefixes send it under other names."""
    assert actor == read_context(_scope([("auditlake", json.dumps(app))]).text).actor


def test_content_that_is_not_utf8_is_kept_in_hex() -> None:
    """Bytes that are not UTF-8 become a string in PostgreSQL's hex format of bytea."""
    assert Scope().after("auditlake", b"\xff\x00", 0).text == '{"app": "\\\\xff00"}'
