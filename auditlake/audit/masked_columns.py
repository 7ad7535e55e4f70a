"""Masked columns: which values a reader of the lake must not see, by patterns of `schema.table.column`.

A pattern means every column that has, or ever had, a matching name in a table that has, or ever had, a matching name.
So renaming a column or its table uncovers nothing: older and newer rows are masked alike, under every name. A table
that was created again under the same name, and a column that was dropped and added again, match by that name. So does a
partition that is followed on its own: by the names of the tables of which it was a part, too.

Where a name in the stream may be that of several columns, as capture did not see their changes one by one, all of them
have had it.

An answer has names of columns, not columns. A name is shown only if no masked column of the tables ever had it, and if
it is a name of one of their columns at all: a name that is unknown here is masked wherever a column is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from auditlake.audit.columns_over_time import TableShapes
from auditlake.audit.lake_reader import Reader
from auditlake.lake.history import HistoryTable
from auditlake.lake.partition_records import read_roots
from auditlake.relation import TableName
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
    roots = read_roots(reader.lake) if patterns else {}
    names_of = {known.oid: known.known_as for known in reader.known.tables.values()} if roots else {}
    for table in tables:
        shapes = reader.shapes_of(table)
        whole = (names_of.get(oid, ()) for oid in roots.get(table.oid, ()))
        own = (table.name, *shapes.every_name, *chain.from_iterable(whole))

        def is_masked(name: str, own: Sequence[TableName] = own) -> bool:
            return any(matches_column(pattern, table_name, name) for pattern in patterns for table_name in own)

        suspects = set(_suspects(shapes, is_masked))
        for stored, names in shapes.names_of_columns.items():
            masked = not suspects.isdisjoint(stored) or any(map(is_masked, names))
            (hidden if masked else shown).update(names)
    return MaskedColumns(frozenset(hidden), frozenset(shown - hidden))


def _suspects(shapes: TableShapes, is_masked: Callable[[str], bool]) -> Iterator[str]:
    """Yield the columns, by stored name, that may have had a masked name in a version whose columns are not known."""
    for version in shapes.shapes.versions:
        if any(is_masked(column.name) for column in version.relation.columns):
            for column, may_be in zip(version.relation.columns, shapes.which_may_be(version), strict=True):
                yield from may_be if is_masked(column.name) else ()
