"""Snapshot session: one session that keeps tables locked and a snapshot alive while they are copied.

Order of effects:

  1. ACCESS SHARE on every table, in a REPEATABLE READ transaction that has read nothing yet. It gets no transaction
     id, so slot creation does not wait for it; LOCK takes no snapshot, so step 3 is still allowed.
  2. The caller creates the slot, which exports its snapshot. A rewrite (ALTER TYPE, TRUNCATE) between snapshot and
     copy would make the table look empty to the snapshot's readers, silently; the locks of step 1 make it wait.
     A table that cannot be locked is skipped, so that the others can be copied.
  3. This transaction imports the snapshot and exports it again. The replication connection is then free to stream,
     which would have ended its own export; workers import ours for as long as this session lives.

**Giving way.** Whoever waits for ACCESS EXCLUSIVE on one of these tables, say an ALTER TABLE, would wait until the copy
ends, and everybody else who needs that table behind it. So from step 1 on a thread looks every half second for sessions
that wait for this one or its readers. It ends the readers that one has waited for in two looks or, if this session is
in the way, all of them: the copy fails with GaveWay, is begun again later, and the application goes on. Readers are
known by their application name (`readers_name`).

Closing the session releases locks and snapshot; if the process dies, the session ends.

If the session ends while workers copy, its locks are gone and a rewrite may empty a table that a worker reads under a
snapshot it has already imported. So `verify` is called after a table's last range was read and before its commit: if
the same backend is then still in the same transaction with the same locks, it was while every range was read.

Authority: postgresql.org/docs/current/functions-admin.html, "Snapshot Synchronization"; mvcc-caveats.html
"""

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, cast

import psycopg
from psycopg import pq, sql

from auditlake.errors import AuditlakeError, SourceUnreachable, SourceUnready
from auditlake.relation import TableName
from auditlake.source.connection import Row, connect, fetch, fetch_one, translated_errors
from auditlake.source.lock_waits import name_blockers

_NOT_LOCKED = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UndefinedTable,
    psycopg.errors.InsufficientPrivilege,
)

# The start time distinguishes a transaction from a later one of the same backend.
_SESSION = "select pg_catalog.pg_backend_pid(), pg_catalog.now()::text"
_LOCKED = """
select l.relation::bigint from pg_catalog.pg_locks l
 where l.pid = pg_catalog.pg_backend_pid() and l.locktype = 'relation' and l.mode = 'AccessShareLock' and l.granted
   and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
"""


_LOOK_S = 0.5
_LONGEST_PAUSE_S = 30.0
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


class GaveWay(SourceUnreachable):
    """A copy ended because another session waited for one of its locks; it may be begun again."""


