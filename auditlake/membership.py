"""Publication membership: the tables and operations of a publication, and its losses since they were recorded. Pure.

The stream does not show changes of a publication: a removed table sends no more changes, and after a drop and
re-creation of the publication no table does (since PostgreSQL 18; before, the slot can never be read again). So capture
compares the catalog with the recorded membership. Catalog rows have OIDs: a re-created publication has another OID, and
so has the entry of a table that was removed and added again, or whose row filter or column list was changed. This
reveals even a change that was undone before the comparison.

Authority: postgresql.org/docs/current/catalog-pg-publication-rel.html
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from auditlake.relation import TableName


@dataclass(frozen=True, slots=True)
class Member:
    """A published table: its OID, and its entry's OID, None if it is published with its schema or with all tables."""

    relation: int
    entry: int | None


@dataclass(frozen=True)
class Membership:
    """A publication: its OID, the operations it publishes (insert, update, delete, truncate), and its tables.

    As recorded, the tables have the names of their histories.
    """

    publication: int
    operations: frozenset[str]
    tables: Mapping[TableName, Member]

    @cached_property
    def names(self) -> Mapping[int, TableName]:
        """The name of each table by its OID."""
        return {member.relation: name for name, member in self.tables.items()}


@dataclass(frozen=True, slots=True)
class Loss:
    """Description of changes that a publication no longer publishes; `table` is None if all tables are affected."""

    what: str
    table: TableName | None = None


def find_losses(
    name: str, recorded: Membership, found: Membership | None, dropped: Collection[TableName]
) -> Iterator[Loss]:
    """Yield the losses of `found` compared with `recorded`; a `dropped` table has no more changes to lose."""
    if found is None:
        yield Loss(f"publication {name} is gone")
    elif found.publication != recorded.publication:
        yield Loss(f"publication {name} was dropped and created again")
    elif lacking := recorded.operations - found.operations:
        yield Loss(f"publication {name} no longer carries {', '.join(sorted(lacking))}")
    else:
        yield from (loss for table in recorded.tables if (loss := _lost(name, table, recorded, found, dropped)))


def _lost(
    name: str, table: TableName, recorded: Membership, found: Membership, dropped: Collection[TableName]
) -> Loss | None:
    member = recorded.tables[table]
    # A renamed table is the same table; another one of the same name is not.
    if member.relation not in found.names:
        return None if table in dropped else Loss(f"publication {name} no longer carries {table}", table)
    if found.tables[found.names[member.relation]].entry != member.entry:
        what = "was taken out and put back, or its row filter or columns were changed"
        return Loss(f"publication {name} carries {table}, but it {what}", table)
    return None
