"""Who and why: what transactional logical messages say about the changes of their transaction. Pure.

    prefix                                 content says
    auditlake                              what the application asserts; replaces what was said before
    auditlake:merge                        more of it: an object whose entries are added to what was said before
    auditlake:clear                        nothing is asserted from here on
    auditlake:db                           what the server observed: the trigger of `auditlake check --install-context`
    _bemi                                  as auditlake
    sequin:transaction_annotations.set     as auditlake
    sequin:transaction_annotations.clear   as auditlake:clear

An assertion is in force for the changes that follow it in its transaction. `transactions.context` has one for the whole
transaction: the one in force at its end, else the last that any change was made under. Its text is
`{"app": …, "db": …}`, each as it was sent and each only where there is one. Content that is not JSON is kept as a JSON
string; beyond 65,536 characters it is a string and
cut in `context`, whole in `changes`.

Both are messages of the session: whoever may write may also assert, and may imitate the trigger.

Authority: postgresql.org/docs/current/functions-admin.html, pg_logical_emit_message; the prefixes are those that the
Bemi and Sequin clients send
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
    """What is said at one place of a transaction, as JSON texts; `heard` is the ordinal of the last message."""

    app: str | None = None
    db: str | None = None
    applied: str | None = None
    """The last assertion that a change was made under."""
    heard: int = -1

    def after(self, prefix: str, content: bytes, ordinal: int) -> "Scope":
        """Take in the message at `ordinal`; every message of the transaction must be given, in order."""
        some_change = ordinal > self.heard + 1
        here = replace(self, heard=ordinal, applied=self.app or self.applied if some_change else self.applied)
        if prefix in _SETS:
            return replace(here, app=_json(content))
        if prefix in _CLEARS:
            return replace(here, app=None)
        if prefix == _MERGES:
            return replace(here, app=_merged(self.app, _json(content)))
        return replace(here, db=_json(content)) if prefix == _OBSERVES else here

    @property
    def text(self) -> str | None:
        """The context of the whole transaction; None where nothing was said."""
        return context_text(self.app or self.applied, self.db)


def context_text(app: str | None, db: str | None) -> str | None:
    """Spell a context; both are JSON texts."""
    parts = [f'"{name}": {said}' for name, said in (("app", app), ("db", db)) if said is not None]
    return "{" + ", ".join(parts) + "}" if parts else None


def _json(content: bytes) -> str:
    """Give the content as JSON, whatever it holds: itself, or a string of it; bytes that are no text as bytea."""
    try:
        said = content.decode()
    except UnicodeDecodeError:
        said = "\\x" + content.hex()
    if len(said) > _MAX_LENGTH or not _is_json(said):
        return json.dumps(said[:_MAX_LENGTH], ensure_ascii=False)
    return said.strip()


def _is_json(said: str) -> bool:
    try:
        json.loads(said, parse_constant=_refuse)
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
    """A context as read from the lake: what the application asserted and what the server observed, as JSON values."""

    app: Any = None
    db: Any = None

    @property
    def actor(self) -> str | None:
        """Who the application says acts; None where it does not say."""
        return _text(self.app, *_ACTORS)

    @property
    def reason(self) -> str | None:
        """Why, as the application says."""
        return _text(self.app, "reason")

    @property
    def db_user(self) -> str | None:
        """The role that logged in, as the server's trigger observed."""
        return _text(self.db, "session_user")


def _text(said: object, *names: str) -> str | None:
    found = [said[name] for name in names if said.get(name) is not None] if isinstance(said, dict) else []
    if not found:
        return None
    return found[0] if isinstance(found[0], str) else json.dumps(found[0], ensure_ascii=False)


def read_context(text: str | None) -> Context:
    """Read `transactions.context`."""
    said = {} if text is None else json.loads(text)
    return Context(said.get("app"), said.get("db"))
