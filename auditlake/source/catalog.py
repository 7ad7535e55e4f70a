"""Catalog: shape, replica identity and size of the source's tables, which are followed, and whether one changed.

`read_tables` returns the relation that a Relation message would have if all columns were published, and facts that may
prevent replication. It waits for no lock; the result stays true only while the caller holds a lock on the table.
`read_sizes` and `read_row_filters` open the tables, and so wait for locks: call them for those that we have locked.
Whether a table can be replicated is decided in `source.preflight`.

`choose` returns the tables under whose names the stream sends changes, and the tables that store their rows. A
*followed table* is a plain table, a partitioned table that is published through its root, or a single partition. The
publication decides:

    publish_via_partition_root     a partitioned table is one table; its rows are in its leaf partitions
    without it                     every leaf partition is a table of its own, its parents are not followed
    no publication yet             we create it with publish_via_partition_root

The history of a followed table has exactly the published columns and rows. Columns outside a column list, rows outside
a row filter, and unpublished generated columns are not in the stream, so they are not copied either.

`read_shapes` returns whole definitions of tables (`table_shape`), and `read_catalog_digest` shows cheaply that none has
changed: one statement over the catalog entries of all tables. Every update of an entry changes its place (ctid) and
transaction (xmin), so the digest changes with every DDL command on one of the tables. It takes 0.7 ms for 50 tables of
20 columns, 10 ms for 1,000 (PostgreSQL 18, two cores). It also changes with GRANT and other commands that change no
shape, and when an event trigger is created, altered or dropped: without the DDL trigger, other changes are suspected.
VACUUM and ANALYZE update entries in place and leave it unchanged. These two call no function that opens a table, so
they wait for no lock on one.

Authority: postgresql.org/docs/current/catalogs.html; logicalreplication-publication.html, "Replica Identity";
sql-createpublication.html; logical-replication-gencols.html; catalog-pg-attribute.html; ddl-system-columns.html
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import psycopg

from auditlake.pgoutput.ddl_message import parse_shape
from auditlake.pgoutput.table_shape import Shape, compared_key
from auditlake.relation import SYSTEM_SCHEMA, Column, Relation, ReplicaIdentity, TableName
from auditlake.source.connection import Row, fetch, fetch_one
from auditlake.source.publication import Publication, PublishedTable
from auditlake.source.strangers import tables_of_strangers
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
            then least(c.reltuples / c.relpages
                       * (s.heap_bytes / pg_catalog.current_setting('block_size')::int), 1e18)::bigint
            when s.heap_bytes = 0 then 0 end
  from pg_catalog.pg_class c, pg_catalog.pg_relation_size(c.oid) s (heap_bytes)
 where c.oid = any (%s::oid[])
"""

_ROW_FILTERS = """
select r.prrelid::bigint, pg_catalog.pg_get_expr(r.prqual, r.prrelid)
  from pg_catalog.pg_publication_rel r
  join pg_catalog.pg_publication p on p.oid = r.prpubid
  join unnest(%s::bigint[], %s::text[]) known (relation, condition)
    on known.relation = r.prrelid::bigint and known.condition = r.prqual::text
 where p.pubname = %s
"""

