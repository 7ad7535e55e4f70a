"""The snapshot holder: one session that keeps tables locked and a snapshot alive while they are copied.

Order, and why:
  1. ACCESS SHARE on every table, in a REPEATABLE READ transaction that has read nothing yet. It gets no transaction
     id, so slot creation does not wait for it; LOCK takes no snapshot, so step 3 is still allowed.
  2. The caller creates the slot, which exports its snapshot. A rewrite (ALTER TYPE, TRUNCATE) between snapshot and
     copy would make the table look empty to the snapshot's readers, silently; the locks of step 1 make it wait.
     A table that cannot be locked is left out, so that the others can be copied.
  3. This transaction imports the snapshot and exports it again. The replication connection is then free to stream,
     which would have ended its own export; workers import ours for as long as this session lives.
Closing the session lets everything go; if the process dies, so does the session.

Authority: postgresql.org/docs/current/functions-admin.html, "Snapshot Synchronization"; mvcc-caveats.html
"""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, cast

import psycopg
from psycopg import pq, sql

from auditlake.errors import SourceUnready
from auditlake.postgres.blockers import name_blockers
from auditlake.postgres.connection import Row, connect, fetch_one, translated_errors
from auditlake.relation import TableName

_NOT_LOCKED = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UndefinedTable,
    psycopg.errors.InsufficientPrivilege,
)


class SnapshotHolder:
    """Holds ACCESS SHARE locks and, once `import_snapshot` was called, a snapshot that others may import."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._conn = connect(source)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._conn.close()

    @property
    def pid(self) -> int:
        """The server's process for this session."""
        return self._conn.info.backend_pid

    def lock(self, trees: Mapping[TableName, Sequence[TableName]], timeout_s: float) -> dict[TableName, SourceUnready]:
        """Lock tables with their partitions against rewrites; gives why for those that could not be had.

        `timeout_s` is for all of them together. A tree of which a part cannot be had is not locked at all.
        """
        deadline = time.monotonic() + timeout_s
        self._conn.execute("begin isolation level repeatable read read only")
        try:
            self._lock_all([table for tree in trees.values() for table in tree], sql.SQL("nowait"))
        except _NOT_LOCKED:
            found = {name: self._lock_tree(name, tree, timeout_s, deadline) for name, tree in trees.items()}
            return {name: why for name, why in found.items() if why}
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
        """Lock some tables or none of them, without ending the transaction where one cannot be had."""
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
        """Adopt an exported snapshot and return the identifier under which this session exports it again."""
        with translated_errors():
            self._conn.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot_id)))
        return str(fetch_one(self._conn, "select pg_catalog.pg_export_snapshot()")[0])

    @property
    def connection(self) -> psycopg.Connection[Row]:
        """For reading the catalog as the snapshot has it; locked tables cannot have changed since."""
        return self._conn

    def time_us(self) -> int:
        """Read the server's clock, in microseconds since 1970."""
        query = "select (extract(epoch from pg_catalog.clock_timestamp()) * 1000000)::bigint"
        return cast("int", fetch_one(self._conn, query)[0])
