"""Copy ranges of tables under an exported snapshot, each into one Parquet file. Runs in a worker.

Steps of a range:
  1. Read it through the bundle's one connection, whose transaction has imported the snapshot (`Reader`). A connection
     costs as much as a small table. After a failure it is closed, and the next range opens another.
  2. Convert each Arrow batch, and append it to the file. If a date or timestamp is outside the years 1 to 9999, delete
     the file and read the range again, guarded (`column_codec`).
  3. Return the written file, or the failure as a value.

Invariants:
  I1. Nothing is committed here. If Spark copies a range twice, it writes two files, and the driver commits only the
      returned one, with all other ranges of the table and its position (`scheduler`).
  I2. A failed range leaves at most a file that no commit mentions.
  I3. Memory is one Arrow batch and one row group, for a range of any size.
  I4. Errors carry no values of rows: of the driver's messages, which append the query and libpq's text, only the
      SQLSTATE is kept.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any, Self

import adbc_driver_manager
import adbc_driver_manager.dbapi
import adbc_driver_postgresql.dbapi
import numpy as np
import pyarrow as pa

from auditlake.errors import AuditlakeError, LakeUnusable, SourceUnreachable, SourceUnready, Unsupported
from auditlake.snapshot.column_codec import OutOfRange, Selection
from auditlake.snapshot.ctid_ranges import CopiedFile, CopyTask
from auditlake.snapshot.parquet_writer import HistoryFile
from auditlake.source.connection import connect
from auditlake.source.lock_waits import name_blockers

_BATCH_BYTES = 8 << 20
_LOCK_NOT_AVAILABLE = "55P03"
# SQLSTATE classes of broken connections and of sessions ended by an administrator.
_LOST = ("08", "57P")
_AGAIN = "Run auditlake bootstrap again: it continues from here."


def copy_bundle(tasks: Sequence[CopyTask]) -> list[CopiedFile | AuditlakeError]:
    """Copy ranges of one snapshot through one connection; a failed range does not stop the others.

    A failure is returned as a value: if it were raised, Spark would wrap it, and retry in vain.
    """
    with Reader(tasks[0].conninfo, tasks[0].snapshot_id) as reader:
        return [_attempt(task, reader) for task in tasks]


def copy_range(task: CopyTask) -> CopiedFile:
    """Copy one range.

    Raises:
        SourceUnready, SourceUnreachable: if its rows cannot be read.
        LakeUnusable: if they cannot be written.
        Unsupported: if a table without a key has too many rows.
    """
    (result,) = copy_bundle([task])
    if isinstance(result, AuditlakeError):
        raise result
    return result


def _attempt(task: CopyTask, reader: "Reader") -> CopiedFile | AuditlakeError:
    try:
        return _copied(task, reader)
    except ReadFailed as exc:
        return _refused(task, exc.sqlstate)
    except AuditlakeError as exc:
        return exc
    except OSError as exc:
        reason = os.strerror(exc.errno) if exc.errno else type(exc).__name__
        return LakeUnusable(f"table {task.name} could not be written: {reason}", f"Fix the folder. {_AGAIN}")


def _copied(task: CopyTask, reader: "Reader") -> CopiedFile:
    try:
        return _copy(task, reader, Selection(task.columns))
    except OutOfRange:
        return _copy(task, reader, Selection(task.columns, guarded=True))


def _copy(task: CopyTask, reader: "Reader", selection: Selection) -> CopiedFile:
    file = HistoryFile(task.folder, task.columns, task.mark)
    query = selection.sql(task.name, task.pages.condition(task.row_filter))
    throttle = Throttle(task.bytes_per_s)
    try:
        with reader.rows(query) as batches, closing(file):
            for batch in batches:
                typed, raw = selection.convert(batch)
                file.write(typed, _ordinals(task, file.rows, len(batch)), raw)
                throttle.take(batch.nbytes)
    except BaseException:
        file.discard()
        raise
    return file.copied(task.name)


def _refused(task: CopyTask, sqlstate: str | None) -> AuditlakeError:
    problem = f"table {task.name} could not be copied"
    if sqlstate is None or sqlstate.startswith(_LOST):
        return SourceUnreachable(f"{problem}: the connection was lost", _AGAIN, retryable=True)
    if sqlstate == _LOCK_NOT_AVAILABLE:
        with connect(task.conninfo) as control:
            blockers = name_blockers(control, [task.name]) or "a session that has ended"
        return SourceUnready(
            f"{problem}: its rows could not be read because of {blockers}", f"End that session. {_AGAIN}"
        )
    return SourceUnready(
        f"{problem}: SQLSTATE {sqlstate}",
        f"Find the failed statement in the server's log, or leave the table out with the setting tables. {_AGAIN}",
    )


def _ordinals(task: CopyTask, first_row: int, length: int) -> pa.Array:
    if task.ordinals is None:
        return pa.nulls(length, pa.int32())
    ordinals = task.ordinals[first_row : first_row + length]
    if len(ordinals) < length:
        raise Unsupported(
            f"table {task.name} has no key and too many rows to number: more than {len(task.ordinals)} in one range",
            hint="Give it a primary key, or leave it out with the setting tables.",
        )
    return pa.array(ordinals.start + ordinals.step * np.arange(length, dtype=np.int32))


class ReadFailed(Exception):
    """The query failed; `sqlstate` is None if the connection was lost."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class Reader:
    """Run queries in one transaction under one snapshot; `conninfo` may hold a password."""

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
        """Run a query and yield its batches.

        Raises ReadFailed.
        """
        try:
            conn = self._conn = self._conn or self._connect()
            with conn.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
                cursor.execute(query)
                # The public reader is pyarrow's, whose errors carry libpq's text and no SQLSTATE.
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
    """Limit the average rate since creation; None is unlimited."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._began_at = time.monotonic()
        self._taken_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Wait until another `size_bytes` are within the rate."""
        if self._bytes_per_s is None:
            return
        self._taken_bytes += size_bytes
        time.sleep(max(0.0, self._began_at + self._taken_bytes / self._bytes_per_s - time.monotonic()))