SHAPE = """jsonb_build_object(
          'oid', t.oid::bigint, 'schema', n.nspname, 'name', t.relname, 'kind', t.relkind,
          'persistence', t.relpersistence, 'identity', t.relreplident, 'file', t.relfilenode::bigint,
          'partition', t.relispartition,
          'parents', (select jsonb_agg(i.inhparent::bigint order by i.inhseqno)
                        from pg_inherits i where i.inhrelid = t.oid),
          'columns', (
            select jsonb_agg(jsonb_build_array(
                a.attnum, a.attname, a.atttypid::bigint, a.atttypmod,
                concat(case when a.attnotnull then 'n' end,
                       case when a.attnum = any ((k.indkey::int2[])[0 : k.indnkeyatts - 1]) then 'k' end,
                       case a.attgenerated when 's' then 'g' when 'v' then 'v' end,
                       case a.attidentity when 'a' then 'a' when 'd' then 'd' end,
                       case when a.atthasmissing then 'm' end),
                (with recursive base as (
                   select y.* from pg_type y where y.oid = a.atttypid and y.typtype = 'd'
                   union all
                   select y.* from base join pg_type y on base.typtype = 'd' and y.oid = base.typbasetype)
                 select jsonb_build_array(s.nspname, base.typname)
                   from base join pg_namespace s on s.oid = base.typnamespace where base.typtype <> 'd'),
                case when a.atthasmissing then a.attmissingval::text end) order by a.attnum)
              from pg_attribute a
              left join pg_index k
                on k.indrelid = t.oid
               and case t.relreplident when 'i' then k.indisreplident
                                       when 'n' then false else k.indisprimary and k.indimmediate end
             where a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped))"""
"""The entry of a table in a DDL message (`pgoutput.ddl_message`), from pg_class t and pg_namespace n."""

