"""Publication membership: the tables and operations of a publication, and its losses since they were recorded. Pure.

The stream does not show changes of a publication, so capture compares the catalog with the recorded membership. Catalog
rows have OIDs: a publication that was created again has another one, and so has the entry of a table or schema that was
removed and added again, or of a table whose row filter or column list was changed. Operations and options are in the
row of the publication, which has the xid of its last change. This reveals even a change that was undone meanwhile.

A table that moves from one published schema to another is published throughout if the entry of the first still exists,
and that of the second existed at the last comparison.

Authority: postgresql.org/docs/current/catalog-pg-publication.html; catalog-pg-publication-rel.html;
catalog-pg-publication-namespace.html
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from auditlake.relation import TableName


@dataclass(frozen=True, slots=True)
class Member:
    """A published table: its OID, and its entry's OID, None if it is published with its schema or with all tables.

    `schemas` are the OIDs of the entries of its schema and of those of its parents, `altered_by` is the xid that last
    changed the publication's operations or options.
    """

    relation: int
    entry: int | None
    schemas: frozenset[int] = frozenset()
    altered_by: int = 0


@dataclass(frozen=True)
class Membership:
    """A publication: its OID, the operations it publishes (insert, update, delete, truncate), and its tables.

    As recorded, the tables have the names of their histories. `schemas` are the OIDs of the entries of all its schemas,
    which are not recorded with the tables.
    """

    publication: int
    operations: frozenset[str]
    tables: Mapping[TableName, Member]
    schemas: frozenset[int] = frozenset()

    @cached_property
    def names(self) -> Mapping[int, TableName]:
        """The name of each table by its OID."""
        return {member.relation: name for name, member in self.tables.items()}


@dataclass(frozen=True, slots=True)
class Loss:
    """Description of changes that a publication does not publish; `table` is None if all tables are affected.

    `carried`: it publishes the table now; `past`: the same rows and columns as before.
    """

    what: str
    table: TableName | None = None
    carried: bool = False
    past: bool = False


def find_losses(
    name: str,
    recorded: Membership,
    found: Membership | None,
    ended: Collection[TableName],
    seen: Collection[int] | None = None,
) -> Iterator[Loss]:
    """Yield the losses of `found` compared with `recorded`; a table that has `ended` has no more changes to lose.

    `seen` are the entries of schemas at the last comparison without a loss, None if they are not known.
    """
    if found is None:
        yield Loss(f"publication {name} is gone")
        return
    if found.publication != recorded.publication:
        yield Loss(f"publication {name} was dropped and created again")
        return
    if lacking := recorded.operations - found.operations:
        yield Loss(f"publication {name} no longer carries {', '.join(sorted(lacking))}")
        return
    for table, member in recorded.tables.items():
        # A renamed table is the same table; another one of the same name is not.
        if (now := found.names.get(member.relation)) is None:
            if table not in ended:
                yield Loss(f"publication {name} no longer carries {table}", table)
        elif what := _changed(member, found.tables[now], found.schemas, seen):
            yield Loss(f"publication {name} carries {table}, but {what}", table, True, what is not _OTHER_ENTRY)


_OTHER_ENTRY = "it was taken out and put back, or its row filter or columns were changed"


def _changed(member: Member, now: Member, schemas: frozenset[int], seen: Collection[int] | None) -> str | None:
    if now.entry != member.entry:
        return _OTHER_ENTRY
    if now.altered_by != member.altered_by:
        return "other operations or options were set, perhaps for some time only"
    if not _is_carried_throughout(member, now, schemas, seen):
        return "its schema was taken out and put back, or it was in another one"
    return None


def _is_carried_throughout(member: Member, now: Member, schemas: frozenset[int], seen: Collection[int] | None) -> bool:
    """Whether a table that is published with its schema, if it is, has been since it was recorded."""
    if now.entry is not None or not now.schemas:
        return True
    existed = seen is not None and not now.schemas.isdisjoint(seen)
    return not now.schemas.isdisjoint(member.schemas) or (existed and member.schemas <= schemas)
