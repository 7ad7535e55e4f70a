"""Tests of a transaction's context: the assertion in force, and content that is not JSON."""

import json

import pytest

from auditlake.pgoutput.attribution import ContextInForce, codec_of, in_utf8, read_context
from tests.attacks import NOT_STRICT

Messages = list[tuple[str, str] | None]
_SET, _CLEAR = "sequin:transaction_annotations.set", "sequin:transaction_annotations.clear"


def _scope(messages: Messages) -> ContextInForce:
    """Apply the messages of a transaction; None stands for a row change."""
    scope = ContextInForce()
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
        ([("auditlake", "[" * 100 + "]" * 100)], json.loads("[" * 100 + "]" * 100)),
        ([("auditlake", '"\\ud83d\\ude00"')], "\U0001f600"),
    ],
)
def test_the_context_is_the_last_assertion_in_force(messages: Messages, app: object) -> None:
    """The assertion in force at the end of the transaction wins, else the last in force for a change."""
    assert app == read_context(_scope(messages).text).app


@pytest.mark.parametrize("text", NOT_STRICT, ids=range(len(NOT_STRICT)))
def test_content_that_cannot_be_encoded_again_is_a_string(text: str) -> None:
    """It replaces the assertion in force, as any other content that is not an object."""
    for prefix in ("auditlake", "auditlake:merge"):
        found = read_context(_scope([("auditlake", '{"actor": "ann"}'), (prefix, text), None]).text)
        assert (found.app, found.actor) == (text[:65_536], None)


@pytest.mark.parametrize("text", NOT_STRICT, ids=range(len(NOT_STRICT)))
def test_a_context_that_cannot_be_encoded_again_is_one_text(text: str) -> None:
    """A restored lake may have any text, and each reader would fail to write it."""
    kept = f'{{"app": {text}}}'
    context = read_context(kept)
    assert (context.app, context.actor) == (kept, None)


def test_merges_take_time_and_space_in_proportion_to_their_bytes() -> None:
    """Any role may send any number of them in a transaction."""
    scope = ContextInForce().after("auditlake", json.dumps({"actor": "ann", "a": "x" * 60_000}).encode(), 0)
    for ordinal in range(1, 20_000):
        scope = scope.after("auditlake:merge", b"{}", ordinal)
    assert read_context(scope.text).actor == "ann"
    for ordinal in range(30_000):
        scope = scope.after("auditlake:merge", b'{"k%d": 1}' % ordinal, 20_000 + ordinal)
    assert scope.text is not None
    assert len(scope.text) < 200_000


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
    """Bytes that are no text of PostgreSQL become a string in its hex format of bytea."""
    for content in (b"\xff\x00", b'{"actor": "\x00"}', b"a\x00b"):
        assert ContextInForce().after("auditlake", content, 0).text == f'{{"app": "\\\\x{content.hex()}"}}'


@pytest.mark.parametrize(
    ("encoding", "codec"),
    [("UTF8", None), ("EUC_TW", None), ("LATIN9", "iso8859-15"), ("WIN1252", "cp1252"), ("KOI8R", "koi8-r")],
)
def test_encodings_of_postgresql_are_found_in_python(encoding: str, codec: str | None) -> None:
    """None is needed for UTF8, and Python has none for EUC_TW."""
    assert codec_of(encoding) == codec


def test_only_contexts_are_converted() -> None:
    """Also one whose last character was cut off; bytes that are no text in the encoding stay."""
    assert in_utf8("auditlake", "é日".encode("euc_jp")[:-1], "euc_jp") == "é".encode()
    assert in_utf8("other", b"\xe9", "latin1") == b"\xe9"
    assert in_utf8("auditlake:db", b"\x81", "cp1252") == b"\x81"
