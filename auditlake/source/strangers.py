"""Tables of strangers: those whose owner could run code with our role's rights if a query read them.

PostgreSQL evaluates a call of an IMMUTABLE function with constants when it *plans* a query of a table: in predicates
and expressions of its indexes, in extended statistics, and where a query needs them in check constraints and partition
keys. It does so as the role that asks, and the function may do whatever that role may, also in a read-only transaction.
Who owns the table can create such an index at any time, also while we hold ACCESS SHARE. `COPY table TO` reads a table
without planning a query.

A role is trusted, and so no stranger, if our rights are none that it lacks:
  - a superuser, our own role, or one that may become ours;
  - one that may read every table of the database, if ours is neither a superuser nor may bypass row security, create
    roles, or reach files and programs of the server. Apart from tables, ours has REPLICATION, which shows all of them.
A table is a stranger's if a role that is not trusted owns it, a table above or below it in a partition tree, or a
function on which one of those objects depends. An owner does not change under our ACCESS SHARE lock.

Authority: postgresql.org/docs/current/perm-functions.html; src/backend/optimizer/util/plancat.c, `get_relation_info`
"""

from collections.abc import Iterable
from typing import LiteralString, cast

import psycopg

from auditlake.source.connection import Row, fetch

_UNTRUSTED: LiteralString = """ours as materialized (
    select r.oid, r.rolsuper or r.rolbypassrls or r.rolcreaterole or exists (
               select from pg_catalog.pg_roles d
                where d.rolname in ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files')
                  and pg_catalog.pg_has_role(r.oid, d.oid, 'MEMBER')) as may_more
      from pg_catalog.pg_roles r where r.rolname = current_user
), strangers as materialized (
    select o.oid
      from pg_catalog.pg_roles o, ours
     where o.oid in (select owner from owned)
       and not (o.rolsuper or pg_catalog.pg_has_role(o.oid, ours.oid, 'MEMBER'))
       and (ours.may_more or exists (
               select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                where c.relkind in ('r', 'p') and n.nspname <> 'information_schema'
                  and n.nspname not like 'pg\\_%%' and n.nspname <> 'auditlake'
                  and pg_catalog.has_table_privilege(o.oid, c.oid, 'SELECT') is not true))
)"""
_TABLES: LiteralString = f"""
with recursive up (start, oid) as (
    select t, t from unnest(%s::oid[]) t
     union select up.start, i.inhparent from up join pg_catalog.pg_inherits i on i.inhrelid = up.oid
), down (start, oid) as (
    select t, t from unnest(%s::oid[]) t
     union select down.start, i.inhrelid from down join pg_catalog.pg_inherits i on i.inhparent = down.oid
), tree as materialized (
    select * from up union select * from down
), objects as (
    select t.start, 'pg_catalog.pg_class'::regclass as classid, i.indexrelid as objid
      from tree t join pg_catalog.pg_index i on i.indrelid = t.oid
     union all
    select t.start, 'pg_catalog.pg_statistic_ext'::regclass, s.oid
      from tree t join pg_catalog.pg_statistic_ext s on s.stxrelid = t.oid
     union all
    select t.start, 'pg_catalog.pg_constraint'::regclass, c.oid
      from tree t join pg_catalog.pg_constraint c on c.conrelid = t.oid and c.contype = 'c'
     union all
    select t.start, 'pg_catalog.pg_class'::regclass, t.oid from tree t
), owned as materialized (
    select t.start, c.relowner as owner from tree t join pg_catalog.pg_class c on c.oid = t.oid
     union
    select o.start, p.proowner
      from objects o
      join pg_catalog.pg_depend d on d.classid = o.classid and d.objid = o.objid
      left join pg_catalog.pg_operator op
             on d.refclassid = 'pg_catalog.pg_operator'::regclass and op.oid = d.refobjid
      join pg_catalog.pg_proc p
        on p.oid = case when d.refclassid = 'pg_catalog.pg_proc'::regclass then d.refobjid else op.oprcode::oid end
      join pg_catalog.pg_language l on l.oid = p.prolang and l.lanname not in ('internal', 'c')
), {_UNTRUSTED}
select distinct w.start::bigint from owned w where w.owner in (select oid from strangers)
"""
_OWNER: LiteralString = f"""
with owned as materialized (
    select pubowner as owner from pg_catalog.pg_publication where pubname = %s
), {_UNTRUSTED}
select r.rolname::text from pg_catalog.pg_roles r where r.oid in (select oid from strangers)
"""


def tables_of_strangers(conn: psycopg.Connection[Row], oids: Iterable[int]) -> set[int]:
    """Return which of these tables are a stranger's, by OID; lock them before."""
    wanted = list(oids)
    return {cast("int", oid) for (oid,) in fetch(conn, _TABLES, wanted, wanted)}


def stranger_of_publication(conn: psycopg.Connection[Row], name: str) -> str | None:
    """Return the role that owns a publication, if it is not trusted: it decides what is in the stream."""
    return next((str(role) for (role,) in fetch(conn, _OWNER, name)), None)
