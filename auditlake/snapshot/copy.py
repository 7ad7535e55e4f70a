"""Copy ranges of tables under an exported snapshot, each into one Parquet file. Runs in a worker.

Steps of a range:
  1. Read it through the bundle's one connection, whose transaction has imported the snapshot (`RangeReader`). A
     connection costs as much as a small table. After a failure it is closed, and the next range opens another.
  2. Convert and mask each Arrow batch, and append it to the file. If a date or timestamp is outside the years 1 to
     9999, delete the file and read the range again, guarded (`column_codec`).
  3. Return the written file, or the failure as a value.

Invariants:
  I1. Nothing is committed here. If Spark copies a range twice, it writes two files, and the driver commits only the
      returned one, with all other ranges of the table and its position (`scheduler`).
  I2. A failed range leaves at most a file that no commit mentions.
  I3. Memory is one Arrow batch and one row group, for a range of any size.
  I4. Errors carry no values of rows: of the driver's messages, which append the query and libpq's text, only the
      SQLSTATE is kept.

`HistoryFile` is that file: the rows of a range as open versions of a history (`_part` is only in the folder's name).
Writing takes as much CPU as reading, most of it for building dictionaries and for statistics of row groups. So a sample
of the first batch decides once per column whether it gets a dictionary, and statistics are written only for columns by
which a reader may skip rows: keys, integers, dates and times.

Authority: Delta's PROTOCOL.md, "Add File" and "Per-file Statistics"
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import adbc_driver_manager
import adbc_driver_manager.dbapi
import adbc_driver_postgresql.dbapi
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.delta.data_files import file_statistics, new_file_name, statistics_json
from auditlake.delta.row_groups import keys_of_maps
from auditlake.errors import AuditlakeError, LakeUnusable, SourceAway, SourceUnready, Unsupported
from auditlake.lake.history import OPEN_PART, PERIOD_FIELDS, TIME, history_schema
from auditlake.relation import Column, TableName
from auditlake.snapshot.column_codec import OutOfRange, SelectList, convert_texts
from auditlake.snapshot.ctid_ranges import CopiedFile, CopyTask, SnapshotMark
from auditlake.store.failures import remedy_of
from auditlake.store.files import crc32_written, ensure_folder, new_file, parquet, set_mode, size_bytes
from auditlake.store.place import Place

_BATCH_BYTES = 8 << 20
_LOCK_NOT_AVAILABLE, _INSUFFICIENT_PRIVILEGE = "55P03", "42501"
_CONNECTION_EXCEPTION = "08000"
_UNTRANSLATABLE = ("22021", "22P05")
# SQLSTATE classes of broken connections and of sessions ended by an administrator.
_LOST = ("08", "57P")
_AGAIN = "Run this again: it continues from here."
_ROW_GROUP_ROWS = 131_072
# Statistics in the log entry, of the first `_STATS_COLUMNS` columns of these types.
_STATS_TYPES = (pa.types.is_integer, pa.types.is_date32)
_STATS_COLUMNS = 8
# Statistics of row groups, in the file.
_GROUP_STATS_TYPES = (*_STATS_TYPES, pa.types.is_timestamp)
# Spread over the whole first batch: neighbours are often equal even in columns with few repetitions.
_SAMPLE_ROWS = 4096
_REPEATS_BELOW = 0.7
_MODE = 0o640


def copy_bundle(tasks: Sequence[CopyTask]) -> list[CopiedFile | AuditlakeError]:
    """Copy ranges of one snapshot through one connection; a failed range does not stop the others.

    A failure is returned as a value: if it were raised, Spark would wrap it, and retry in vain.
    """
    with RangeReader(tasks[0].conninfo, tasks[0].snapshot_id) as reader:
        return [_attempt(task, reader) for task in tasks]


def _attempt(task: CopyTask, reader: "RangeReader") -> CopiedFile | AuditlakeError:
    try:
        return _copied(task, reader)
    except ReadFailed as exc:
        return _refused(task, exc)
    except AuditlakeError as exc:
        return exc
    except OSError as exc:
        reason = os.strerror(exc.errno) if exc.errno else type(exc).__name__
        return LakeUnusable(f"table {task.name} could not be written to {task.folder}: {reason}", remedy_of(exc))


def _copied(task: CopyTask, reader: "RangeReader") -> CopiedFile:
    if task.of_stranger:
        with reader.texts(task.name, task.columns, task.row_filter) as batches:
            return _write(task, batches, partial(convert_texts, task.columns, task.masks))
    try:
        return _copy(task, reader, SelectList(task.columns, masks=task.masks))
    except OutOfRange:
        return _copy(task, reader, SelectList(task.columns, guarded=True, masks=task.masks))


def _copy(task: CopyTask, reader: "RangeReader", selection: SelectList) -> CopiedFile:
    with reader.rows(selection.sql(task.name, task.pages.condition(task.row_filter))) as batches:
        return _write(task, batches, selection.convert)


def _write(
    task: CopyTask,
    batches: Iterable[pa.RecordBatch],
    convert: Callable[[pa.RecordBatch], tuple[list[pa.Array], pa.Array]],
) -> CopiedFile:
    file = HistoryFile(task.folder, task.columns, task.mark)
    throttle = Throttle(task.bytes_per_s)
    try:
        with closing(file):
            for batch in batches:
                typed, raw = convert(batch)
                file.write(typed, _ordinals(task, file.rows, len(batch)), raw)
                throttle.take(batch.nbytes)
    except BaseException:
        file.discard()
        raise
    return file.copied(task.name)


def _refused(task: CopyTask, failed: "ReadFailed") -> AuditlakeError:
    problem = f"table {task.name} could not be copied"
    if failed.is_lost:
        return SourceAway(f"{problem}: the connection was lost", _AGAIN)
    if failed.sqlstate == _LOCK_NOT_AVAILABLE:
        from auditlake.source.connection import connect  # noqa: PLC0415 - a fifth of a worker's start, rarely needed
        from auditlake.source.lock_waits import name_blockers  # noqa: PLC0415 - the same

        with connect(task.conninfo) as control:
            blockers = name_blockers(control, [task.name]) or "a session that has ended"
        return SourceUnready(
            f"{problem}: its rows could not be read because of {blockers}", f"End that session. {_AGAIN}"
        )
    if failed.sqlstate == _INSUFFICIENT_PRIVILEGE:
        return SourceUnready(
            f"{problem}: its rows may not be read, or row security hides some",
            f"Run auditlake check: it names what the role lacks. {_AGAIN}",
        )
    if failed.sqlstate in _UNTRANSLATABLE:
        return SourceUnready(
            f"{problem}: a row has bytes that the database's encoding does not assign (SQLSTATE {failed.sqlstate})",
            f"Replace them at the source, or leave the table out with the setting tables. {_AGAIN}",
        )
    return SourceUnready(
        f"{problem}: SQLSTATE {failed.sqlstate}",
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
    """The query failed."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate

    @property
    def is_lost(self) -> bool:
        """Whether the connection broke, or an administrator ended the session."""
        return self.sqlstate.startswith(_LOST)


