"""Publication: read, create, extend, drop.

1. The publication must exist before the slot: a slot older than its publication fails at its first change and never
   advances.
2. A publication that we create lists its tables by name. FOR ALL TABLES would include tables without a replica
   identity, and make the application's UPDATE and DELETE on them fail.
3. `read_membership` includes the OIDs of publication, tables and entries, by which `publication_membership`
   detects that the publication was changed. `read_publication_digest` shows cheaply that it was not.
4. Everything is read from the catalog, so that no lock on a table, which any role with DELETE on it can hold, delays
   others. So a row filter is in the catalog's own form here; `source.catalog` reads its SQL.

Authority: postgresql.org/docs/current/sql-createpublication.html; catalog-pg-publication.html;
catalog-pg-publication-rel.html; pg_publication.c, pg_get_publication_tables
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import LiteralString, cast

import psycopg
from psycopg import sql

from auditlake.errors import SourceUnready
from auditlake.relation import TableName
from auditlake.source.connection import Row, fetch, fetch_one, refused_by_functions
from auditlake.source.publication_membership import Member, Membership

_MEMBERSHIP = """
select oid::bigint, array_remove(array[
         case when pubinsert then 'insert' end, case when pubupdate then 'update' end,
         case when pubdelete then 'delete' end, case when pubtruncate then 'truncate' end], null),
       xmin::text::bigint,
       array(select s.oid::bigint from pg_catalog.pg_publication_namespace s where s.pnpubid = p.oid)
  from pg_catalog.pg_publication p where pubname = %s
"""

# The tables of pg_publication_tables, each with the row filter of its own entry, in the catalog's form, and the columns
# that it lists. An entry is ignored if all tables, or all of its schema, are published. A partition is published by
# the entry of a listed ancestor. prattrs and prqual, which 15 added, are read through to_jsonb.
_MEMBERS = """
with recursive publication as (
  select oid, puballtables, pubviaroot from pg_catalog.pg_publication where pubname = %s
), listed as (
  select c.oid, c.relkind from pg_catalog.pg_class c cross join publication p
   where c.relkind in ('r', 'p') and c.relpersistence = 'p' and c.oid >= 16384
     and (p.puballtables
          or exists (select from pg_catalog.pg_publication_rel r where r.prpubid = p.oid and r.prrelid = c.oid)
          or exists (select from pg_catalog.pg_publication_namespace s
                      where s.pnpubid = p.oid and s.pnnspid = c.relnamespace))
), reached as (
  select oid, relkind from listed
  union
  select c.oid, c.relkind
    from reached r
    join pg_catalog.pg_inherits i on i.inhparent = r.oid
    join pg_catalog.pg_class c on c.oid = i.inhrelid
   where r.relkind = 'p' and not (select puballtables from publication)
)
select n.nspname::text, c.relname::text, c.oid::bigint,
       (select max(r.oid::bigint) from pg_catalog.pg_publication_rel r
         where r.prpubid = p.oid
           and (r.prrelid = c.oid or r.prrelid in (select relid from pg_catalog.pg_partition_ancestors(c.oid)))),
       array(select s.oid::bigint from pg_catalog.pg_publication_namespace s
              where s.pnpubid = p.oid
                and (s.pnnspid = c.relnamespace
                     or s.pnnspid in (select a.relnamespace
                                        from pg_catalog.pg_partition_ancestors(c.oid) t
                                        join pg_catalog.pg_class a on a.oid = t.relid))),
       own.entry ->> 'prqual',
       case when own.entry ->> 'prattrs' is not null then array(
            select a.attname::text from pg_catalog.pg_attribute a
             where a.attrelid = c.oid and own.entry -> 'prattrs' @> pg_catalog.to_jsonb(a.attnum)) end
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 cross join publication p
  left join lateral (
    select pg_catalog.to_jsonb(r) as entry from pg_catalog.pg_publication_rel r
     where r.prpubid = p.oid and r.prrelid = c.oid and not p.puballtables
       and not exists (select from pg_catalog.pg_publication_namespace s
                        where s.pnpubid = p.oid and s.pnnspid = c.relnamespace)) own on true
 where case when p.pubviaroot
            then c.oid in (select oid from listed)
                 and not (c.relispartition
                          and exists (select from pg_catalog.pg_partition_ancestors(c.oid) a
                                        join listed l on l.oid = a.relid where a.relid <> c.oid))
            else c.oid in (select oid from reached where relkind <> 'p') end
"""

# An entry that is removed and added again gets a higher OID.
_DIGEST = """
select concat_ws(' ', p.oid, p.xmin,
    (select concat_ws(' ', count(*), sum(r.oid::bigint)) from pg_catalog.pg_publication_rel r where r.prpubid = p.oid),
    (select concat_ws(' ', count(*), sum(s.oid::bigint))
       from pg_catalog.pg_publication_namespace s where s.pnpubid = p.oid))
  from pg_catalog.pg_publication p where p.pubname = %s
