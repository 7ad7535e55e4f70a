"""Context of a transaction (actor and reason), read from its transactional logical messages. Pure.

    prefix                                 meaning of the content
    auditlake                              the application's assertion; replaces the one in force
    auditlake:merge                        a JSON object whose entries are added to the assertion in force
    auditlake:clear                        ends the assertion in force
    auditlake:db                           the server's observation: the trigger of `auditlake check --install-context`
    _bemi                                  as auditlake
    sequin:transaction_annotations.set     as auditlake
    sequin:transaction_annotations.clear   as auditlake:clear

An assertion is in force for the changes that follow it in its transaction. `transactions.context` holds one assertion
for the whole transaction: the one in force at its end, else the last one in force for any change. Its text is
`{"app": …, "db": …}`, each member as it was sent and present only if it was sent. Content that is not strict JSON
(`values.strict_json`) becomes a JSON string. Content longer than 65,536 characters becomes a JSON string too, cut to
that length in `context`; so does a merged assertion. `changes` has the first megabyte of any content.

The stream does not convert messages: their content is in the encoding of the database, unless it was sent as bytea.
Capture records that of these prefixes in UTF-8 (`in_utf8`).

Assertion and observation are both messages of the session: any role that can write can assert, and can imitate the
trigger.

Authority: postgresql.org/docs/current/functions-admin.html, pg_logical_emit_message; the Bemi and Sequin clients for
their prefixes
"""

import codecs
import json
import re
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from auditlake.values.strict_json import decode_json

_SETS = frozenset({"auditlake", "_bemi", "sequin:transaction_annotations.set"})
_CLEARS = frozenset({"auditlake:clear", "sequin:transaction_annotations.clear"})
_MERGES, _OBSERVES = "auditlake:merge", "auditlake:db"
PREFIXES = frozenset({*_SETS, *_CLEARS, _MERGES, _OBSERVES})

_CODECS = {"KOI8R": "koi8_r", "KOI8U": "koi8_u"}  # that Python has under other names, beside WIN1252 and the like
_MAX_LENGTH = 65_536
_MOST_BYTES = 4  # of a character in UTF-8
_ACTORS = ("actor", "user_id", "userId", "user", "username", "email")
_REASON, _DB_USER = "reason", "session_user"
READ_MEMBERS = frozenset({*_ACTORS, _REASON, _DB_USER, "app", "db"})
"""Names of the members that are read: who, why, and where they stand."""


@dataclass(frozen=True, slots=True)
class _Merge:
    """An assertion and the text merged into it; `waiting` characters were merged since one was formatted."""

    before: "_Assertion"
    more: str
    waiting: int


_Assertion: TypeAlias = str | _Merge | None


@dataclass(frozen=True, slots=True)
class ContextInForce:
    """Assertion and observation in force at one place of a transaction.

    A merge is formatted when its text is read, or when its parts have `_MAX_LENGTH` characters. So the cost of messages
    is proportional to their bytes, and the memory for them is bounded.
    """

    asserted: _Assertion = None
    db: str | None = None
    applied: _Assertion = None
    """The last assertion in force for any change."""
    last_ordinal: int = -1
    """Ordinal of the last message taken in."""

    def after(self, prefix: str, content: bytes, ordinal: int) -> "ContextInForce":
        """Apply the message at `ordinal`; the caller passes every message of the transaction, in order."""
        some_change = ordinal > self.last_ordinal + 1
        applied = self.asserted or self.applied if some_change else self.applied
        here = replace(self, last_ordinal=ordinal, applied=applied)
        if prefix in _SETS:
            return replace(here, asserted=_json(content))
        if prefix in _CLEARS:
            return replace(here, asserted=None)
        if prefix == _MERGES:
            return replace(here, asserted=_merged(self.asserted, _json(content)))
        return replace(here, db=_json(content)) if prefix == _OBSERVES else here

    @property
    def app(self) -> str | None:
        """Return the assertion in force as a JSON text."""
        return _formatted(self.asserted)

    @property
    def text(self) -> str | None:
        """Return the context of the whole transaction, None if it has none."""
        return context_text(self.app or _formatted(self.applied), self.db)


