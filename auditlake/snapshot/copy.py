"""Copy ranges of tables under an exported snapshot, each into one Parquet file. Runs in a Spark task.

Contract: returns what was written, or raises and leaves at most a file that no commit mentions. Nothing here commits:
a task that Spark runs twice writes two files, and the driver puts only the returned one into the table, with all the
table's other ranges and its position, in one commit (`tables`). Memory is one Arrow batch and one row group,
whatever the range holds.

Authority: Delta's PROTOCOL.md, "Add File" and "Per-file Statistics"
"""

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.errors import AuditlakeError, LakeUnusable, SourceUnreachable, SourceUnready, Unsupported
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS
from auditlake.postgres.blockers import name_blockers
from auditlake.postgres.connection import connect
from auditlake.relation import Column, TableName
from auditlake.snapshot.arrays import arrow_type
from auditlake.snapshot.ranges import PageRange
from auditlake.snapshot.reading import Reader, ReadFailed, Throttle
from auditlake.snapshot.select import OutOfRange, Selection
from auditlake.values.types import column_type

_ROW_GROUP_ROWS = 131_072
_STATS_TYPES = (pa.types.is_integer, pa.types.is_date32)
_STATS_COLUMNS = 8
_LOCK_NOT_AVAILABLE = "55P03"
# Broken connections, and a session that was ended.
_LOST = ("08", "57P")
_AGAIN = "Run auditlake bootstrap again: it goes on from here."


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """What every row of a snapshot says of itself: its LSN and the server's time, in microseconds since 1970."""

    lsn: int
    time_us: int


@dataclass(frozen=True, slots=True)
class CopyTask:
    """One range to copy. `conninfo` may hold a password: it travels to the worker and is never printed.

    `name` is the table that holds the rows, which may be a partition of the one whose history they become; `row_filter`
    SQL for which of them, None for all. `ordinals` are what they get as `_ordinal`, one each, or None: rows that have a
    key need none. `source_bytes` is about what the range takes in the source; `bytes_per_s` the most that may be read.
    """

    conninfo: str
    snapshot_id: str
    name: TableName
    columns: tuple[Column, ...]
    pages: PageRange
    folder: Path
    mark: SnapshotMark
    row_filter: str | None = None
    ordinals: range | None = None
    source_bytes: int = 0
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file that waits for its commit; `path` is relative to the table's folder."""

    name: TableName
    path: str
    size_bytes: int
    rows: int
    stats: str


def copy_bundle(tasks: Sequence[CopyTask]) -> list[CopiedFile | AuditlakeError]:
    """Copy ranges of one snapshot through one connection; one that fails does not keep the others from being copied.

    A failure is given back as a value: Spark would wrap it, and try again what cannot succeed.
    """
    with Reader(tasks[0].conninfo, tasks[0].snapshot_id) as reader:
        return [_attempt(task, reader) for task in tasks]


def copy_range(task: CopyTask) -> CopiedFile:
    """Copy one range; values outside their typed column make it start again, guarded.

    Raises SourceUnready or SourceUnreachable, naming the table, where PostgreSQL does not give the rows, LakeUnusable
    where they cannot be written.
    """
    (done,) = copy_bundle([task])
    if isinstance(done, AuditlakeError):
        raise done
    return done


def _attempt(task: CopyTask, reader: Reader) -> CopiedFile | AuditlakeError:
    try:
        return _copied(task, reader)
    except ReadFailed as exc:
        return _refused(task, exc.sqlstate)
    except AuditlakeError as exc:
        return exc
    except OSError as exc:
        reason = os.strerror(exc.errno) if exc.errno else type(exc).__name__
        return LakeUnusable(f"table {task.name} could not be written: {reason}", f"Mend the folder. {_AGAIN}")


def _copied(task: CopyTask, reader: Reader) -> CopiedFile:
    try:
        return _copy(task, reader, Selection(task.columns))
    except OutOfRange:
        return _copy(task, reader, Selection(task.columns, guarded=True))


