"""Lock waits: bound ours for a table's lock, name the sessions that cause it, and give way to those that wait for us.

A session that only waits for a conflicting lock (an ALTER TABLE behind a long query) blocks every later request,
because the lock queue is fair. So waiting sessions are named as well as holding ones.

A copy holds ACCESS SHARE on its tables. An ALTER TABLE of one of them would wait until the copy ends, and block all
later sessions that need this table. So `GivingWay` checks every half second which sessions wait for the copy. If one
has waited during two checks, it terminates the copy's sessions that block it; all of them, if the session that holds
the locks is among those. The copy then fails with GaveWay and is retried later, and the application continues.

Authority: postgresql.org/docs/current/explicit-locking.html; view-pg-locks.html
"""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import psycopg
from psycopg import pq

from auditlake.errors import SourceAway, SourceUnready
from auditlake.messages import FailureReports
from auditlake.relation import TableName
from auditlake.source.connection import Row, connect, fetch

# A lock of a prepared transaction has no pid, for which pg_blocking_pids returns 0, but that of its xid is another one.
_BLOCKERS = """
with locks as materialized (
  select l.pid, l.relation, l.mode, l.granted, coalesce(a.xact_start, p.prepared) as since,
         case when p.gid is null then 'pid ' || l.pid::text || coalesce(' of ' || a.usename::text, '')
              else 'prepared transaction ' || p.gid || ' of ' || p.owner::text end as who
    from pg_catalog.pg_locks l
    left join pg_catalog.pg_stat_activity a on a.pid = l.pid
    left join (pg_catalog.pg_locks x join pg_catalog.pg_prepared_xacts p on p.transaction = x.transactionid)
      on l.pid is null and x.pid is null and x.virtualtransaction = l.virtualtransaction
   where l.pid is distinct from pg_catalog.pg_backend_pid() and (a.pid is not null or p.gid is not null)
     and l.relation in (select c.oid from unnest(%s::text[], %s::text[]) named (schema, name)
                          join pg_catalog.pg_namespace n on n.nspname = named.schema
                          join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = named.name)
     and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
)
select l.who, case when l.granted then 'holds' else 'waits for' end,
       upper(regexp_replace(replace(l.mode, 'Lock', ''), '(?<=[a-z])(?=[A-Z])', ' ', 'g')),
       extract(epoch from pg_catalog.clock_timestamp() - l.since)::bigint,
       array(select b.who from locks b
              where b.relation = l.relation and coalesce(b.pid, 0) = any (blocking.pids) order by b.since)
  from locks l
 cross join lateral (
   select case when l.granted then null else pg_catalog.pg_blocking_pids(l.pid) end as pids offset 0
 ) blocking
 where l.mode = any (%s)
 order by l.granted desc, l.since
"""
# pg_blocking_pids stops all locking for a moment, so it is asked only about sessions that an ACCESS SHARE can block.
_CONFLICTING = """
with ours as materialized (
  select array_agg(a.pid) as pids from pg_catalog.pg_stat_activity a
   where a.pid = %s::int or a.application_name = %s
), waiting as materialized (
  select l.pid, l.relation, pg_catalog.pg_blocking_pids(l.pid) as blockers from pg_catalog.pg_locks l, ours
   where not l.granted and l.locktype = 'relation' and l.mode = 'AccessExclusiveLock' and l.pid <> all (ours.pids)
     and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
)
select w.pid, w.relation::pg_catalog.regclass::text,
       array(select unnest(w.blockers) intersect select unnest(ours.pids))
  from waiting w, ours
 where w.blockers && ours.pids
"""
_END = """
select pg_catalog.pg_terminate_backend(a.pid) from pg_catalog.pg_stat_activity a
 where a.pid = any (%s::int[]) or (%s and a.application_name = %s)
"""
_LOOK_S = 0.5
_LONGEST_PAUSE_S = 30.0
LOCK_TIMEOUT_S = 30.0
END_BLOCKERS = (
    "Wait for that transaction or end it (a prepared one: rollback prepared), then run the same command again."
)
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
    """Name the sessions that hold or await a lock of these modes on one of the tables; empty without any.

    One that waits is named with those that it waits for: they have a lock of another mode, and end the wait.
    """
    named = list(tables)
    rows = fetch(conn, _BLOCKERS, [each.schema for each in named], [each.table for each in named], list(modes))
    sessions = [
        f"{who}, which {has} {mode}{transaction_age(age)}{_behind(cast('list[str]', blocked_by))}"
        for who, has, mode, age, blocked_by in rows
    ]
    return ", ".join(dict.fromkeys(sessions))


