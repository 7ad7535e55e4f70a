"""Lock waits: bound the wait for a table's lock, and name the sessions that hold or await a conflicting one.

A session that only waits for a conflicting lock (an ALTER TABLE behind a long query) blocks every later request,
because the lock queue is fair. So waiting sessions are named as well as holding ones.

Authority: postgresql.org/docs/current/explicit-locking.html; view-pg-locks.html
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from auditlake.errors import SourceUnready
from auditlake.relation import TableName
from auditlake.source.connection import Row, fetch

_BLOCKERS = """
select l.pid, a.usename::text, case when l.granted then 'holds' else 'waits for' end,
       upper(regexp_replace(replace(l.mode, 'Lock', ''), '(?<=[a-z])(?=[A-Z])', ' ', 'g')),
       extract(epoch from pg_catalog.clock_timestamp() - a.xact_start)::bigint
  from pg_catalog.pg_locks l
  join pg_catalog.pg_stat_activity a on a.pid = l.pid
 where l.relation in (select pg_catalog.to_regclass(name) from unnest(%s::text[]) name)
   and l.mode = any (%s) and l.pid <> pg_catalog.pg_backend_pid()
   and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
 order by l.granted desc, a.xact_start
"""
LOCK_TIMEOUT_S = 30.0
AGAINST_READING = ("AccessExclusiveLock",)
AGAINST_PUBLISHING = (
    "ShareUpdateExclusiveLock",
    "ShareLock",
    "ShareRowExclusiveLock",
    "ExclusiveLock",
    "AccessExclusiveLock",
)


def name_blockers(
    conn: psycopg.Connection[Row], tables: Iterable[TableName], modes: Sequence[str] = AGAINST_READING
) -> str:
    """Name the sessions that hold or await a lock of these modes on one of the tables; empty without any."""
    rows = fetch(conn, _BLOCKERS, [sql.Identifier(*table).as_string() for table in tables], list(modes))
    sessions = [f"pid {pid} of {user}, which {has} {mode}{format_age(age)}" for pid, user, has, mode, age in rows]
    return ", ".join(dict.fromkeys(sessions))


def format_age(age_s: object) -> str:
    """Format a transaction's age; empty if it is hidden from roles outside pg_read_all_stats."""
    return "" if age_s is None else f" (open for {age_s} s)"


@contextmanager
def locks_awaited(
    conn: psycopg.Connection[Row], what: str, tables: Sequence[TableName], modes: Sequence[str] = AGAINST_READING
) -> Iterator[None]:
    """Set the lock timeout for the statements of the block; `what` is the failure to report when it expires.

    Raises SourceUnready with the blocking sessions.
    """
    conn.execute(f"set lock_timeout = '{int(LOCK_TIMEOUT_S * 1000)}ms'".encode())
    try:
        yield
    except psycopg.errors.LockNotAvailable as exc:
        conn.rollback()
        sessions = name_blockers(conn, tables, modes) or "a session that has ended"
        raise SourceUnready(
            f"{what} in {LOCK_TIMEOUT_S:g} s because of {sessions}",
            "Wait for that session or end it, then run the same command again.",
        ) from exc
    finally:
        if not conn.broken:  # else its failure is already being raised
            conn.execute("set lock_timeout = 0")