class RangeReader:
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
        """Run a query and yield its batches; raises ReadFailed."""
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
            raise ReadFailed(exc.sqlstate or _CONNECTION_EXCEPTION) from None
        except BaseException:
            self._close()
            raise

    @contextmanager
    def texts(
        self, name: TableName, columns: Sequence[Column], row_filter: str | None
    ) -> Iterator[Iterable[pa.RecordBatch]]:
        """Read a table without a query, as `text_copy.read_texts`, over a connection of its own; raises ReadFailed."""
        import psycopg  # noqa: PLC0415 - a fifth of a worker's start, rarely needed

        from auditlake.snapshot.text_copy import read_texts  # noqa: PLC0415 - the same

        try:
            with closing(
                read_texts(self._conninfo, self._snapshot_id, name, columns, row_filter=row_filter)
            ) as batches:
                yield batches
        except psycopg.Error as exc:
            raise ReadFailed(exc.sqlstate or _CONNECTION_EXCEPTION) from None

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


class HistoryFile:
    """A file being written; it is created with its first row, so no rows leave no file."""

    def __init__(self, folder: Place, columns: tuple[Column, ...], mark: SnapshotMark) -> None:
        self._relative = new_file_name({"_part": OPEN_PART})
        self._path = folder / self._relative
        self._schema = history_schema(columns)
        self._keys = [column.stored for column in columns if column.key]
        self._period = _Period(mark)
        self._writer: pq.ParquetWriter | None = None
        self._open_file = ExitStack()
        self._sink: Path | IO[bytes] | None = None  # until the first row
        self.rows = 0

    def write(self, typed: Sequence[pa.Array], ordinals: pa.Array, raw: pa.Array) -> None:
        """Append rows: the source's typed columns, `_ordinal` and `_raw`."""
        if not len(raw):
            return
        table = pa.Table.from_arrays([*typed, *self._period.columns(ordinals, raw)], schema=self._schema)
        self._writer = self._writer or self._open(table)
        self._writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
        self.rows += len(raw)

    def close(self) -> None:
        """Finish the file and fsync it."""
        if self._writer is not None:
            self._writer.close()
            set_mode(self._path, _MODE)  # workers of a cluster may have another umask
            self._open_file.close()

    def discard(self) -> None:
        """Delete the file, complete or not."""
        self._path.unlink(missing_ok=True)

    def copied(self, name: TableName) -> CopiedFile:
        """Describe the finished file."""
        if self._writer is None:
            return CopiedFile(name, self._relative, 0, 0, "{}")
        stats = statistics_json(file_statistics(pq.read_metadata(parquet(self._path)), _stats_columns(self._schema)))
        checksum = None if self._sink is None else crc32_written(self._path, self._sink)
        return CopiedFile(name, self._relative, size_bytes(self._path), self.rows, stats, checksum)

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        ensure_folder(self._path.parent)
        self._sink = self._open_file.enter_context(new_file(self._path))
        with_stats = [
            field.name for field in self._schema if any(is_type(field.type) for is_type in _GROUP_STATS_TYPES)
        ]
        return pq.ParquetWriter(
            self._sink,
            self._schema,
            use_dictionary=list(_repeating(first)),
            write_statistics=list({*with_stats, *self._keys, *keys_of_maps(self._schema)}),
        )


