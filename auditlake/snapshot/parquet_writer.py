"""Write one Parquet file of a history: the rows of a range as open versions.

`_part` is not in the file but in the folder's name.

Writing takes as much CPU as reading, most of it for building dictionaries and for statistics of row groups. So a sample
of the first batch decides once per column whether it gets a dictionary, and statistics are written only for columns by
which a reader may skip rows: keys, integers, dates and times.

Authority: Delta's PROTOCOL.md, "Add File" and "Per-file Statistics"
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.delta.data_files import file_statistics, new_file_name, statistics_json
from auditlake.lake.history import OPEN_PART, PERIOD_FIELDS, TIME, history_schema
from auditlake.relation import Column, TableName
from auditlake.snapshot.ctid_ranges import CopiedFile, SnapshotMark
from auditlake.store.files import new_file, parquet, size_bytes
from auditlake.store.place import Place

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
            if isinstance(self._path, Path):
                self._path.chmod(_MODE)  # workers of a cluster may have another umask
            self._open_file.close()

    def discard(self) -> None:
        """Delete the file, complete or not."""
        self._path.unlink(missing_ok=True)

    def copied(self, name: TableName) -> CopiedFile:
        """Describe the finished file."""
        if self._writer is None:
            return CopiedFile(name, self._relative, 0, 0, "{}")
        stats = statistics_json(file_statistics(pq.read_metadata(parquet(self._path)), _stats_columns(self._schema)))
        return CopiedFile(name, self._relative, size_bytes(self._path), self.rows, stats)

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        if isinstance(self._path, Path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        sink = self._open_file.enter_context(new_file(self._path))
        with_stats = [
            field.name for field in self._schema if any(is_type(field.type) for is_type in _GROUP_STATS_TYPES)
        ]
        return pq.ParquetWriter(
            sink,
            self._schema,
            use_dictionary=list(_repeating(first)),
            write_statistics=list({*with_stats, *self._keys}),
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