"""
_EXISTING = """
select c.oid::bigint, array(select a.relid::bigint from pg_catalog.pg_partition_ancestors(c.oid) a)
  from pg_catalog.pg_class c where c.oid = any (%s::oid[])
"""
# Columns that later versions added are read through to_jsonb: NULL where they do not exist.
_PUBLICATION = """
select pubinsert and pubupdate and pubdelete and pubtruncate,
       pubviaroot,
       coalesce(pg_catalog.to_jsonb(p) ->> 'pubgencols', 'n') = 's',
       pg_catalog.current_setting('server_version_num')::int
  from pg_catalog.pg_publication p where pubname = %s
"""
# UPDATE and DELETE of a table need a replica identity if a publication publishes them for it or for an ancestor of it.
_FAILING = """
select n.nspname::text, c.relname::text, min(p.pubname)::text
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  join pg_catalog.pg_publication p on p.pubupdate or p.pubdelete
 where c.relkind = 'r' and c.relpersistence = 'p' and c.oid >= 16384 and c.relreplident <> 'f'
   and not exists (select from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisvalid and i.indimmediate
                      and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident end)
   and (p.puballtables
        or exists (select from pg_catalog.pg_class a
                    where (a.oid = c.oid or a.oid in (select relid from pg_catalog.pg_partition_ancestors(c.oid)))
                      and (exists (select from pg_catalog.pg_publication_rel r
                                    where r.prpubid = p.oid and r.prrelid = a.oid)
                           or exists (select from pg_catalog.pg_publication_namespace s
                                       where s.pnpubid = p.oid and s.pnnspid = a.relnamespace))))
 group by 1, 2 order by 1, 2
"""
_OPTIONS = """
select pg_catalog.to_jsonb(p) ->> 'pubgencols' = 's',
       exists (select from pg_catalog.pg_publication_namespace s where s.pnpubid = p.oid), p.pubviaroot
  from pg_catalog.pg_publication p where pubname = %s
"""
_LISTED = """
select r.prrelid::bigint, pg_catalog.to_jsonb(r) ->> 'prattrs' is not null
  from pg_catalog.pg_publication_rel r
  join pg_catalog.pg_publication p on p.oid = r.prpubid
 where p.pubname = %s
"""
_SCHEMAS = "pg_catalog.pg_publication_namespace"
_SCHEMAS_SINCE = 150000
_NO_SCHEMAS = "(select null::oid as oid, null::oid as pnpubid, null::oid as pnnspid where false)"
"""PostgreSQL 14 publishes no schemas and has no catalog of them."""
VIA_ROOT, STORED_GENERATED = "publish_via_partition_root = true", "publish_generated_columns = stored"
"""Options of a complete history: a partitioned table is one table, and its generated columns are sent."""
STORED_GENERATED_SINCE = 180000
"""In older versions a column list may name generated columns, but the stream does not have them."""


def _for_server(conn: psycopg.Connection[Row], query: LiteralString) -> LiteralString:
    return query if conn.info.server_version >= _SCHEMAS_SINCE else query.replace(_SCHEMAS, _NO_SCHEMAS)


def read_membership(conn: psycopg.Connection[Row], name: str) -> Membership | None:
    """Read the membership of a publication; None if it does not exist."""
    rows = fetch(conn, _for_server(conn, _MEMBERSHIP), name)
    if not rows:
        return None
    oid, operations, altered_by, schemas = rows[0]
    by = cast("int", altered_by)
    tables = {
        TableName(str(schema), str(table)): Member(
            cast("int", relation), cast("int | None", entry), frozenset(cast("list[int]", entries)), by
        )
        for schema, table, relation, entry, entries, _, _ in fetch(conn, _for_server(conn, _MEMBERS), name)
    }
    of_all = frozenset(cast("list[int]", schemas))
    return Membership(cast("int", oid), frozenset(cast("list[str]", operations)), tables, of_all)


def read_publication_digest(conn: psycopg.Connection[Row], name: str) -> str:
    """Read a digest of a publication and of its entries; empty if it does not exist."""
    return " ".join(str(row[0]) for row in fetch(conn, _for_server(conn, _DIGEST), name))


@dataclass(frozen=True, slots=True)
class Entries:
    """Tables that a publication lists, by OID, those of them with a column list, and `stored` as in Publication.

    A listed table cannot become unlogged. `schemas`: it publishes other tables with their schemas. `via_root` as in
    Publication.
    """

    tables: frozenset[int] = frozenset()
    with_columns: frozenset[int] = frozenset()
    stored: bool = False
    schemas: bool = False
    via_root: bool = False


def read_publication_entries(conn: psycopg.Connection[Row], name: str) -> Entries:
    """Read the entries of a publication."""
    options = fetch(conn, _for_server(conn, _OPTIONS), name)
    listed = {cast("int", oid): bool(columns) for oid, columns in fetch(conn, _LISTED, name)}
    with_columns = frozenset(oid for oid, columns in listed.items() if columns)
    stored, schemas, via_root = (any(row[at] for row in options) for at in range(3))
    return Entries(frozenset(listed), with_columns, stored, schemas, via_root)


def find_existing(conn: psycopg.Connection[Row], relations: Iterable[int]) -> dict[int, list[int]]:
    """Return those of these OIDs that are still relations, each with the tables of which it is a partition."""
    rows = fetch(conn, _EXISTING, list(relations))
    return {cast("int", oid): cast("list[int]", ancestors) for oid, ancestors in rows}


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of a publication.

    `row_filter` is its condition as the catalog has it, None for all rows; `column_names` is None without a list.
    """

    name: TableName
    row_filter: str | None = None
    column_names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """An existing publication; `all_operations`: it publishes insert, update, delete and truncate.

    `via_root`: changes of a partition are sent as changes of its published root. `stored_generated`: stored generated
    columns are published.
    """

    name: str
    all_operations: bool
    via_root: bool
    stored_generated: bool
    tables: tuple[PublishedTable, ...]


