"""What a publication carries, as the catalog has it, and what a later look finds lost. Pure.

The stream does not tell when a publication changes: a table that was taken out falls silent, and so does everything
where the publication is dropped and made again (since 18; before, the slot can never be read again). So capture
compares what it finds with what was recorded. The catalog's rows have identities of their own: a publication that was
dropped and created again has another OID, and so has the entry of a table that was taken out and put back, or whose row
filter or column list was changed. That is how a change is seen that was undone between two looks.

Authority: postgresql.org/docs/current/catalog-pg-publication-rel.html
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from auditlake.relation import TableName


@dataclass(frozen=True, slots=True)
class Member:
    """A published table: its OID, and that of its own entry; None where it is published with its schema or all."""

    relation: int
    entry: int | None


@dataclass(frozen=True, slots=True)
class Membership:
    """A publication: its OID, what it publishes (insert, update, delete, truncate), and its tables."""

    publication: int
    operations: frozenset[str]
    tables: Mapping[TableName, Member]


@dataclass(frozen=True, slots=True)
class Loss:
    """What a publication does not carry any more; `table` is None where that concerns all of them."""

    what: str
    table: TableName | None = None


def find_losses(
    name: str, recorded: Membership, found: Membership | None, dropped: Collection[TableName]
) -> Iterator[Loss]:
    """Name what `found` does not carry as `recorded` did; a table that was `dropped` has nothing more to carry."""
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
    member, now = recorded.tables[table], found.tables.get(table)
    if now is None:
        return None if table in dropped else Loss(f"publication {name} no longer carries {table}", table)
    if now.relation != member.relation:
        return Loss(f"table {table} was dropped and created again", table)
    if now.entry != member.entry:
        what = "was taken out and put back, or its row filter or columns were changed"
        return Loss(f"publication {name} carries {table}, but it {what}", table)
    return None
