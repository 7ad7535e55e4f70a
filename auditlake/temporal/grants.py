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
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product

from auditlake.errors import NotAnswerable
from auditlake.relation import TableName
from auditlake.sql_names import standard_identifier
from auditlake.temporal.moments import Known

_QUOTED = re.compile('"(?:[^"]|"")*"')
EVERYTHING = "*"
NOT = "!"


class Hidden(NotAnswerable):
    """The user may not see what was asked for."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The patterns of one user; without any, nothing is seen."""

    patterns: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every table is seen, now and later."""
        return EVERYTHING in self.patterns and not any(each.startswith(NOT) for each in self.patterns)

    def takes(self, name: TableName) -> bool:
        """Return whether the patterns take a name."""
        excepted = any(_excepts(each[1:], name) for each in self.patterns if each.startswith(NOT))
        return not excepted and any(_grants(each, name) for each in self.patterns if not each.startswith(NOT))

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

    def limited(self, known: Known) -> Known:
        """Return a state of the lake with the tables that are seen; raises Hidden if there is none."""
        if self.is_whole:
            return known
        tables = self.seen(known)
        if not tables:
            raise Hidden("you may see no table of this lake", "Ask who runs this server.")
        return known.limited_to(tables, self.takes)

    def require_whole(self, what: str) -> None:
        """Check that every table is seen; `what` is about all of them. Raises Hidden."""
        if not self.is_whole:
            raise Hidden(f"{what} shown to users who may see every table", "Ask who runs this server.")


WHOLE = Grant((EVERYTHING,))


def schema_and_table(pattern: str) -> tuple[str, str]:
    """Return the patterns of schema and table, divided at the first dot that is not quoted."""
    quoted = _QUOTED.match(pattern)
    before = quoted[0] if quoted else ""
    schema, _, table = pattern[len(before) :].partition(".")
    return before + schema, table


def _grants(pattern: str, name: TableName) -> bool:
    schema, table = schema_and_table(pattern)
    return pattern == EVERYTHING or (_matches(schema, name.schema) and _matches(table, name.table))


def _excepts(pattern: str, name: TableName) -> bool:
    spellings = (name.schema, standard_identifier(name.schema)), (name.table, standard_identifier(name.table))
    return any(_fits(pattern, f"{schema}.{table}") for schema, table in product(*spellings))


def _matches(pattern: str, name: str) -> bool:
    return _fits(pattern, standard_identifier(name) if pattern.startswith('"') else name)  # ? must not be a quote


def _fits(pattern: str, text: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]"))
