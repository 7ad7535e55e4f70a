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
`{"app": …, "db": …}`, each member as it was sent and present only if it was sent. Content that is not JSON becomes a
JSON string. Content longer than 65,536 characters becomes a JSON string too, cut to that length in `context` and
complete in `changes`.

Assertion and observation are both messages of the session: any role that can write can assert, and can imitate the
trigger.

Authority: postgresql.org/docs/current/functions-admin.html, pg_logical_emit_message; the Bemi and Sequin clients for
their prefixes
"""

import json
from dataclasses import dataclass, replace
from typing import Any, NoReturn

_SETS = frozenset({"auditlake", "_bemi", "sequin:transaction_annotations.set"})
_CLEARS = frozenset({"auditlake:clear", "sequin:transaction_annotations.clear"})
_MERGES, _OBSERVES = "auditlake:merge", "auditlake:db"
PREFIXES = frozenset({*_SETS, *_CLEARS, _MERGES, _OBSERVES})

_MAX_LENGTH = 65_536
_ACTORS = ("actor", "user_id", "userId", "user", "username", "email")


@dataclass(frozen=True, slots=True)
class Scope:
    """Assertion and observation in force at one place of a transaction, as JSON texts."""

    app: str | None = None
    db: str | None = None
    applied: str | None = None
    """The last assertion in force for any change."""
    last_ordinal: int = -1
    """Ordinal of the last message taken in."""

    def after(self, prefix: str, content: bytes, ordinal: int) -> "Scope":
        """Apply the message at `ordinal`; the caller passes every message of the transaction, in order."""
        some_change = ordinal > self.last_ordinal + 1
        applied = self.app or self.applied if some_change else self.applied
        here = replace(self, last_ordinal=ordinal, applied=applied)
        if prefix in _SETS:
            return replace(here, app=_json(content))
        if prefix in _CLEARS:
            return replace(here, app=None)
        if prefix == _MERGES:
            return replace(here, app=_merged(self.app, _json(content)))
        return replace(here, db=_json(content)) if prefix == _OBSERVES else here

    @property
    def text(self) -> str | None:
        """Return the context of the whole transaction, None if it has none."""
        return context_text(self.app or self.applied, self.db)


def context_text(app: str | None, db: str | None) -> str | None:
    """Format a context from two JSON texts, None if there is neither."""
    parts = [f'"{name}": {member}' for name, member in (("app", app), ("db", db)) if member is not None]
    return "{" + ", ".join(parts) + "}" if parts else None


def _json(content: bytes) -> str:
    """Return the content as a JSON text: unchanged if it is JSON, else a string; in bytea's hex format if not UTF-8."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\\x" + content.hex()
    if len(text) > _MAX_LENGTH or not _is_json(text):
        return json.dumps(text[:_MAX_LENGTH], ensure_ascii=False)
    return text.strip()


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _merged(before: str | None, more: str) -> str:
    old, new = json.loads(before or "{}"), json.loads(more)
    if isinstance(old, dict) and isinstance(new, dict):
        return json.dumps(old | new)
    return more


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
        return _text(self.app, "reason")

    @property
    def db_user(self) -> str | None:
        """Return the role that logged in, as observed by the server's trigger."""
        return _text(self.db, "session_user")


def _text(member: object, *names: str) -> str | None:
    values = [member[name] for name in names if member.get(name) is not None] if isinstance(member, dict) else []
    if not values:
        return None
    return values[0] if isinstance(values[0], str) else json.dumps(values[0], ensure_ascii=False)


def read_context(text: str | None) -> Context:
    """Parse `transactions.context`."""
    members = {} if text is None else json.loads(text)
    return Context(members.get("app"), members.get("db"))