class SnapshotHolder:
    """Holds ACCESS SHARE locks and, after `import_snapshot`, a snapshot that other sessions may import."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._conn = connect(source)
        self._session: Row | None = None
        self._gave_way: str | None = None
        self._closed = threading.Event()
        self._watching: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if self._watching is not None:
            self._watching.join()
        self._conn.close()
        if self._gave_way is not None and isinstance(value, (psycopg.OperationalError, SourceUnreachable)):
            raise GaveWay(
                f"no snapshot could be held: {self._gave_way}", "Run the same command again.", retryable=True
            ) from value

    @property
    def pid(self) -> int:
        """Return the pid of this session's backend."""
        return self._conn.info.backend_pid

    @property
    def readers_name(self) -> str:
        """Return the application name of the sessions that import this one's snapshot."""
        return f"auditlake copy {self.pid}"

    def explained(self, failure: AuditlakeError) -> AuditlakeError:
        """Return why a reader failed: GaveWay if it lost its connection after readers were ended, else its failure."""
        if self._gave_way is None or not isinstance(failure, SourceUnreachable):
            return failure
        return GaveWay(f"{failure.message}: {self._gave_way}", _AGAIN, retryable=True)

    def _watch(self, pid: int, name: str) -> None:
        pause_s = _LOOK_S
        while not self._closed.is_set():
            # Without a connection there is nothing to see; PostgreSQL may have ended all of ours, or have none free.
            with suppress(AuditlakeError, psycopg.Error), connect(self._source) as control:
                self._look(control, pid, name)
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _look(self, control: psycopg.Connection[Row], pid: int, name: str) -> None:
        """Look for waiting sessions until this one is closed, and end who was in the way of one in two looks."""
        before: dict[tuple[object, object], set[int]] = {}
        while not self._closed.wait(_LOOK_S):
            found = fetch(control, _CONFLICTING, pid, name)
            now = {(waits, table): set(cast("list[int]", blockers)) for waits, table, blockers in found}
            for waits, table in sorted(now.keys() & before.keys(), key=str):
                blockers = now[waits, table] & before[waits, table]
                self._gave_way = f"pid {waits} waited for a lock on {table}, and the copy gave way to it"
                fetch(control, _END, sorted(blockers), pid in blockers, name)
            before = now

    def lock(self, trees: Mapping[TableName, Sequence[TableName]], timeout_s: float) -> dict[TableName, SourceUnready]:
        """Lock tables with their partitions against rewrites; return the reason for each that could not be locked.

        `timeout_s` is for all of them together. A tree is locked completely or not at all.
        """
        deadline = time.monotonic() + timeout_s
        names = self.pid, self.readers_name
        self._watching = threading.Thread(target=self._watch, args=names, name="giving way", daemon=True)
        self._watching.start()
        self._conn.execute("begin isolation level repeatable read read only")
        try:
            self._lock_all([table for tree in trees.values() for table in tree], sql.SQL("nowait"))
        except _NOT_LOCKED:
            reasons = {name: self._lock_tree(name, tree, timeout_s, deadline) for name, tree in trees.items()}
            return {name: reason for name, reason in reasons.items() if reason}
        return {}

    def _lock_tree(
        self, name: TableName, tree: Sequence[TableName], timeout_s: float, deadline: float
    ) -> SourceUnready | None:
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        self._conn.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(f"{left_ms}ms")))
        try:
            self._lock_all(tree, sql.SQL(""))
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            return self._blocked(name, tree, timeout_s)
        except psycopg.errors.UndefinedTable:
            return SourceUnready(f"table {name} was dropped before it could be locked", "Run it again.")
        except psycopg.errors.InsufficientPrivilege:
            return SourceUnready(f"table {name} may not be read", f"Run GRANT SELECT ON {name} TO our role.")
        return None

    def _lock_all(self, tables: Sequence[TableName], how: sql.SQL) -> None:
        """Lock all these tables or none, and keep the transaction usable if one cannot be locked."""
        if not tables:
            return
        names = sql.SQL(", ").join(sql.SQL("only {}").format(sql.Identifier(*table)) for table in tables)
        with translated_errors():
            self._conn.execute("savepoint locks")
            try:
                self._conn.execute(sql.SQL("lock table {} in access share mode {}").format(names, how))
            except _NOT_LOCKED:
                self._conn.execute("rollback to savepoint locks")
                raise
            finally:
                # A snapshot cannot be imported inside a subtransaction; its locks outlive it.
                if self._conn.info.transaction_status == pq.TransactionStatus.INTRANS:
                    self._conn.execute("release savepoint locks")

    def _blocked(self, name: TableName, tree: Sequence[TableName], timeout_s: float) -> SourceUnready:
        with connect(self._source) as control:
            who = name_blockers(control, tree) or "a session that has ended"
        return SourceUnready(
            f"table {name} could not be locked (ACCESS SHARE) in {timeout_s:g} s because of {who}",
            "Wait for that session or end it, then run the same command again.",
        )

    def import_snapshot(self, snapshot_id: str) -> str:
        """Import a snapshot, and return the identifier under which this session exports it again."""
        with translated_errors():
            self._conn.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot_id)))
        exported = str(fetch_one(self._conn, "select pg_catalog.pg_export_snapshot()")[0])
        self._session = fetch_one(self._conn, _SESSION)
        return exported

    def verify(self, name: TableName, oids: Collection[int] = ()) -> None:
        """Check that this session has held its snapshot, and locks on the relations `oids`, without interruption.

        Raises SourceUnreachable, naming the table, if it has not: what was read of the table may lack rows.
        """
        try:
            session = fetch_one(self._conn, _SESSION)
            missing = self._not_locked(oids)
        except SourceUnreachable as exc:
            if self._gave_way is not None:
                raise GaveWay(_lost(name, self._gave_way), _AGAIN, retryable=True) from exc
            raise SourceUnreachable(_lost(name, exc.message), _AGAIN, retryable=exc.retryable) from exc
        if self._session is None or session != self._session:
            why = f"expected session {self._session}, found {session}"
            raise SourceUnreachable(_lost(name, why), _AGAIN, retryable=True)
        if missing:
            why = f"relations {', '.join(map(str, missing))} are no longer locked"
            raise SourceUnreachable(_lost(name, why), _AGAIN, retryable=True)

    def _not_locked(self, oids: Collection[int]) -> list[int]:
        if not oids:
            return []
        return sorted({*oids} - {cast("int", oid) for (oid,) in fetch(self._conn, _LOCKED)})

    @property
    def connection(self) -> psycopg.Connection[Row]:
        """Return the connection, to read the catalog in the snapshot; locked tables cannot have changed since."""
        return self._conn

    def time_us(self) -> int:
        """Read the server's clock, in microseconds since 1970."""
        query = "select (extract(epoch from pg_catalog.clock_timestamp()) * 1000000)::bigint"
        return cast("int", fetch_one(self._conn, query)[0])


_AGAIN = "Run the same command again: it copies the tables that are missing."


def _lost(name: TableName, why: str) -> str:
    return f"table {name} was not copied: the session that held its lock and the snapshot was lost ({why})"