def _copy(task: CopyTask, reader: Reader, selection: Selection) -> CopiedFile:
    relative = f"_part={OPEN_PART}/part-{uuid.uuid4()}.snappy.parquet"
    path = task.folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = history_schema(task.columns)
    bounds: dict[str, tuple[int, int]] = {}
    rows = 0
    query = selection.sql(task.name, task.pages.condition(task.row_filter))
    throttle = Throttle(task.bytes_per_s)
    try:
        with reader.rows(query) as batches, pq.ParquetWriter(path, schema) as writer:
            for batch in batches:
                typed, raw = selection.convert(batch)
                ordinals = _ordinals(task, rows, len(batch))
                table = pa.Table.from_arrays([*typed, *_period(task.mark, ordinals, raw)], schema=schema)
                writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
                rows += len(batch)
                _widen(bounds, table)
                throttle.take(batch.nbytes)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return CopiedFile(task.name, relative, path.stat().st_size, rows, _stats(rows, bounds))


def _refused(task: CopyTask, sqlstate: str | None) -> AuditlakeError:
    what = f"table {task.name} could not be copied"
    if sqlstate is None or sqlstate.startswith(_LOST):
        return SourceUnreachable(f"{what}: the connection was lost", _AGAIN, retryable=True)
    if sqlstate == _LOCK_NOT_AVAILABLE:
        with connect(task.conninfo) as control:
            who = name_blockers(control, [task.name]) or "a session that has ended"
        return SourceUnready(f"{what}: its rows could not be read because of {who}", f"End that session. {_AGAIN}")
    return SourceUnready(
        f"{what}: SQLSTATE {sqlstate}",
        f"See the server's log for the statement that failed, or leave the table out with the setting tables. {_AGAIN}",
    )


def history_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the Arrow schema of a history table's files: the source's columns and the period's, without `_part`."""
    source = [pa.field(c.stored, arrow_type(column_type(c.type_oid, c.typmod))) for c in columns]
    return pa.schema([*source, *_PERIOD])


_TIME = pa.timestamp("us", tz="UTC")
_PERIOD_TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "timestamp": _TIME,
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
# `_part` is in the folder's name, not in the file.
_PERIOD = tuple(pa.field(name, _PERIOD_TYPES[kind]) for name, kind in PERIOD_COLUMNS if name != "_part")


def _ordinals(task: CopyTask, first_row: int, length: int) -> pa.Array:
    if task.ordinals is None:
        return pa.nulls(length, pa.int32())
    taken = task.ordinals[first_row : first_row + length]
    if len(taken) < length:
        raise Unsupported(
            f"table {task.name} has no key and too many rows to number: more than {len(task.ordinals)} in one range",
            hint="Give it a primary key, or leave it out with the setting tables.",
        )
    return pa.array(taken.start + taken.step * np.arange(length, dtype=np.int32))


def _period(mark: SnapshotMark, ordinals: pa.Array, raw: pa.Array) -> list[pa.Array]:
    length = len(raw)
    known = {
        "_from_lsn": pa.scalar(mark.lsn, pa.int64()),
        "_from_time": pa.scalar(mark.time_us, pa.int64()).cast(_TIME),
        "_op": pa.scalar("snapshot"),
    }
    columns = {name: pa.repeat(value, length) for name, value in known.items()}
    columns |= {"_ordinal": ordinals, "_raw": raw}
    return [columns.get(field.name, pa.nulls(length, field.type)) for field in _PERIOD]


def _widen(bounds: dict[str, tuple[int, int]], table: pa.Table) -> None:
    """Keep the least and greatest value of the leading whole-number and date columns: readers skip files by them."""
    for name in _stats_columns(table.schema):
        low, high = pc.min_max(table[name]).values()
        if not low.is_valid:
            continue
        least, greatest = low.as_py(), high.as_py()
        if name in bounds:
            least, greatest = min(least, bounds[name][0]), max(greatest, bounds[name][1])
        bounds[name] = (least, greatest)


def _stats_columns(schema: pa.Schema) -> list[str]:
    fitting = [field.name for field in schema if any(is_type(field.type) for is_type in _STATS_TYPES)]
    return [*fitting[:_STATS_COLUMNS], "_from_lsn"]


def _stats(rows: int, bounds: dict[str, tuple[int, int]]) -> str:
    low = {name: bound[0] for name, bound in bounds.items()}
    high = {name: bound[1] for name, bound in bounds.items()}
    return json.dumps({"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": {}}, default=str)
