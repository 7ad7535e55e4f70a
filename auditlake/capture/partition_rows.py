"""Rows of partitions: whether there are any, how many, and whether one is there.

Unlike what reads the catalog, these open tables, with a short lock timeout. The name of a table is locked first, and
read again: a view that had taken it would run functions with our role's rights. A query of a stranger's table could,
too, so it is not made.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import cast

import psycopg
from psycopg import sql

from auditlake.capture.first_rows import FirstRow
from auditlake.relation import Column
from auditlake.source.connection import Row, answering_within, connect, fetch
from auditlake.source.strangers import tables_of_strangers
from auditlake.values.types import is_built_in

_COUNTED = 100_000
"""Most rows of a partition that are counted: some milliseconds."""
_LOCK_TIMEOUT, _SCAN_TIMEOUT = "200ms", "1s"
_UNREADABLE = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
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


def count_rows(conn: psycopg.Connection[Row], root: int, partitions: Iterable[int]) -> dict[int, int]:
    """Count the published rows of partitions, by OID, up to a limit.

    0 if they may not all be published, or cannot be counted soon: after one that cannot, no other is.
    """
    query = sql.SQL("select pg_catalog.count(*) from (select from only {table} limit {limit}) r")
    counts = dict.fromkeys(partitions, 0)
    if _is_filtered(conn, root) or tables_of_strangers(conn, [root]):
        return counts
    for partition in counts:
        if (rows := _select(conn, partition, query, limit=sql.Literal(_COUNTED))) is None:
            break
        counts[partition] = sum(cast("int", count) for (count,) in rows)
    return counts


@dataclass(frozen=True, slots=True)
class WriterLookup:
    """Looks for rows in the source, over a connection of its own; `silence_s` as in `answering_within`."""

    conninfo: str
    silence_s: float

    def __call__(self, rows: Sequence[FirstRow]) -> list[set[int]]:
        """Return which transaction wrote each row, as `FindWriters`; raises SourceUnreachable.

        A table that cannot be read soon is not tried again: who locks it would hold capture for each of its rows.
        """
        with closing(connect(self.conninfo)) as conn, answering_within(conn, self.silence_s):
            unreadable = tables_of_strangers(conn, {row.root.oid for row in rows})
            found = []
            for row in rows:
                writers = None if row.root.oid in unreadable else _writers(conn, row)
                if writers is None:
                    unreadable.add(row.root.oid)
                found.append(writers or set())
            return found


def _writers(conn: psycopg.Connection[Row], row: FirstRow) -> set[int] | None:
    """Look through the root, whose partitions our role may not be able to read by their names; None as `_select`."""
    if _is_filtered(conn, row.root.oid):
        return set()
    query = sql.SQL("select xmin::text from {table} where tableoid = {partition} and {key} limit 2")
    texts: list[str] = []
    key = sql.SQL(" and ").join(_is_shown_as(row.root.columns[place], text, texts) for place, text in row.key)
    found = _select(conn, row.root.oid, query, texts, partition=sql.Literal(row.partition), key=key)
    return None if found is None else {int(str(xid)) for (xid,) in found}


def _is_filtered(conn: psycopg.Connection[Row], root: int) -> bool:
    """Whether rows of a table may be missing in the stream."""
    return bool(fetch(conn, _FILTERED, root))


def _is_shown_as(column: Column, text: str | None, texts: list[str]) -> sql.Composed:
    """Return the condition that a column has this text, and append its parameters: values may be equal (1.0, 1.00).

    A value of a type that is not built in would be compared by a cast of the type's owner, if there is one.
    """
    name = sql.Identifier(column.name)
    if text is None:
        return sql.SQL("{} is null").format(name)
    texts.append(text)
    shown = sql.SQL("pg_catalog.format('%s', {name}) collate \"C\" = {text}").format(
        name=name, text=sql.SQL(f"${len(texts)}")
    )
    if not is_built_in(column.type_oid):
        return shown
    texts.append(text)  # this one is of the column's type
    equal = sql.SQL("{name} operator(pg_catalog.=) {value}").format(name=name, value=sql.SQL(f"${len(texts)}"))
    return sql.SQL("{} and {}").format(equal, shown)


def _select(
    conn: psycopg.Connection[Row], oid: int, query: sql.SQL, values: Sequence[str] = (), **parts: sql.Composable
) -> list[Row] | None:
    """Return the rows of a query of one table; None if they cannot be read soon.

    Values are parameters: the server logs a statement that fails.
    """
    try:
        with conn.transaction():
            conn.execute("set transaction read only")
            conn.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'; set local statement_timeout = '{_SCAN_TIMEOUT}'")
            if not (names := fetch(conn, _NAME, oid)):
                return None
            table = sql.Identifier(*map(str, names[0]))
            conn.execute(sql.SQL("lock table only {} in access share mode").format(table))
            if fetch(conn, _NAME, oid) != names or tables_of_strangers(conn, [oid]):
                return None
            return psycopg.RawCursor(conn).execute(query.format(table=table, **parts), values).fetchall()
    except _UNREADABLE:
        return None
