"""Partitions of tables that are published through their root: read from the catalog, and compared with their record.

Under publish_via_partition_root, DROP, DETACH and TRUNCATE of a partition remove rows, and ATTACH of a filled one adds
rows, without a trace in the stream. The catalog shows them:

    dropped, detached       the partition is missing
    attached                it is new. CREATE TABLE … PARTITION OF creates it and its columns in one command; ATTACH
                            updates the entries of the columns. An empty one adds no rows.
    truncated               it has a new file. So it has after VACUUM FULL, CLUSTER and SET TABLESPACE, which keep the
                            rows, and after TRUNCATE of the whole table, which is in the stream.

TRUNCATE resets the estimated number of rows (`reltuples`), and a truncated partition has at most the rows that were
inserted since. More rows prove that it was not truncated. If the transaction that gave it the new file is that of a
TRUNCATE in the stream, it was truncated with the whole table.

Only catalogs are read and no function is called that opens a table, so nothing waits for VACUUM FULL or TRUNCATE. The
exception is `is_empty`, which reads the size of the file, with a short lock timeout.

Authority: postgresql.org/docs/current/catalog-pg-class.html, catalog-pg-inherits.html; tablecmds.c, ExecuteTruncateGuts
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import psycopg

from auditlake.lsn import Lsn
from auditlake.source.connection import Row, fetch


@dataclass(frozen=True, slots=True)
class Part:
    """A partition: its name, its file (0 if it is partitioned itself), and the xid that attached it."""

    name: str
    file: int
    attached: str


@dataclass(frozen=True, slots=True)
class PartNow:
    """A partition's current catalog entry.

    `made_here`: one command created and attached it. `changed_by` is the xid that last wrote its row of pg_class.
    """

    part: Part
    made_here: bool
    changed_by: int
    rows: float
    pages: int


@dataclass(frozen=True, slots=True)
class Differences:
    """OIDs of partitions that are gone, that may have added rows, and that have a new file."""

    gone: tuple[int, ...]
    attached: tuple[int, ...]
    rewritten: tuple[int, ...]


def compare(before: Mapping[int, Part], now: Mapping[int, PartNow]) -> Differences:
    """Compare the partitions of a table with their record."""
    fresh = [oid for oid in now if oid not in before]
    again = [oid for oid in now if oid in before and before[oid].attached != now[oid].part.attached]
    made_here = all(now[oid].made_here for oid in fresh) and not again
    candidates = [*again, *([] if made_here else fresh)]
    return Differences(
        gone=tuple(oid for oid, part in before.items() if part.file and oid not in now),
        attached=tuple(oid for oid in candidates if now[oid].part.file or oid in again),
        rewritten=tuple(
            oid
            for oid in now
            if oid in before and oid not in again and before[oid].file and before[oid].file != now[oid].part.file
        ),
    )


def keeps_rows(now: PartNow, truncates: Collection[int], inserts: int | None) -> bool:
    """Whether a partition with a new file lost no rows, except by a TRUNCATE in the stream.

    `truncates` are the xids of every TRUNCATE of the whole table since the record, `inserts` is the number of inserted
    rows; None while the stream has not reached the LSN at which `now` was read.
    """
    if now.changed_by in truncates:
        return True
    return inserts is not None and now.pages > 0 and now.rows > inserts


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
