"""Masked columns: which values a reader of the lake must not see, by patterns of `schema.table.column`.

A pattern means every column that has, or ever had, a matching name in a table that has, or ever had, a matching name.
So renaming a column or its table uncovers nothing: older and newer rows are masked alike, under every name. A table
that was created again under the same name, and a column that was dropped and added again, match by that name.

An answer has names of columns, not columns. A name is shown only if no masked column of the tables ever had it, and if
it is a name of one of their columns at all: a name that is unknown here is masked wherever a column is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from auditlake.audit.lake_reader import Reader
from auditlake.lake.history import HistoryTable
from auditlake.relation import TableName


@dataclass(frozen=True, slots=True)
class MaskedColumns:
    """The names of all columns of some tables: those that a masked column has or had, and the others."""

    hidden: frozenset[str]
    shown: frozenset[str]

    def hides(self, column: str) -> bool:
        """Return whether values under this name are masked."""
        return bool(self.hidden) and column not in self.shown


def masked_columns(reader: Reader, tables: Iterable[HistoryTable], patterns: Sequence[str]) -> MaskedColumns:
    """Return the masked columns of some tables."""
    hidden, shown = set[str](), set[str]()
    for table in tables:
        spellings = {each for name in (table.name, *reader.every_name(table)) for each in _spellings(name)}
        for names in reader.names_of_columns(table):
            masked = any(
                fnmatchcase(f"{spelling}.{name}", pattern)
                for pattern in patterns
                for spelling in spellings
                for name in names
            )
            (hidden if masked else shown).update(names)
    return MaskedColumns(frozenset(hidden), frozenset(shown - hidden))


def _spellings(name: TableName) -> tuple[str, str]:
    """Return a table's name as PostgreSQL has it, and as messages quote it."""
    return f"{name.schema}.{name.table}", str(name)
