"""Users of the page: who asks, what each may see (`temporal.grants`), and the file that says so."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from auditlake.errors import ConfigError
from auditlake.temporal.grants import EVERYTHING, NOT, Grant, schema_and_table


def parse_grant(patterns: Iterable[object], user: str) -> Grant:
    """Check the patterns of a user; raises ConfigError."""
    given = tuple(patterns)
    for each in given:
        schema, table = schema_and_table((each if isinstance(each, str) else "").removeprefix(NOT))
        if each != EVERYTHING and not (schema and table):
            raise ConfigError(
                f"a pattern of user {user} is {each!r}, need SCHEMA.TABLE",
                'For example "shop.*", "!shop.salaries", "*".',
            )
    return Grant(tuple(str(each) for each in given))


@dataclass(frozen=True, slots=True)
class User:
    """Who asks: the name, None if nobody authenticates, and what the user may see."""

    name: str | None
    grant: Grant


@dataclass(frozen=True, slots=True)
class PageUser:
    """A user of the file: a token, unless a reverse proxy names the user, and the grant."""

    token: str | None
    grant: Grant


def parse_users(content: Mapping[str, object], file: object) -> dict[str, PageUser]:
    """Read the tables `users.NAME`: patterns in `tables`, perhaps a `token`; a ConfigError shows no token."""
    listed = content.get("users")
    if not isinstance(listed, dict) or not listed or content.keys() != {"users"}:
        raise ConfigError(f"{file} has no users, or something else", "Write [users.NAME] with tables = [PATTERN, …].")
    return {name: _page_user(name, given) for name, given in listed.items()}


def _page_user(name: str, given: object) -> PageUser:
    hint = "A user has tables, a list of patterns, and perhaps token, a text."
    if not isinstance(given, dict) or not {"tables"} <= given.keys() <= {"tables", "token"}:
        raise ConfigError(f"the entry of user {name} has other fields than tables and token, or no tables", hint)
    patterns, token = given["tables"], given.get("token")
    if not isinstance(patterns, list) or not isinstance(token, str | None):
        raise ConfigError(f"a field of user {name} has another type", hint)
    return PageUser(token, parse_grant(patterns, name))