# age(xmin) - age('3') is the distance of two transaction ids, which does not change with time.
_OF_ENTRIES = "count(*), sum(hashtid({0}.ctid)::bigint), sum(age({0}.xmin)) - count(*) * age('3'::xid)"
_DIGEST = f"""
select concat_ws(' ',
  (select row({_OF_ENTRIES.format("c")})::text from pg_class c where c.oid = any (%s::oid[])),
  (select row({_OF_ENTRIES.format("a")})::text from pg_attribute a where a.attrelid = any (%s::oid[]) and a.attnum > 0),
  (select row({_OF_ENTRIES.format("i")})::text from pg_index i where i.indrelid = any (%s::oid[])),
  (select row({_OF_ENTRIES.format("d")})::text from pg_attribute d where d.attrelid = any (%s::oid[])),
  (select row({_OF_ENTRIES.format("n")})::text from pg_namespace n),
  (select row({_OF_ENTRIES.format("e")})::text from pg_enum e),
  (select row({_OF_ENTRIES.format("t")})::text from pg_event_trigger t))
"""
_TABLES_DIGEST = """
select concat_ws(' ', count(*), sum(hashtid(c.ctid)::bigint), sum(c.oid::bigint),
    (select concat_ws(' ', count(*), sum(r.oid::bigint))
       from pg_publication_rel r join pg_publication p on p.oid = r.prpubid where p.pubname = %s))
  from pg_class c where c.relkind in ('r', 'p') and c.relpersistence = 'p' and c.oid >= 16384
"""
_EACH = f"""
select c.oid::bigint, concat_ws(' ', n.nspname, n.xmin, c.ctid, c.xmin,
    (select row({_OF_ENTRIES.format("a")})::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0),
    (select row({_OF_ENTRIES.format("i")})::text from pg_index i where i.indrelid = c.oid))
  from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = any (%s::oid[])
"""
# Without the missing values, which are values of rows: 400 columns may have more of them than a jsonb can hold.
_SHAPES = f"""
select {SHAPE.replace("a.attmissingval::text", "''")},
       (select row({_OF_ENTRIES.format("a")})::text from pg_attribute a where a.attrelid = t.oid and a.attnum > 0),
       t.xmin::text::bigint,
       (with recursive members (oid) as (
            select t.oid
            union select i.inhrelid from members m join pg_inherits i on i.inhparent = m.oid and t.relkind = 'p')
        select jsonb_object_agg(p.oid::text, p.relfilenode::bigint) from members m join pg_class p on p.oid = m.oid),
       (select o.oid::bigint from pg_constraint o where o.conrelid = t.oid and o.contype = 'p'),
       t.reltoastrelid::bigint,
       t.relhassubclass and t.relkind = 'r',
       (select jsonb_object_agg(e.attnum::text, e.stamp)
          from (select a.attnum, concat_ws(' ', a.xmin, a.attnotnull, a.atthasdef, a.atthasmissing, a.attidentity,
                                           a.attstattarget, a.attstorage, a.attinhcount, a.attislocal,
                                           a.attacl, a.attoptions, d.oid)
                  from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
                 where a.attrelid = t.oid and a.attnum > 0
                union all select 0, concat_ws(' ', y.xmin, y.typowner) from pg_type y where y.oid = t.reltype
                union all select -1, concat_ws(' ', n.xmin, n.oid, n.nspowner, n.nspacl))
               e (attnum, stamp))
  from pg_class t join pg_namespace n on n.oid = t.relnamespace
 where t.oid = any (%s::oid[])
"""
# The types of tables' columns, and what remains when domains, arrays, composites, ranges and multiranges are taken
# apart. UNION leaves out repeated parts, so that types that contain themselves end.
_PARTS = """
with recursive parts (attrelid, attnum, oid) as (
    select a.attrelid, a.attnum, a.atttypid from pg_attribute a
     where a.attrelid = any (%s::oid[]) and a.attnum > 0 and a.atttypid >= 16384
  union
    select p.attrelid, p.attnum, n.oid
      from parts p join pg_type y on y.oid = p.oid
     cross join lateral (
        select y.typbasetype where y.typtype = 'd'
        union all select y.typelem where y.typsubscript = 'array_subscript_handler'::regproc
        union all select d.atttypid from pg_attribute d where d.attrelid = nullif(y.typrelid, 0) and d.attnum > 0
        union all select r.rngsubtype from pg_range r where y.oid in (r.rngtypid, r.rngmultitypid)
     ) n (oid))
"""
_TYPES = f"""{_PARTS}
select p.attrelid::bigint, concat_ws(' ', 'enum', e.enumtypid, e.oid), concat_ws(' ', e.xmin, e.enumlabel)
  from parts p join pg_enum e on e.enumtypid = p.oid
union all
select p.attrelid::bigint, 'composite ' || y.oid::text,
       (select string_agg(concat_ws(':', d.attnum, d.atttypid, d.atttypmod, d.attisdropped), ',' order by d.attnum)
          from pg_attribute d where d.attrelid = y.typrelid and d.attnum > 0)
  from parts p join pg_type y on y.oid = p.oid and y.typrelid <> 0
union all
select distinct p.attrelid::bigint, 'altered ' || y.oid::text, ''
  from parts p join pg_type y on y.oid = p.oid
 where (select count(distinct d.xmin::text) from pg_attribute d
         where d.attrelid = nullif(y.typrelid, 0) and d.attnum > 0) > 1
union all
select p.attrelid::bigint, 'inside ' || p.attnum::text, string_agg(p.oid::text, ' ' order by p.oid)
  from parts p
  join pg_type y on y.oid = p.oid and y.typtype = 'e'
  join pg_attribute a on a.attrelid = p.attrelid and a.attnum = p.attnum and a.atttypid <> p.oid
 group by p.attrelid, p.attnum
"""
# Each column of a type that is not built in, or with a collation under which equal texts may differ, and the parts of
# its type: what remains when domains, arrays, composites, ranges and multiranges are taken apart. UNION leaves out
# repeated parts, so that types that contain themselves end.
_COMPARED = """
with recursive parts (attrelid, attnum, oid, typmod, collation_oid) as (
    select a.attrelid, a.attnum, a.atttypid, a.atttypmod, a.attcollation
      from pg_attribute a where a.attrelid = any (%s::oid[]) and a.attnum > 0 and not a.attisdropped
       and (a.atttypid >= 16384 or exists (
            select from pg_collation c where c.oid = a.attcollation and not c.collisdeterministic))
  union
    select p.attrelid, p.attnum, n.oid, n.typmod, n.collation_oid
      from parts p join pg_type y on y.oid = p.oid
     cross join lateral (
        select y.typbasetype, y.typtypmod, coalesce(nullif(p.collation_oid, 0), y.typcollation) where y.typtype = 'd'
        union all
        select y.typelem, p.typmod, p.collation_oid where y.typsubscript = 'array_subscript_handler'::regproc
        union all
        select d.atttypid, d.atttypmod, d.attcollation
          from pg_attribute d where y.typtype = 'c' and d.attrelid = y.typrelid and d.attnum > 0 and not d.attisdropped
        union all
        select r.rngsubtype, -1, r.rngcollation from pg_range r where y.oid in (r.rngtypid, r.rngmultitypid)
     ) n (oid, typmod, collation_oid))
select a.attrelid::bigint, a.attnum::int, a.atttypid::bigint, s.nspname::text, b.typname::text,
       format_type(a.atttypid, a.atttypmod), array_remove(array_agg(distinct found.part order by found.part), null)
  from parts p
  join pg_type y on y.oid = p.oid
  join pg_attribute a on a.attrelid = p.attrelid and a.attnum = p.attnum
  join lateral (
    with recursive base as (
      select t.* from pg_type t where t.oid = a.atttypid
      union all
      select t.* from base join pg_type t on base.typtype = 'd' and t.oid = base.typbasetype)
    select base.* from base where base.typtype <> 'd') b on true
  join pg_namespace s on s.oid = b.typnamespace
  left join pg_collation c on c.oid = p.collation_oid and not c.collisdeterministic
 cross join lateral (values
    ('collation ' || c.oid::regcollation::text),
    (case when y.typtype in ('r', 'm') and exists (
               select from pg_range r where y.oid in (r.rngtypid, r.rngmultitypid) and r.rngsubopc >= 16384)
          then 'type ' || format_type(y.oid, null) end),
    (case when y.typtype <> 'b' or y.typsubscript = 'array_subscript_handler'::regproc then null
          when y.oid < 16384 then y.oid::text || ' ' || p.typmod::text
          when y.typname in ('ltree', 'hstore') and exists (
               select from pg_depend d join pg_extension e on e.oid = d.refobjid and e.extname = y.typname
                where d.classid = 'pg_type'::regclass and d.objid = y.oid and d.deptype = 'e') then null
          else 'type ' || format_type(y.oid, null) end)) found (part)
 group by 1, 2, 3, 4, 5, 6
"""
_COMPOSITES = f"""{_PARTS}
select distinct y.typrelid::bigint from parts p join pg_type y on y.oid = p.oid and y.typrelid <> 0
"""