def codec_of(encoding: str) -> str | None:
    """Return Python's codec for an encoding of a database; None if none is needed, or Python has none."""
    windows = re.fullmatch(r"WIN(\d+)", encoding)
    name = _CODECS.get(encoding, encoding) if windows is None else f"cp{windows[1]}"
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return None
    return None if found == "utf-8" else found


def in_utf8(prefix: str, content: bytes, codec: str) -> bytes:
    """Return the content of a message in UTF-8; unchanged if it is no context, or no text in this codec."""
    if prefix not in PREFIXES:
        return content
    try:
        return codecs.getincrementaldecoder(codec)().decode(content).encode()  # its end may be cut off
    except UnicodeDecodeError:
        return content


def context_text(app: str | None, db: str | None) -> str | None:
    """Format a context from two JSON texts, None if there is neither."""
    parts = [f'"{name}": {member}' for name, member in (("app", app), ("db", db)) if member is not None]
    return "{" + ", ".join(parts) + "}" if parts else None


def _json(content: bytes) -> str:
    """Return the content as a JSON text: unchanged if it is JSON, else a string; in bytea's hex format if no text."""
    some = content[: _MAX_LENGTH * _MOST_BYTES + 1]
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(some, final=len(some) == len(content))
        is_text = "\0" not in text
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        text = "\\x" + some.hex()
    return text.strip() if len(text) <= _MAX_LENGTH and _is_json(text) else _string(text)


def _string(text: str) -> str:
    return json.dumps(text[:_MAX_LENGTH], ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        decode_json(text)
    except ValueError:
        return False
    return True


def _merged(before: _Assertion, more: str) -> _Assertion:
    merge = _Merge(before, more, len(more) + (before.waiting if isinstance(before, _Merge) else 0))
    return merge if merge.waiting < _MAX_LENGTH else _formatted(merge)


def _formatted(assertion: _Assertion) -> str | None:
    """Return an assertion as a JSON text: a string if it has become too long."""
    if not isinstance(assertion, _Merge):
        return assertion
    parts: list[str] = []
    while isinstance(assertion, _Merge):
        parts.append(assertion.more)
        assertion = assertion.before
    value = {} if assertion is None else decode_json(assertion)
    for part in reversed(parts):
        added = decode_json(part)
        if isinstance(value, dict) and isinstance(added, dict):
            value.update(added)
        else:
            value = added
    if not isinstance(value, dict):
        return parts[0]
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_LENGTH else _string(text)


@dataclass(frozen=True, slots=True)
class Context:
    """A context read from the lake: the application's assertion and the server's observation, as JSON values."""

    app: Any = None
    db: Any = None

    @property
    def actor(self) -> str | None:
        """Return the actor that the application asserts, None if it asserts none."""
        return _text(self.app, *_ACTORS)

    @property
    def reason(self) -> str | None:
        """Return the reason that the application asserts."""
        return _text(self.app, _REASON)

    @property
    def db_user(self) -> str | None:
        """Return the role that logged in, as observed by the server's trigger."""
        return _text(self.db, _DB_USER)


def _text(member: object, *names: str) -> str | None:
    values = [member[name] for name in names if member.get(name) is not None] if isinstance(member, dict) else []
    if not values:
        return None
    return values[0] if isinstance(values[0], str) else json.dumps(values[0], ensure_ascii=False)


def read_context(text: str | None) -> Context:
    """Parse `transactions.context`; one that is not strict JSON is one text."""
    if text is None:
        return Context()
    try:
        members = decode_json(text, inside=1)
    except ValueError:
        return Context(text)
    return Context(members.get("app"), members.get("db"))
