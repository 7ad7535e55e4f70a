"""Read the partitions of tables that are published through their root (`auditlake.partitions`).

Only catalogs are read and no function is called that opens a table, so nothing waits for VACUUM FULL or TRUNCATE. The
exception is `is_empty`, which reads the size of the file, with a short lock timeout.

Authority: postgresql.org/docs/current/catalog-pg-inherits.html
"""

from collections.abc import Iterable
from typing import cast

import psycopg

from auditlake.lsn import Lsn
from auditlake.partitions import Part, PartNow
from auditlake.source.connection import Row, fetch

_TREE = """
with recursive tree (root, relid, attached) as (
    select c.oid, c.oid, '' from pg_catalog.pg_class c where c.oid = any (%s::oid[]) and c.relkind = 'p'
    union all
    select tree.root, i.inhrelid, i.xmin::text
      from tree join pg_catalog.pg_inherits i on i.inhparent = tree.relid)
"""

_DIGESTS = f"""{_TREE}
select t.root::bigint,
       pg_catalog.md5(pg_catalog.string_agg(
           pg_catalog.concat_ws(':', t.relid, c.relfilenode, t.attached), ',' order by t.relid))
  from tree t join pg_catalog.pg_class c on c.oid = t.relid and c.relkind in ('r', 'p')
 group by t.root
"""

# The entry of a system column is written only when the table is created; ATTACH also updates the first column's.
_PARTS = f"""{_TREE}
select t.relid::bigint, c.relname::text,
       c.relfilenode::bigint, t.attached, c.xmin::text::bigint, c.reltuples::float8, c.relpages,
       coalesce(t.attached = s.xmin::text and s.xmin = a.xmin and s.cmin = a.cmin, false)
  from tree t
  join pg_catalog.pg_class c on c.oid = t.relid and c.relkind in ('r', 'p')
  left join pg_catalog.pg_attribute s on s.attrelid = t.relid and s.attname = 'tableoid'
  left join pg_catalog.pg_attribute a on a.attrelid = t.relid and a.attnum = 1
 where t.relid <> t.root
"""

_LOCK_TIMEOUT = "200ms"


def read_digests(conn: psycopg.Connection[Row], relations: Iterable[int]) -> dict[int, str]:
    """Read a digest of the partitions of each partitioned one of these tables, by OID."""
    return {cast("int", oid): str(digest) for oid, digest in fetch(conn, _DIGESTS, list(relations))}


def read_parts(conn: psycopg.Connection[Row], relation: int) -> dict[int, PartNow]:
    """Read the partitions of a table at all levels, by OID, including partitioned ones."""
    parts = {}
    for oid, name, file, attached, changed_by, rows, pages, made_here in fetch(conn, _PARTS, [relation]):
        part = Part(str(name), cast("int", file), str(attached))
        parts[cast("int", oid)] = PartNow(
            part, bool(made_here), cast("int", changed_by), cast("float", rows), cast("int", pages)
        )
    return parts


def read_insert_lsn(conn: psycopg.Connection[Row]) -> Lsn:
    """Read the insert position of the log: everything that the catalog has shown so far is before it."""
    ((lsn,),) = fetch(conn, "select (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint")
    return Lsn(cast("int", lsn))


def is_empty(conn: psycopg.Connection[Row], relation: int) -> bool | None:
    """Whether a table has no pages; None if another session holds a conflicting lock."""
    try:
        with conn.transaction():
            conn.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'")
            ((size,),) = fetch(conn, "select pg_catalog.pg_relation_size(%s::oid)", relation)
    except psycopg.errors.LockNotAvailable:
        return None
    return not size