@dataclass(frozen=True, slots=True)
class TableSize:
    """Size of a table in `pages` and, with TOAST, `size_bytes`; `rows` is the planner's estimate or None.

    `of_stranger`: no query may read it (`source.strangers`).
    """

    pages: int
    size_bytes: int
    rows: int | None
    of_stranger: bool = False


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
    """Read the sizes of tables, by OID, and which are a stranger's; lock those that are to be read before."""
    wanted = list(oids)
    strange = tables_of_strangers(conn, wanted)
    return {
        cast("int", oid): TableSize(*cast("tuple[int, int, int | None]", tuple(size)), of_stranger=oid in strange)
        for oid, *size in fetch(conn, _SIZES, wanted)
    }


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A catalog table; `relation` has its published columns, `row_filter` is as in PublishedTable.

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


def read_row_filters(
    conn: psycopg.Connection[Row], publication: str, tables: Iterable[FollowedTable]
) -> dict[int, str]:
    """Read the row filters of these tables as SQL, by OID; not those that were changed since."""
    filters = {table.relation.oid: table.row_filter for table in tables if table.row_filter is not None}
    rows = fetch(conn, _ROW_FILTERS, [*filters], [*filters.values()], publication) if filters else []
    return {cast("int", oid): str(condition) for oid, condition in rows}


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


def never_followed(source: Source, wanted: Callable[[CatalogTable], bool]) -> tuple[TableName, ...]:
    """Return the wanted tables that can never be followed: unlogged and foreign ones."""
    return tuple(t.name for t in source.tables if not t.publishable and not t.ancestors and wanted(t))


