"""Read rows under an exported snapshot, as Arrow batches. Runs in a Spark task.

A `Reader` is one connection with one transaction, for as many queries as are wanted one after the other: a connection
costs as much as a small table. After a failure it is closed, and the next query opens another.

The driver's messages append the query and libpq's text; only the SQLSTATE is kept of them, which says what happened
without a row's values.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import adbc_driver_manager
import adbc_driver_manager.dbapi
import adbc_driver_postgresql.dbapi
import pyarrow as pa

_BATCH_BYTES = 8 << 20


class ReadFailed(Exception):
    """PostgreSQL did not give the rows; `sqlstate` is None where the connection was lost."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class Reader:
    """Reads under one snapshot; `conninfo` may hold a password."""

    def __init__(self, conninfo: str, snapshot_id: str) -> None:
        self._conninfo = conninfo
        self._snapshot_id = snapshot_id
        self._conn: adbc_driver_manager.dbapi.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @contextmanager
    def rows(self, query: str) -> Iterator[Iterable[pa.RecordBatch]]:
        """Run a query and give its batches.

        Raises ReadFailed.
        """
        try:
            conn = self._conn = self._conn or self._connect()
            with conn.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
                cursor.execute(query)
                # The public reader is pyarrow's own, whose errors are libpq's text without a SQLSTATE.
                results: Any = cursor._results  # noqa: SLF001
                yield results.reader
        except adbc_driver_manager.Error as exc:
            self._close()
            raise ReadFailed(exc.sqlstate or None) from None
        except BaseException:
            self._close()
            raise

    def _connect(self) -> adbc_driver_manager.dbapi.Connection:
        conn: adbc_driver_manager.dbapi.Connection = adbc_driver_postgresql.dbapi.connect(self._conninfo)
        try:
            with conn.cursor() as cursor:
                cursor.execute("set transaction isolation level repeatable read read only")
                cursor.execute(f"set transaction snapshot '{self._snapshot_id}'")
        except BaseException:
            conn.close()
            raise
        return conn

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()


class Throttle:
    """Keeps to a rate on the average, from its making on; None is no limit."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._began_at = time.monotonic()
        self._taken_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Wait until so much may have been taken."""
        if self._bytes_per_s is None:
            return
        self._taken_bytes += size_bytes
        time.sleep(max(0.0, self._began_at + self._taken_bytes / self._bytes_per_s - time.monotonic()))
