"""Who keeps a table from being locked: sessions that hold what conflicts, or wait for it.

A session that only waits for that lock (an ALTER TABLE behind a long query) stops everybody who comes after it: the
queue is fair. So both are named.

Authority: postgresql.org/docs/current/explicit-locking.html; view-pg-locks.html
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from auditlake.errors import SourceUnready
from auditlake.postgres.connection import Row, fetch
from auditlake.relation import TableName

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
    """Name who holds or awaits a lock of these modes on one of the tables; empty where nobody does."""
    rows = fetch(conn, _BLOCKERS, [sql.Identifier(*table).as_string() for table in tables], list(modes))
    who = [f"pid {pid} of {user}, which {has} {mode}{spell_age(age)}" for pid, user, has, mode, age in rows]
    return ", ".join(dict.fromkeys(who))


def spell_age(age_s: object) -> str:
    """Say how long a transaction is open, where we may know: PostgreSQL shows it to members of pg_read_all_stats."""
    return "" if age_s is None else f" (open for {age_s} s)"


@contextmanager
def locks_awaited(
    conn: psycopg.Connection[Row], what: str, tables: Sequence[TableName], modes: Sequence[str] = AGAINST_READING
) -> Iterator[None]:
    """Wait for locks no longer than the lock time-out; `what` says what cannot be done then.

    Raises SourceUnready, naming who blocks.
    """
    conn.execute(f"set lock_timeout = '{int(LOCK_TIMEOUT_S * 1000)}ms'".encode())
    try:
        yield
    except psycopg.errors.LockNotAvailable as exc:
        conn.rollback()
        who = name_blockers(conn, tables, modes) or "a session that has ended"
        raise SourceUnready(
            f"{what} in {LOCK_TIMEOUT_S:g} s because of {who}",
            "Wait for that session or end it, then run the same command again.",
        ) from exc
    finally:
        conn.execute("set lock_timeout = 0")
