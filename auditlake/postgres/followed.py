"""What the stream will carry of each table, and where its rows are. Pure.

A *followed table* is what changes come under: a plain table, a partitioned table that is published via its root, or a
single partition. The publication decides:

    publish_via_partition_root     a partitioned table is one table; its rows are in its leaf partitions
    without it                     every leaf partition is a table of its own, its parents are none
    no publication yet             we create it with publish_via_partition_root

The history of a followed table has the columns and the rows that are published, no more: what a column list, a row
filter, or the publication's choice about generated columns leaves out is not in the stream, so it is not copied.

Authority: postgresql.org/docs/current/sql-createpublication.html; logical-replication-gencols.html
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from auditlake.postgres.catalog import CatalogTable
from auditlake.postgres.publication import Publication, PublishedTable
from auditlake.relation import Relation, TableName


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """`table` as the catalog has it; `relation` is what of it is published, `row_filter` SQL for which rows are.

    `members` are all its partitions, of every level; `parts` the tables that hold the rows.
    """

    table: CatalogTable
    relation: Relation
    row_filter: str | None = None
    members: tuple[CatalogTable, ...] = ()

    @property
    def name(self) -> TableName:
        return self.relation.name

    @property
    def parts(self) -> tuple[CatalogTable, ...]:
        return tuple(each for each in (self.table, *self.members) if each.kind != "p")

    @property
    def locked(self) -> tuple[TableName, ...]:
        """What must be locked so that no rows are rewritten: all of the tree, from the top."""
        return tuple(each.name for each in (self.table, *self.members))

    @property
    def shape(self) -> object:
        """What must not change between two looks at the catalog."""
        return self.relation, self.row_filter, sorted(each.relation.oid for each in self.members)


@dataclass(frozen=True)
class Source:
    """The tables of a database and its publication, if there is one.

    `carries_stored`: a publication that we create carries stored generated columns.
    """

    tables: tuple[CatalogTable, ...]
    publication: Publication | None
    carries_stored: bool

    @cached_property
    def entries(self) -> dict[TableName, PublishedTable]:
        """What the publication has, by table."""
        return {entry.name: entry for entry in self.publication.tables} if self.publication else {}

    @cached_property
    def partitions(self) -> dict[int, list[CatalogTable]]:
        """The partitions of every level, by the OID of each of their ancestors; those further up come first."""
        found: dict[int, list[CatalogTable]] = {}
        for table in sorted(self.tables, key=lambda each: len(each.ancestors)):
            for ancestor in table.ancestors:
                found.setdefault(ancestor, []).append(table)
        return found

    def published(self, name: TableName) -> PublishedTable | None:
        """Its entry in the publication."""
        return self.entries.get(name)


def choose(source: Source, wanted: Callable[[CatalogTable], bool] | None) -> tuple[FollowedTable, ...]:
    """Choose the tables to follow, in name order; by default those of the publication, or all if there is none.

    A partition goes with its partitioned table where changes come under that, and the other way round.
    """
    if wanted is None:
        chosen = {t.relation.oid for t in source.tables if source.publication is None or source.published(t.name)}
    else:
        chosen = {t.relation.oid for t in source.tables if wanted(t)}
    via_root = source.publication is None or source.publication.via_root
    names = _under_roots(source, chosen) if via_root else _under_leaves(source, chosen)
    return tuple(_follow(source, table) for table in source.tables if table.relation.oid in names and table.publishable)


def skipped(source: Source, wanted: Callable[[CatalogTable], bool]) -> tuple[TableName, ...]:
    """Name the tables that are wanted but can never be followed: unlogged ones and foreign ones."""
    return tuple(t.name for t in source.tables if not t.publishable and not t.ancestors and wanted(t))


def _under_roots(source: Source, chosen: set[int]) -> set[int]:
    published = {t.relation.oid for t in source.tables if source.published(t.name)}
    return {
        table.relation.oid
        for table in source.tables
        if table.relation.oid in chosen and not (chosen | published).intersection(table.ancestors)
    }


def _under_leaves(source: Source, chosen: set[int]) -> set[int]:
    return {
        table.relation.oid
        for table in source.tables
        if table.kind != "p" and (table.relation.oid in chosen or chosen.intersection(table.ancestors))
    }


def _follow(source: Source, table: CatalogTable) -> FollowedTable:
    entry = source.published(table.name)
    names = _column_names(source, table, entry)
    columns = tuple(column for column in table.relation.columns if column.name in names)
    members = tuple(source.partitions.get(table.relation.oid, ()))
    row_filter = entry.row_filter if entry else None
    return FollowedTable(table, replace(table.relation, columns=columns), row_filter, members)


def _column_names(source: Source, table: CatalogTable, entry: PublishedTable | None) -> frozenset[str]:
    every = frozenset(column.name for column in table.relation.columns)
    if entry is not None and entry.column_names is not None:
        return entry.column_names if source.carries_stored else entry.column_names - table.stored
    stored = source.publication.stored_generated if source.publication else source.carries_stored
    return every - table.virtual - (frozenset() if stored else table.stored)
