"""Catalog: shape, replica identity and size of the source's tables, and which of them are followed.

`read_tables` returns the relation that a Relation message would have if all columns were published, and facts that may
prevent replication. It waits for no lock; the result stays true only while the caller holds a lock on the table.
`read_sizes` opens the tables' files and so waits for a concurrent rewrite: call it only for tables that we have locked.
Whether a table can be replicated is decided in `source.preflight`.

`choose` returns the tables under whose names the stream sends changes, and the tables that store their rows. A
*followed table* is a plain table, a partitioned table that is published through its root, or a single partition. The
publication decides:

    publish_via_partition_root     a partitioned table is one table; its rows are in its leaf partitions
    without it                     every leaf partition is a table of its own, its parents are not followed
    no publication yet             we create it with publish_via_partition_root

The history of a followed table has exactly the published columns and rows. Columns outside a column list, rows outside
a row filter, and unpublished generated columns are not in the stream, so they are not copied either.

Authority: postgresql.org/docs/current/catalogs.html; logicalreplication-publication.html, "Replica Identity";
sql-createpublication.html; logical-replication-gencols.html
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import psycopg

from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.source.connection import Row, fetch
from auditlake.source.publication import Publication, PublishedTable
from auditlake.values.types import base_type

_TABLES = """
select c.oid::bigint, n.nspname::text, c.relname::text, c.relreplident::text, c.relkind::text, c.relpersistence::text,
       case when c.relispartition
            then array(select a.relid::bigint from pg_catalog.pg_partition_ancestors(c.oid) a where a.relid <> c.oid)
            else '{}' end,
       pg_catalog.has_table_privilege(c.oid, 'select') and pg_catalog.has_schema_privilege(n.oid, 'usage'),
       pg_catalog.pg_has_role(c.relowner, 'usage'),
       pg_catalog.row_security_active(c.oid)
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where c.relkind in ('r', 'p', 'f') and c.relpersistence <> 't'
   and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
 order by n.nspname, c.relname
"""

# The key: the primary key under DEFAULT and FULL, the chosen index under USING INDEX. A deferrable primary key is no
# replica identity (relcache.c, RelationGetIndexList), and under FULL two rows may share it inside a transaction. The
# INCLUDE columns of an index are not part of its key.
_COLUMNS = """
select a.attrelid::bigint, a.attname::text, a.atttypid::bigint, a.atttypmod,
       coalesce(a.attnum = any ((i.indkey::int2[])[0 : i.indnkeyatts - 1]), false), a.attgenerated::text,
       a.attlen = -1 and a.attstorage <> 'p', a.attnum::int, b.nspname::text, b.typname::text
  from pg_catalog.pg_attribute a
  left join lateral (
    with recursive base as (
      select t.* from pg_catalog.pg_type t where t.oid = a.atttypid
      union all
      select t.* from base join pg_catalog.pg_type t on base.typtype = 'd' and t.oid = base.typbasetype)
    select n.nspname, base.typname
      from base join pg_catalog.pg_namespace n on n.oid = base.typnamespace where base.typtype <> 'd'
  ) b on true
  join pg_catalog.pg_class c on c.oid = a.attrelid
  left join pg_catalog.pg_index i
    on i.indrelid = c.oid
   and case c.relreplident when 'i' then i.indisreplident
                           when 'd' then i.indisprimary and i.indimmediate
                           when 'f' then i.indisprimary and i.indimmediate
                           else false end
 where a.attrelid = any (%s::oid[]) and a.attnum > 0 and not a.attisdropped
 order by a.attrelid, a.attnum
"""


# reltuples is -1 if the planner has no estimate (since 14).
_SIZES = """
select c.oid::bigint, s.heap_bytes / pg_catalog.current_setting('block_size')::int,
       s.heap_bytes + coalesce(pg_catalog.pg_relation_size(nullif(c.reltoastrelid, 0)), 0),
       case when c.reltuples >= 0 and c.relpages > 0
            then (c.reltuples / c.relpages
                  * (s.heap_bytes / pg_catalog.current_setting('block_size')::int))::bigint
            when s.heap_bytes = 0 then 0 end
  from pg_catalog.pg_class c, pg_catalog.pg_relation_size(c.oid) s (heap_bytes)
 where c.oid = any (%s::oid[])
"""


@dataclass(frozen=True, slots=True)
class TableSize:
    """Current size of a table: `pages` in blocks, `size_bytes` including TOAST.

    `rows` is the planner's estimate, None without one.
    """

    pages: int
    size_bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """One table of the source.

    `relation` has all columns; `stored` and `virtual` name the generated ones, `toastable` those whose values may be
    TOASTed. `kind` is pg_class.relkind: r (table), p (partitioned) or f (foreign). `ancestors` are the OIDs of the
    tables of which it is a partition. `row_security`: policies hide rows from our role.
    """

    relation: Relation
    kind: str = "r"
    logged: bool = True
    ancestors: tuple[int, ...] = ()
    stored: frozenset[str] = frozenset()
    virtual: frozenset[str] = frozenset()
    toastable: frozenset[str] = frozenset()
    readable: bool = True
    owned: bool = True
    row_security: bool = False

    @property
    def name(self) -> TableName:
        return self.relation.name

    @property
    def publishable(self) -> bool:
        """Whether its changes are in the write-ahead log at all."""
        return self.logged and self.kind != "f"


@dataclass(slots=True)
class _Columns:
    columns: list[Column] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)
    virtual: set[str] = field(default_factory=set)
    toastable: set[str] = field(default_factory=set)

    def add(self, row: Row) -> None:
        _, name, type_oid, typmod, key, generated, toastable, attnum, *base = row
        decisive = base_type(cast("int", type_oid), str(base[0]), str(base[1]))
        number = cast("int", attnum)
        self.columns.append(Column(str(name), decisive, cast("int", typmod), bool(key), attnum=number))
        if generated:
            (self.stored if generated == "s" else self.virtual).add(str(name))
        if toastable:
            self.toastable.add(str(name))


def read_tables(conn: psycopg.Connection[Row]) -> tuple[CatalogTable, ...]:
    """Read every user table that is not temporary, ordered by schema and name."""
    rows = fetch(conn, _TABLES)
    found = {cast("int", row[0]): _Columns() for row in rows}
    for row in fetch(conn, _COLUMNS, list(found)):
        found[cast("int", row[0])].add(row)
    return tuple(_table(row, found[cast("int", row[0])]) for row in rows)


def _table(row: Row, columns: _Columns) -> CatalogTable:
    oid, schema, table, identity, kind, persistence, ancestors, readable, owned, row_security = row
    name = TableName(str(schema), str(table))
    return CatalogTable(
        relation=Relation(cast("int", oid), name, ReplicaIdentity(str(identity)), tuple(columns.columns)),
        kind=str(kind),
        logged=persistence == "p",
        ancestors=tuple(cast("list[int]", ancestors)),
        stored=frozenset(columns.stored),
        virtual=frozenset(columns.virtual),
        toastable=frozenset(columns.toastable),
        readable=bool(readable),
        owned=bool(owned),
        row_security=bool(row_security),
    )


def read_sizes(conn: psycopg.Connection[Row], oids: Iterable[int]) -> dict[int, TableSize]:
    """Read the sizes of tables, by OID."""
    rows = fetch(conn, _SIZES, list(oids))
    return {cast("int", oid): TableSize(*cast("tuple[int, int, int | None]", tuple(size))) for oid, *size in rows}


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
