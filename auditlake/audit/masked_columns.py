"""Masked columns: which values a reader of the lake must not see, by patterns of `schema.table.column`.

A pattern means every column that has, or ever had, a matching name in a table that has, or ever had, a matching name.
So renaming a column or its table uncovers nothing: older and newer rows are masked alike, under every name. A table
that was created again under the same name, and a column that was dropped and added again, match by that name.

An answer has names of columns, not columns. A name is shown only if no masked column of the tables ever had it, and if
it is a name of one of their columns at all: a name that is unknown here is masked wherever a column is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from auditlake.audit.lake_reader import Reader
from auditlake.lake.history import HistoryTable
from auditlake.settings.mask_rules import matches_column


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
        shapes = reader.shapes_of(table)
        own = (table.name, *shapes.every_name)
        for names in shapes.names_of_columns:
            masked = any(
                matches_column(pattern, table_name, name)
                for pattern in patterns
                for table_name in own
                for name in names
            )
            (hidden if masked else shown).update(names)
    return MaskedColumns(frozenset(hidden), frozenset(shown - hidden))
