"""Looks at tables, and at a column that was added to one: what `auditlake.added` decides from.

Each is one statement, so it sees the catalog at one moment.

Authority: postgresql.org/docs/current/catalog-pg-attribute.html
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import psycopg

from auditlake.added import Found, Look, Part
from auditlake.lsn import Lsn
from auditlake.postgres.connection import Row, fetch

_LOOK = """
select t.oid::bigint, (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint, t.relnatts::int,
       parts.oids, parts.files, columns.names, columns.numbers
  from pg_catalog.pg_class t
 cross join lateral (
    select coalesce(array_agg(p.oid::bigint), '{}') as oids, coalesce(array_agg(p.relfilenode::bigint), '{}') as files
      from (select t.oid as oid union select m.relid from pg_catalog.pg_partition_tree(t.oid) m) tree
      join pg_catalog.pg_class p on p.oid = tree.oid and p.relkind = 'r') parts
 cross join lateral (
    select coalesce(array_agg(a.attname::text), '{}') as names, coalesce(array_agg(a.attnum::int), '{}') as numbers
      from pg_catalog.pg_attribute a where a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped) columns
 where t.oid = any (%s::oid[])
"""

_COLUMN = """
select a.attnum::int,
       coalesce((select max(d.attnum)::int from pg_catalog.pg_attribute d
                  where d.attrelid = a.attrelid and d.attisdropped), 0),
       p.oid::bigint, p.relfilenode::bigint, case when m.atthasmissing then m.attmissingval::text end
  from pg_catalog.pg_attribute a
  left join lateral (
    select c.oid, c.relfilenode
      from (select a.attrelid as oid union select m.relid from pg_catalog.pg_partition_tree(a.attrelid) m) tree
      join pg_catalog.pg_class c on c.oid = tree.oid and c.relkind = 'r') p on true
  left join pg_catalog.pg_attribute m on m.attrelid = p.oid and m.attname = a.attname and not m.attisdropped
 where a.attrelid = %s::oid and a.attname = %s and not a.attisdropped
"""


@dataclass(frozen=True, slots=True)
class Looked:
    """A look, and the numbers of the columns that the table had then."""

    look: Look
    columns: dict[str, int]


def read_looks(conn: psycopg.Connection[Row], relations: Iterable[int]) -> list[Looked]:
    """Look at the tables of these OIDs, those that are there."""
    found = []
    for oid, lsn, attributes, parts, files, names, numbers in fetch(conn, _LOOK, list(relations)):
        of_parts = zip(cast("list[int]", parts), cast("list[int]", files), strict=True)
        columns = zip(cast("list[str]", names), cast("list[int]", numbers), strict=True)
        look = Look(cast("int", oid), Lsn(cast("int", lsn)), cast("int", attributes), dict(of_parts))
        found.append(Looked(look, dict(columns)))
    return found


def read_column(conn: psycopg.Connection[Row], relation: int, name: str) -> Found | None:
    """Look at one column; None where the table has none of that name."""
    rows = fetch(conn, _COLUMN, relation, name)
    if not rows:
        return None
    parts = {
        cast("int", oid): Part(cast("int", file), None if missing is None else only_element(str(missing)))
        for _, _, oid, file, missing in rows
        if oid is not None
    }
    return Found(cast("int", rows[0][0]), cast("int", rows[0][1]), parts)


def only_element(text: str) -> str:
    """Read PostgreSQL's text of an array of one value, which is not NULL."""
    inner = text.removeprefix("{").removesuffix("}")
    if not inner.startswith('"'):
        return inner
    characters = iter(inner[1:-1])
    return "".join(next(characters) if each == "\\" else each for each in characters)
