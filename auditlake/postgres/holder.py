"""The snapshot holder: one session that keeps tables locked and a snapshot alive while they are copied.

Order, and why:
  1. ACCESS SHARE on every table, in a REPEATABLE READ transaction that has read nothing yet. It gets no transaction
     id, so slot creation does not wait for it; LOCK takes no snapshot, so step 3 is still allowed.
  2. The caller creates the slot, which exports its snapshot. A rewrite (ALTER TYPE, TRUNCATE) between snapshot and
     copy would make the table look empty to the snapshot's readers, silently; the locks of step 1 make it wait.
  3. This transaction imports the snapshot and exports it again. The replication connection is then free to stream,
     which would have ended its own export; workers import ours for as long as this session lives.
Closing the session lets everything go; if the process dies, so does the session.

Authority: postgresql.org/docs/current/functions-admin.html, "Snapshot Synchronization"; mvcc-caveats.html
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Self, cast

import psycopg
from psycopg import sql

from auditlake.errors import SourceUnready
from auditlake.postgres.connection import Row, connect, fetch, fetch_one, translated_errors
from auditlake.relation import TableName

_BLOCKERS = """
select l.pid, a.usename::text, extract(epoch from pg_catalog.clock_timestamp() - a.xact_start)::bigint
  from pg_catalog.pg_locks l
  join pg_catalog.pg_stat_activity a on a.pid = l.pid
 where l.relation = pg_catalog.to_regclass(%s) and l.mode = 'AccessExclusiveLock' and l.granted
"""


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

    def lock(self, tables: Iterable[TableName], timeout_s: float) -> None:
        """Lock the tables against rewrites.

        Raises SourceUnready, naming who blocks, where one cannot be had in `timeout_s`.
        """
        self._conn.execute("begin isolation level repeatable read read only")
        self._conn.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(f"{int(timeout_s * 1000)}ms")))
        for table in tables:
            self._lock_one(table, timeout_s)

    def _lock_one(self, table: TableName, timeout_s: float) -> None:
        statement = sql.SQL("lock table only {} in access share mode").format(sql.Identifier(*table))
        try:
            with translated_errors():
                self._conn.execute(statement)
        except psycopg.errors.LockNotAvailable as exc:
            raise self._blocked(table, timeout_s) from exc
        except psycopg.errors.UndefinedTable as exc:
            raise SourceUnready(f"table {table} was dropped before it could be locked", "Run it again.") from exc

    def _blocked(self, table: TableName, timeout_s: float) -> SourceUnready:
        with connect(self._source) as control:
            rows = fetch(control, _BLOCKERS, sql.Identifier(*table).as_string())
        who = ", ".join(f"pid {pid} of {user} (open for {age} s)" for pid, user, age in rows) or "a session that ended"
        return SourceUnready(
            f"table {table} could not be locked (ACCESS SHARE) in {timeout_s:g} s: {who} holds it",
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
