"""Snapshot session: one session that keeps tables locked and a snapshot alive while they are copied.

Order of effects:

  1. ACCESS SHARE on every table, in a REPEATABLE READ transaction that has read nothing yet. It gets no transaction
     id, so slot creation does not wait for it; LOCK takes no snapshot, so step 3 is still allowed.
  2. The caller creates the slot, which exports its snapshot. A rewrite (ALTER TYPE, TRUNCATE) between snapshot and
     copy would make the table look empty to the snapshot's readers, silently; the locks of step 1 make it wait.
     A table that cannot be locked is skipped, so that the others can be copied.
  3. This transaction imports the snapshot and exports it again. The replication connection is then free to stream,
     which would have ended its own export; workers import ours for as long as this session lives.

From step 1 on, the copy releases its locks if another session waits for ACCESS EXCLUSIVE (`lock_waits.GivingWay`).

Closing the session releases locks and snapshot; if the process dies, the session ends.

If the session ends while workers copy, its locks are gone and a rewrite may empty a table that a worker reads under a
snapshot it has already imported. So `verify` is called after a table's last range was read and before its commit: if
the same backend is then still in the same transaction, it held the locks while every range was read.

Authority: postgresql.org/docs/current/functions-admin.html, "Snapshot Synchronization"; mvcc-caveats.html
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, cast

import psycopg
from psycopg import pq, sql

from auditlake.errors import AuditlakeError, SourceAway, SourceUnreachable, SourceUnready
from auditlake.relation import TableName
from auditlake.source.connection import Row, connect, fetch, fetch_one
from auditlake.source.lock_waits import END_BLOCKERS, GaveWay, GivingWay, name_blockers

_GONE = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)
_NOT_LOCKED = (
    *_GONE,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.InsufficientPrivilege,
)

# The start time distinguishes a transaction from a later one of the same backend.
_SESSION = "select pg_catalog.pg_backend_pid(), pg_catalog.now()::text"
_LOCKED = """
select l.relation::bigint from pg_catalog.pg_locks l
 where l.pid = pg_catalog.pg_backend_pid() and l.locktype = 'relation' and l.mode = 'AccessShareLock' and l.granted
   and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
"""


class SnapshotHolder:
    """Holds ACCESS SHARE locks and, after `import_snapshot`, a snapshot that other sessions may import."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._conn = connect(source)
        self._session: Row | None = None
        self._locked: frozenset[int] = frozenset()
        self._giving_way = GivingWay(source, self.pid, self.readers_name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._giving_way.stop()
        self._conn.close()
        why = self._giving_way.reason
        if why is not None and isinstance(value, SourceUnreachable):
            message = f"no snapshot could be held: {why}"
            raise GaveWay(message, "Run the same command again.") from value

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
        if self._giving_way.reason is None or not isinstance(failure, SourceUnreachable):
            return failure
        return GaveWay(f"{failure.message}: {self._giving_way.reason}", _AGAIN)

    def lock(self, trees: Mapping[TableName, Sequence[TableName]], timeout_s: float) -> dict[TableName, SourceUnready]:
        """Lock tables, each with all partitions or not at all; return why one was not. `timeout_s` is for all."""
        deadline = time.monotonic() + timeout_s
        self._giving_way.start()
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
        except _GONE:
            return SourceUnready(f"table {name} was dropped or renamed before it could be locked", "Run it again.")
        except psycopg.errors.InsufficientPrivilege:
            return SourceUnready(f"table {name} may not be read", f"Run GRANT SELECT ON {name} TO our role.")
        return None

    def _lock_all(self, tables: Sequence[TableName], how: sql.SQL) -> None:
        """Lock all these tables or none, and keep the transaction usable if one cannot be locked."""
        if not tables:
            return
        names = sql.SQL(", ").join(sql.SQL("only {}").format(sql.Identifier(*table)) for table in tables)
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
            END_BLOCKERS,
        )

    def import_snapshot(self, snapshot_id: str) -> str:
        """Import a snapshot, and return the identifier under which this session exports it again."""
        self._conn.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot_id)))
        exported = str(fetch_one(self._conn, "select pg_catalog.pg_export_snapshot()")[0])
        self._session = fetch_one(self._conn, _SESSION)
        with self.catalog() as conn:
            self._locked = frozenset(cast("int", oid) for (oid,) in fetch(conn, _LOCKED))
        return exported

    def verify(self, name: TableName, oids: Collection[int] = ()) -> None:
        """Check that snapshot and locks on `oids` were held throughout; raises SourceUnreachable, naming the table."""
        try:
            problem = self._interruption(oids)
        except SourceUnreachable as exc:
            if self._giving_way.reason is not None:
                raise GaveWay(_lost(name, self._giving_way.reason), _AGAIN) from exc
            raise type(exc)(_lost(name, exc.message), _AGAIN) from exc
        if problem is not None:
            raise SourceAway(_lost(name, problem), _AGAIN)

    def _interruption(self, oids: Collection[int]) -> str | None:
        """Return what shows that the session lost its snapshot, or never locked one of `oids`; None if nothing does."""
        session = fetch_one(self._conn, _SESSION)
        if self._session is None or session != self._session:
            return f"expected session {self._session}, found {session}"
        missing = sorted({*oids} - self._locked)  # the same transaction has the same locks
        return f"relations {', '.join(map(str, missing))} are not locked" if missing else None

    @property
    def connection(self) -> psycopg.Connection[Row]:
        """Return the connection, which knows facts of the server; queries are those of `catalog`."""
        return self._conn

    @contextmanager
    def catalog(self) -> Iterator[psycopg.Connection[Row]]:
        """Lend the connection to read the catalog in the snapshot; locked tables cannot have changed since.

        Locks of the queries end with the block. VACUUM FULL pg_class would wait for them as long as the copy takes, and
        every session behind it, also the one that would give way.
        """
        self._conn.execute("savepoint catalog")
        yield self._conn
        self._conn.execute("rollback to savepoint catalog; release savepoint catalog")

    def time_us(self) -> int:
        """Read the server's clock, in microseconds since 1970."""
        query = "select (extract(epoch from pg_catalog.clock_timestamp()) * 1000000)::bigint"
        return cast("int", fetch_one(self._conn, query)[0])


_AGAIN = "Run the same command again: it copies the tables that are missing."


def _lost(name: TableName, why: str) -> str:
    return f"table {name} was not copied: the session that held its lock and the snapshot was lost ({why})"