_OF_ROWS = ("_ordinal", "_raw")


class _Period:
    """The period's columns: all but two are constant, and built once, for the longest batch so far."""

    def __init__(self, mark: SnapshotMark) -> None:
        self._values = {
            "_from_lsn": pa.scalar(mark.lsn, pa.int64()),
            "_from_time": pa.scalar(mark.time_us, pa.int64()).cast(TIME),
            "_op": pa.scalar("snapshot"),
        }
        self._constants: dict[str, pa.Array] = {}
        self._length = 0

    def columns(self, ordinals: pa.Array, raw: pa.Array) -> list[pa.Array]:
        """Return the columns for the rows of `raw`."""
        length = len(raw)
        if length > self._length:
            constant = [field for field in PERIOD_FIELDS if field.name not in _OF_ROWS]
            self._constants = {field.name: self._constant(field, length) for field in constant}
            self._length = length
        columns = {name: array[:length] for name, array in self._constants.items()}
        columns |= {"_ordinal": ordinals, "_raw": raw}
        return [columns[field.name] for field in PERIOD_FIELDS]

    def _constant(self, field: pa.Field, length: int) -> pa.Array:
        value = self._values.get(field.name)
        return pa.nulls(length, field.type) if value is None else pa.repeat(value, length)


def _repeating(first: pa.Table) -> Iterator[str]:
    """Yield the columns in which values repeat, judged by a sample of the first batch."""
    step = max(1, len(first) // _SAMPLE_ROWS)
    sample = first.take(pa.array(range(0, len(first), step)))
    for field in first.schema:
        if pa.types.is_nested(field.type):
            continue
        if pc.count_distinct(sample[field.name], mode="all").as_py() < _REPEATS_BELOW * len(sample):
            yield field.name


def _stats_columns(schema: pa.Schema) -> list[str]:
    """Return the columns with statistics in the log: the leading integers and dates, by which readers skip files."""
    fitting = [field.name for field in schema if any(is_type(field.type) for is_type in _STATS_TYPES)]
    return [*dict.fromkeys([*fitting[:_STATS_COLUMNS], "_from_lsn"])]
