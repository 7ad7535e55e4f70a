"""Grants: which tables of the lake a user may see, by patterns of names.

    *                every table
    shop.*           every table of the schema shop
    public.order_?   `*` is any text, `?` one character; case counts, as in PostgreSQL
    !shop.salaries   none of these, whatever else matches

Names may be quoted as in SQL: shop."Order Items". A pattern that has several dots outside of quotes takes the table
whose schema ends at the first of them, and excepts the tables of every reading.

A user sees a table if the patterns take every name that it had, because its rows are also those from before it was
renamed; and every name of each table that it shares a name with, because changes are found by names, too. What no
pattern takes is not seen: a table that appears later, and one that is renamed to a name that no pattern takes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product

from auditlake.errors import ConfigError
from auditlake.relation import TableName
from auditlake.sql_names import standard_identifier
from auditlake.temporal.moments import Known

_QUOTED = re.compile('"(?:[^"]|"")*"')
_EVERYTHING = "*"
_NOT = "!"


@dataclass(frozen=True, slots=True)
class Grant:
    """The patterns of one user; without any, nothing is seen."""

    patterns: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every table is seen, now and later."""
        return _EVERYTHING in self.patterns and not any(each.startswith(_NOT) for each in self.patterns)

    def takes(self, name: TableName) -> bool:
        """Return whether the patterns take a name."""
        excepted = any(_excepts(each[1:], name) for each in self.patterns if each.startswith(_NOT))
        return not excepted and any(_grants(each, name) for each in self.patterns if not each.startswith(_NOT))

    def seen(self, known: Known) -> frozenset[TableName]:
        """Return the tables that are seen, by the names of their histories."""
        names = {table.name: frozenset(table.all_names) for table in known.listed}
        seen = {name for name, had in names.items() if all(map(self.takes, had))}
        while True:
            taken = frozenset[TableName]().union(*(had for name, had in names.items() if name not in seen))
            left = {name for name in seen if taken.isdisjoint(names[name])}
            if left == seen:
                return frozenset(seen)
            seen = left


WHOLE = Grant((_EVERYTHING,))


def _parts(pattern: str) -> tuple[str, str]:
    """Return the patterns of schema and table, divided at the first dot that is not quoted."""
    quoted = _QUOTED.match(pattern)
    before = quoted[0] if quoted else ""
    schema, _, table = pattern[len(before) :].partition(".")
    return before + schema, table


def _grants(pattern: str, name: TableName) -> bool:
    schema, table = _parts(pattern)
    return pattern == _EVERYTHING or (_matches(schema, name.schema) and _matches(table, name.table))


def _excepts(pattern: str, name: TableName) -> bool:
    spellings = (name.schema, standard_identifier(name.schema)), (name.table, standard_identifier(name.table))
    return any(_fits(pattern, f"{schema}.{table}") for schema, table in product(*spellings))


def _matches(pattern: str, name: str) -> bool:
    return _fits(pattern, standard_identifier(name) if pattern.startswith('"') else name)  # ? must not be a quote


def _fits(pattern: str, text: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def parse_grant(patterns: Iterable[object], user: str) -> Grant:
    """Check the patterns of a user; raises ConfigError."""
    given = tuple(patterns)
    for each in given:
        schema, table = _parts((each if isinstance(each, str) else "").removeprefix(_NOT))
        if each != _EVERYTHING and not (schema and table):
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
