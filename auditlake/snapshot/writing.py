"""One Parquet file of a history: the rows of a range as open versions, without `_part`, which is in the folder's name.

Writing takes as much of a processor as reading, most of it in looking for values that repeat and in bounds for groups
of rows. So each column is asked once, in the first rows, whether its values repeat at all; and bounds are kept where
somebody may skip rows by them: for keys, whole numbers and times.

Authority: Delta's PROTOCOL.md, "Add File" and "Per-file Statistics"
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.lake.arrow import PERIOD_FIELDS, TIME, history_schema
from auditlake.lake.history import OPEN_PART
from auditlake.relation import Column, TableName
from auditlake.snapshot.task import CopiedFile, SnapshotMark

_ROW_GROUP_ROWS = 131_072
_STATS_TYPES = (pa.types.is_integer, pa.types.is_date32)
_STATS_COLUMNS = 8
_BOUNDED_TYPES = (*_STATS_TYPES, pa.types.is_timestamp)
# Taken from all over the first batch: neighbours often agree where values do not repeat.
_SAMPLE_ROWS = 4096
_REPEATS_BELOW = 0.7


class HistoryFile:
    """A file that is being written, from its first rows on; without any there is no file."""

    def __init__(self, folder: Path, columns: tuple[Column, ...], mark: SnapshotMark) -> None:
        self._relative = f"_part={OPEN_PART}/part-{uuid.uuid4()}.snappy.parquet"
        self._path = folder / self._relative
        self._schema = history_schema(columns)
        self._keys = [column.stored for column in columns if column.key]
        self._period = _Period(mark)
        self._writer: pq.ParquetWriter | None = None
        self._bounds: dict[str, tuple[int, int]] = {}
        self.rows = 0

    def write(self, typed: Sequence[pa.Array], ordinals: pa.Array, raw: pa.Array) -> None:
        """Add rows: the source's columns, typed, `_ordinal` and `_raw`."""
        if not len(raw):
            return
        table = pa.Table.from_arrays([*typed, *self._period.columns(ordinals, raw)], schema=self._schema)
        self._writer = self._writer or self._open(table)
        self._writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
        self.rows += len(raw)
        self._widen(table)

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()

    def discard(self) -> None:
        """Throw away what is there of it."""
        self._path.unlink(missing_ok=True)

    def copied(self, name: TableName) -> CopiedFile:
        """Describe the finished file."""
        size_bytes = self._path.stat().st_size if self.rows else 0
        low = {name: bound[0] for name, bound in self._bounds.items()}
        high = {name: bound[1] for name, bound in self._bounds.items()}
        stats = {"numRecords": self.rows, "minValues": low, "maxValues": high, "nullCount": {}}
        return CopiedFile(name, self._relative, size_bytes, self.rows, json.dumps(stats, default=str))

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        bounded = [field.name for field in self._schema if any(is_type(field.type) for is_type in _BOUNDED_TYPES)]
        return pq.ParquetWriter(
            self._path,
            self._schema,
            use_dictionary=list(_repeating(first)),
            write_statistics=list({*bounded, *self._keys}),
        )

    def _widen(self, table: pa.Table) -> None:
        """Keep the least and greatest of the leading whole-number and date columns: readers skip files by them."""
        for name in _stats_columns(table.schema):
            low, high = pc.min_max(table[name]).values()
            if not low.is_valid:
                continue
            least, greatest = low.as_py(), high.as_py()
            if name in self._bounds:
                least, greatest = min(least, self._bounds[name][0]), max(greatest, self._bounds[name][1])
            self._bounds[name] = (least, greatest)


_OF_ROWS = ("_ordinal", "_raw")


class _Period:
    """The period's columns: all but two hold one value each, which is spread once for the longest batch."""

    def __init__(self, mark: SnapshotMark) -> None:
        self._values = {
            "_from_lsn": pa.scalar(mark.lsn, pa.int64()),
            "_from_time": pa.scalar(mark.time_us, pa.int64()).cast(TIME),
            "_op": pa.scalar("snapshot"),
        }
        self._spread: dict[str, pa.Array] = {}
        self._length = 0

    def columns(self, ordinals: pa.Array, raw: pa.Array) -> list[pa.Array]:
        """Give the columns for as many rows as `raw` has."""
        length = len(raw)
        if length > self._length:
            constant = [field for field in PERIOD_FIELDS if field.name not in _OF_ROWS]
            self._spread = {field.name: self._constant(field, length) for field in constant}
            self._length = length
        found = {name: array[:length] for name, array in self._spread.items()}
        found |= {"_ordinal": ordinals, "_raw": raw}
        return [found[field.name] for field in PERIOD_FIELDS]

    def _constant(self, field: pa.Field, length: int) -> pa.Array:
        value = self._values.get(field.name)
        return pa.nulls(length, field.type) if value is None else pa.repeat(value, length)


def _repeating(first: pa.Table) -> Iterator[str]:
    """Name the columns in which values repeat, as far as some rows of the first batch tell."""
    step = max(1, len(first) // _SAMPLE_ROWS)
    sample = first.take(pa.array(range(0, len(first), step)))
    for field in first.schema:
        if pa.types.is_nested(field.type):
            continue
        if pc.count_distinct(sample[field.name], mode="all").as_py() < _REPEATS_BELOW * len(sample):
            yield field.name


def _stats_columns(schema: pa.Schema) -> list[str]:
    fitting = [field.name for field in schema if any(is_type(field.type) for is_type in _STATS_TYPES)]
    return [*fitting[:_STATS_COLUMNS], "_from_lsn"]
