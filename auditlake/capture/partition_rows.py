"""Rows of partitions: whether there are any, how many, and whether one is there.

Unlike what reads the catalog, these open tables, with a short lock timeout. The name of a table is locked first, and
read again: a view that had taken it would run functions with our role's rights.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import cast

import psycopg
from psycopg import sql

from auditlake.capture.first_rows import FirstRow
from auditlake.source.connection import Row, answering_within, connect, fetch

_COUNTED = 100_000
"""Most rows of a partition that are counted: some milliseconds."""
_LOCK_TIMEOUT, _SCAN_TIMEOUT = "200ms", "1s"
_UNREADABLE = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.QueryCanceled,
    psycopg.ProgrammingError,  # it was renamed, the role may not read it, or a type has no operator
    psycopg.NotSupportedError,
    psycopg.DataError,
)
_NAME = """
select n.nspname::text, c.relname::text
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = %s::oid
"""
# The column is missing before 15.
_FILTERED = """
select from pg_catalog.pg_publication_rel p
 where p.prrelid = %s::oid and pg_catalog.to_jsonb(p) ->> 'prqual' is not null
"""


def is_empty(conn: psycopg.Connection[Row], relation: int) -> bool | None:
    """Whether a table has no pages; None if another session holds a conflicting lock."""
    try:
        with conn.transaction():
            conn.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'")
            ((size,),) = fetch(conn, "select pg_catalog.pg_relation_size(%s::oid)", relation)
    except psycopg.errors.LockNotAvailable:
        return None
    return not size


def count_rows(conn: psycopg.Connection[Row], root: int, partition: int) -> int:
    """Count the published rows of a partition, up to a limit; 0 if they may not all be, or cannot be counted soon."""
    rows = sql.SQL("select from only {table} limit {limit}")
    return 0 if fetch(conn, _FILTERED, root) else _count(conn, partition, rows, limit=sql.Literal(_COUNTED))


@dataclass(frozen=True, slots=True)
class RowLookup:
    """Looks for rows in the source, over a connection of its own; `silence_s` as in `answering_within`."""

    conninfo: str
    silence_s: float

    def __call__(self, rows: Sequence[FirstRow]) -> list[bool]:
        """Return which rows are there, as their transactions wrote them; raises SourceUnreachable."""
        with closing(connect(self.conninfo)) as conn, answering_within(conn, self.silence_s):
            return [_is_there(conn, row) for row in rows]


def _is_there(conn: psycopg.Connection[Row], row: FirstRow) -> bool:
    """Look through the root, whose partitions our role need not be able to read by their own names."""
    rows = sql.SQL("select from {table} where tableoid = {partition} and xmin::text in {xids} and {key} limit 1")
    names = [column.name for column in row.root.columns]
    key = sql.SQL(" and ").join(_equals(sql.Identifier(names[place]), text) for place, text in row.key)
    xids = sql.SQL("({}, {})").format(sql.Literal(str(row.xid)), sql.Literal(str(row.created_by)))
    return _count(conn, row.root.oid, rows, partition=sql.Literal(row.partition), xids=xids, key=key) > 0


def _equals(column: sql.Identifier, text: str | None) -> sql.Composed:
    if text is None:
        return sql.SQL("{} is null").format(column)
    return sql.SQL("{} operator(pg_catalog.=) {}").format(column, sql.Literal(text))


def _count(conn: psycopg.Connection[Row], oid: int, rows: sql.SQL, **parts: sql.Composable) -> int:
    """Count the rows of a query of one table; 0 if they cannot be read soon."""
    try:
        with conn.transaction():
            conn.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'; set local statement_timeout = '{_SCAN_TIMEOUT}'")
            if not (names := fetch(conn, _NAME, oid)):
                return 0
            table = sql.Identifier(*map(str, names[0]))
            conn.execute(sql.SQL("lock table only {} in access share mode").format(table))
            if fetch(conn, _NAME, oid) != names:
                return 0
            query = sql.SQL("select pg_catalog.count(*) from ({}) r").format(rows.format(table=table, **parts))
            ((count,),) = conn.execute(query).fetchall()
            return cast("int", count)
    except _UNREADABLE:
        return 0