def unpublished_of(source: Source) -> list[TableName]:
    """Name the tables that could be followed and are not in the publication, neither themselves nor their roots."""
    published = {t.relation.oid for t in source.tables if source.published(t.name)}
    others = (t for t in source.tables if t.publishable and t.name.schema != SYSTEM_SCHEMA)
    return [t.name for t in others if not published.intersection((t.relation.oid, *t.ancestors))]


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


def read_composites(conn: psycopg.Connection[Row], oids: Iterable[int]) -> list[int]:
    """Read the relations of the composite types of these tables' columns."""
    return [cast("int", oid) for (oid,) in fetch(conn, _COMPOSITES, list(oids))]


def read_catalog_digest(conn: psycopg.Connection[Row], oids: Iterable[int], composites: Iterable[int]) -> str:
    """Read a digest of the catalog entries of these tables and of their composite types, and of all event triggers."""
    tables = list(oids)
    (digest,) = fetch_one(conn, _DIGEST, tables, tables, tables, list(composites))
    return str(digest)


def read_tables_digest(conn: psycopg.Connection[Row], publication: str) -> str:
    """Read a digest of the tables of a database, and of what a publication lists."""
    (digest,) = fetch_one(conn, _TABLES_DIGEST, publication)
    return str(digest)


def read_table_digests(conn: psycopg.Connection[Row], oids: Iterable[int]) -> dict[int, str]:
    """Read a digest of each of these tables that exists, by OID."""
    return {cast("int", oid): str(digest) for oid, digest in fetch(conn, _EACH, list(oids))}


def read_types(conn: psycopg.Connection[Row], oids: Iterable[int]) -> dict[int, dict[str, str]]:
    """Read the labels of enum types, and a digest of composite types, of these tables' columns, by OID.

    Also of those inside other types, and where they are; entries are called as in `pgoutput.table_shape.Shape`.
    """
    types: dict[int, dict[str, str]] = {}
    for oid, entry, text in fetch(conn, _TYPES, list(oids)):
        types.setdefault(cast("int", oid), {})[str(entry)] = str(text)
    return types


def _read_compared(conn: psycopg.Connection[Row], oids: Iterable[int]) -> dict[int, dict[str, list[str]]]:
    """Read what comparisons of these tables' columns depend on, as `pgoutput.table_shape.Shape` has it, by OID."""
    compared: dict[int, dict[str, list[str]]] = {}
    for oid, attnum, type_oid, schema, base, name, parts in fetch(conn, _COMPARED, list(oids)):
        decisive = base_type(cast("int", type_oid), str(schema), str(base))
        entry = compared_key(cast("int", attnum), decisive)
        compared.setdefault(cast("int", oid), {})[entry] = [str(name), *cast("list[str]", parts)]
    return compared


def read_shapes(conn: psycopg.Connection[Row], oids: Iterable[int]) -> dict[int, tuple[Shape, int]]:
    """Read the shapes of these tables by OID, each with the xid that last wrote its entry in pg_class."""
    tables = list(oids)
    types, compared = read_types(conn, tables), _read_compared(conn, tables)
    found: dict[int, tuple[Shape, int]] = {}
    for entry, entries, changed_by, files, constraint, toast, inherited, stamps in fetch(conn, _SHAPES, tables):
        of_parts = {int(oid): file for oid, file in cast("dict[str, int]", files).items()}
        of_entries = {int(attnum): stamp for attnum, stamp in cast("dict[str, str]", stamps).items()}
        shape = parse_shape(cast("dict[str, Any]", entry), of_parts)
        of_columns = types.get(shape.relation.oid, {})
        key = cast("int | None", constraint)
        shape = replace(shape, entries=str(entries), types=of_columns, constraint=key, stamps=of_entries)
        shape = replace(shape, toast=cast("int", toast), inherited=bool(inherited))
        shape = replace(shape, compared=compared.get(shape.relation.oid, {}))
        found[shape.relation.oid] = shape, cast("int", changed_by)
    return found
