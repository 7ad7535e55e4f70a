"""Replicated tables: the tables under whose names the stream sends changes, and the tables that store their rows. Pure.

A *followed table* is a plain table, a partitioned table that is published through its root, or a single partition. The
publication decides:

    publish_via_partition_root     a partitioned table is one table; its rows are in its leaf partitions
    without it                     every leaf partition is a table of its own, its parents are not followed
    no publication yet             we create it with publish_via_partition_root

The history of a followed table has exactly the published columns and rows. Columns outside a column list, rows outside
a row filter, and unpublished generated columns are not in the stream, so they are not copied either.

Authority: postgresql.org/docs/current/sql-createpublication.html; logical-replication-gencols.html
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from auditlake.relation import Relation, TableName
from auditlake.source.catalog import CatalogTable
from auditlake.source.publication import Publication, PublishedTable


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A catalog table; `relation` has its published columns, `row_filter` is the SQL condition of its published rows.

    `members` are its partitions of every level, `parts` the tables that store the rows.
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
        return tuple(table for table in (self.table, *self.members) if table.kind != "p")

    @property
    def locked(self) -> tuple[TableName, ...]:
        """Return the tables to lock against rewrites: the whole tree, from the root."""
        return tuple(table.name for table in (self.table, *self.members))

    @property
    def shape(self) -> object:
        """Return everything that must not change between two reads of the catalog."""
        return self.relation, self.row_filter, sorted(member.relation.oid for member in self.members)


@dataclass(frozen=True)
class Source:
    """The tables of a database and its publication, if there is one.

    `carries_stored`: a publication that we create publishes stored generated columns.
    """

    tables: tuple[CatalogTable, ...]
    publication: Publication | None
    carries_stored: bool

    @cached_property
    def entries(self) -> dict[TableName, PublishedTable]:
        """Return the entries of the publication, by table."""
        return {entry.name: entry for entry in self.publication.tables} if self.publication else {}

    @cached_property
    def partitions(self) -> dict[int, list[CatalogTable]]:
        """Return the partitions of every level by the OID of each ancestor, upper levels first."""
        partitions: dict[int, list[CatalogTable]] = {}
        for table in sorted(self.tables, key=lambda table: len(table.ancestors)):
            for ancestor in table.ancestors:
                partitions.setdefault(ancestor, []).append(table)
        return partitions

    def published(self, name: TableName) -> PublishedTable | None:
        """Return the table's entry in the publication."""
        return self.entries.get(name)


def choose(source: Source, wanted: Callable[[CatalogTable], bool] | None) -> tuple[FollowedTable, ...]:
    """Choose the tables to follow, in name order; by default those of the publication, or all if there is none.

    With publish_via_partition_root a chosen partitioned table includes its partitions; without it, it stands for them.
    """
    if wanted is None:
        chosen = {t.relation.oid for t in source.tables if source.publication is None or source.published(t.name)}
    else:
        chosen = {t.relation.oid for t in source.tables if wanted(t)}
    via_root = source.publication is None or source.publication.via_root
    names = _under_roots(source, chosen) if via_root else _under_leaves(source, chosen)
    return tuple(_follow(source, table) for table in source.tables if table.relation.oid in names and table.publishable)


def skipped(source: Source, wanted: Callable[[CatalogTable], bool]) -> tuple[TableName, ...]:
    """Return the wanted tables that can never be followed: unlogged and foreign ones."""
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