def read_publication(conn: psycopg.Connection[Row], name: str) -> Publication | None:
    """Read a publication; None if it does not exist."""
    rows = fetch(conn, _PUBLICATION, name)
    if not rows:
        return None
    all_operations, via_root, stored, version = rows[0]
    can_store = cast("int", version) >= STORED_GENERATED_SINCE
    tables = tuple(_published(row) for row in fetch(conn, _for_server(conn, _MEMBERS), name))
    return Publication(name, bool(all_operations), bool(via_root), can_store and bool(stored), tables)


def _published(row: Row) -> PublishedTable:
    schema, table, _, _, _, row_filter, columns = row
    names = None if columns is None else frozenset(cast("list[str]", columns))
    return PublishedTable(TableName(str(schema), str(table)), cast("str | None", row_filter), names)


def read_failing(conn: psycopg.Connection[Row]) -> list[tuple[TableName, str]]:
    """Return the tables on which UPDATE or DELETE fail for want of a replica identity, each with a publication."""
    rows = fetch(conn, _for_server(conn, _FAILING))
    return [(TableName(str(schema), str(table)), str(publication)) for schema, table, publication in rows]


def create_publication(conn: psycopg.Connection[Row], name: str, tables: Iterable[TableName]) -> None:
    """Publish these tables, through the root, with all columns that can be; raises SourceUnready."""
    _run(conn, name, creating_statement(name, tables, stored=can_publish_stored(conn)))


def creating_statement(name: str, tables: Iterable[TableName], *, stored: bool) -> sql.Composed:
    """Return the statement by which `create_publication` creates it; `stored` as in Publication."""
    names = [sql.Identifier(*table) for table in tables]
    listed = sql.SQL("for table {} ").format(sql.SQL(", ").join(names)) if names else sql.SQL("")
    options = ", ".join([VIA_ROOT, *([STORED_GENERATED] if stored else [])])
    statement = sql.SQL("create publication {} {}with ({})")
    return statement.format(sql.Identifier(name), listed, sql.SQL(options))


def can_publish_stored(conn: psycopg.Connection[Row]) -> bool:
    """Whether this server can publish stored generated columns."""
    (version,) = fetch_one(conn, "select pg_catalog.current_setting('server_version_num')::int")
    return cast("int", version) >= STORED_GENERATED_SINCE


def add_tables(conn: psycopg.Connection[Row], name: str, tables: Iterable[TableName]) -> None:
    """Add tables to a publication; only later changes of them are published."""
    _run(conn, name, adding_statement(name, tables))


def adding_statement(name: str, tables: Iterable[TableName]) -> sql.Composed:
    """Return the statement by which `add_tables` adds them."""
    listed = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
    return sql.SQL("alter publication {} add table {}").format(sql.Identifier(name), listed)


def drop_publication(conn: psycopg.Connection[Row], name: str) -> None:
    """Drop a publication if it exists."""
    _run(conn, name, sql.SQL("drop publication if exists {}").format(sql.Identifier(name)))


def _run(conn: psycopg.Connection[Row], name: str, statement: sql.Composed) -> None:
    try:
        with refused_by_functions():
            conn.execute(statement)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState) as exc:
        raise SourceUnready(
            f"publication {name} cannot be changed: {exc.diag.message_primary}",
            "Run it as the owner of the tables with CREATE on the database, or create the publication beforehand.",
        ) from exc
