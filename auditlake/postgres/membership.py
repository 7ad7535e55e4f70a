"""Reads what a publication carries, with the OIDs by which a later look sees that it was changed.

Authority: postgresql.org/docs/current/catalog-pg-publication.html; view-pg-publication-tables.html
"""

from collections.abc import Iterable
from typing import cast

import psycopg

from auditlake.membership import Member, Membership
from auditlake.postgres.connection import Row, fetch
from auditlake.relation import TableName

_PUBLICATION = """
select oid::bigint, array_remove(array[
         case when pubinsert then 'insert' end, case when pubupdate then 'update' end,
         case when pubdelete then 'delete' end, case when pubtruncate then 'truncate' end], null)
  from pg_catalog.pg_publication where pubname = %s
"""

# A partition is published by the entry of the ancestor that was named.
_TABLES = """
select t.schemaname::text, t.tablename::text, c.oid::bigint,
       (select max(r.oid::bigint) from pg_catalog.pg_publication_rel r
         where r.prpubid = p.oid
           and (r.prrelid = c.oid or r.prrelid in (select relid from pg_catalog.pg_partition_ancestors(c.oid))))
  from pg_catalog.pg_publication p
  join pg_catalog.pg_publication_tables t on t.pubname = p.pubname
  join pg_catalog.pg_namespace n on n.nspname = t.schemaname
  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
 where p.pubname = %s
"""

_EXISTING = "select oid::bigint from pg_catalog.pg_class where oid = any (%s::oid[])"


def read_membership(conn: psycopg.Connection[Row], name: str) -> Membership | None:
    """Read what a publication carries; None where there is none of that name."""
    rows = fetch(conn, _PUBLICATION, name)
    if not rows:
        return None
    oid, operations = rows[0]
    tables = {
        TableName(str(schema), str(table)): Member(cast("int", relation), cast("int | None", entry))
        for schema, table, relation, entry in fetch(conn, _TABLES, name)
    }
    return Membership(cast("int", oid), frozenset(cast("list[str]", operations)), tables)


def find_existing(conn: psycopg.Connection[Row], relations: Iterable[int]) -> frozenset[int]:
    """Find those of these OIDs that are relations still."""
    return frozenset(cast("int", row[0]) for row in fetch(conn, _EXISTING, list(relations)))