def _behind(sessions: Sequence[str]) -> str:
    return f" behind {' and '.join(dict.fromkeys(sessions))}" if sessions else ""


def transaction_age(age_s: object) -> str:
    """Format a transaction's age; empty if it is hidden from roles outside pg_read_all_stats."""
    return "" if age_s is None else f" (open for {age_s} s)"


@contextmanager
def locks_awaited(
    conn: psycopg.Connection[Row], what: str, tables: Sequence[TableName], modes: Sequence[str], deadline: float
) -> Iterator[None]:
    """Limit waiting for locks in the block, up to a monotonic time; raises SourceUnready, with the sessions."""
    left_ms = max(1, int((deadline - time.monotonic()) * 1000))
    conn.execute(f"set lock_timeout = '{left_ms}ms'".encode())
    try:
        yield
    except psycopg.errors.LockNotAvailable as exc:
        conn.rollback()
        sessions = name_blockers(conn, tables, modes) or "a session that has ended"
        raise SourceUnready(f"{what} in time because of {sessions}", END_BLOCKERS) from exc
    finally:
        unlimit_waits(conn)


def unlimit_waits(conn: psycopg.Connection[Row]) -> None:
    """Let statements wait for locks again; not if a failure is raised, or an interrupt while a statement runs."""
    if conn.info.transaction_status in {pq.TransactionStatus.IDLE, pq.TransactionStatus.INTRANS}:
        conn.execute("set lock_timeout = 0")


class GaveWay(SourceAway):
    """A copy ended because another session waited for one of its locks; it may be begun again."""


class GivingWay:
    """Ends the sessions of a copy that others wait for: the one with `pid` and those named `readers_name`."""

    def __init__(self, source: str, pid: int, readers_name: str) -> None:
        self._source, self._pid, self._readers_name = source, pid, readers_name
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.reason: str | None = None
        """The session that waited and its table, once readers were terminated for it."""

    def start(self) -> None:
        """Look for waiting sessions in a thread until `stop`."""
        self._thread = threading.Thread(target=self._watch, name="giving way", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        pause_s, failures = _LOOK_S, FailureReports()
        while not self._stopped.is_set():
            try:
                with connect(self._source) as control:
                    failures.forget()
                    self._look(control)
            except Exception as exc:  # noqa: BLE001 - PostgreSQL may have ended all connections, or have none free
                if self.reason is None and not self._stopped.is_set():
                    failures.report("sessions that wait for this copy cannot be seen, trying again", exc)
            self._stopped.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _look(self, control: psycopg.Connection[Row]) -> None:
        """End, until stopped, the sessions that were in the way of another one in two looks."""
        before: dict[tuple[object, object], set[int]] = {}
        while not self._stopped.wait(_LOOK_S):
            found = fetch(control, _CONFLICTING, self._pid, self._readers_name)
            now = {(waits, table): set(cast("list[int]", blockers)) for waits, table, blockers in found}
            for waits, table in sorted(now.keys() & before.keys(), key=str):
                blockers = now[waits, table] & before[waits, table]
                self.reason = f"pid {waits} waited for a lock on {table}, and the copy gave way to it"
                fetch(control, _END, sorted(blockers), self._pid in blockers, self._readers_name)
            before = now
