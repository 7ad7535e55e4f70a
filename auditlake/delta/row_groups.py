"""Row groups of Parquet files: how much memory their rows take, and how to write files whose row groups fit into it.

The size of a file does not show it: compressible text takes a twentieth of its length there. The footer has the size of
each row group before compression, which is close to the size in memory unless a dictionary hides repeated values. So
long values are written without one; files written by Spark may have dictionaries of up to 1 MB in a column of a row
group.

A reader decodes no batch across the end of a row group, so row groups of at most `GROUP_BYTES`, or of one row, bound
what any reader holds. Files never change once they are part of a table, so a session reads each footer once.

Authority: Parquet's format, "Row group", "File metadata"
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.store.files import parquet, read_each
from auditlake.store.place import Place, session_of
from auditlake.store.session import Kept

ROW_BYTES = 200
"""Size of a row beside its values: the columns of the period, and Spark's overhead for each row."""
OFFSET_BYTES = 4
"""Size of a variable value beside its length."""
GROUP_BYTES = 16 << 20
"""Limit of the row groups that are written here; a larger row has one of its own."""
_DICTIONARY_BYTES = 256
_KEPT_BYTES, _FOOTER_BYTES = 16 << 20, 256
_KEYS = ".key_value.key"
"""Ends the path of the keys of a map (Parquet's format, "Logical Types", "Maps")."""
_Group = TypeVar("_Group")
_VARIABLE = (pa.types.is_string, pa.types.is_binary, pa.types.is_list, pa.types.is_map)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of a file, and their bytes before compression; the maps that the statistics show to have no entry."""

    rows: int
    size_bytes: int
    empty_maps: frozenset[str] = frozenset()

    @property
    def held_bytes(self) -> int:
        """Their approximate size in memory."""
        return self.size_bytes + self.rows * ROW_BYTES


class _Footers(Kept):
    """Cache of the footers of files."""

    def __init__(self) -> None:
        super().__init__(_KEPT_BYTES)


def read_footer(path: Place, read: Callable[[Place], tuple[_Group, ...]]) -> tuple[_Group, ...]:
    """Return what `read` returns of each row group of a file, whose name is used once; a session reads it once."""
    kept = session_of(path).part(_Footers)
    return kept.get((read, path), lambda: read(path), lambda groups: _FOOTER_BYTES * (1 + len(groups)))


def row_groups(path: Place) -> tuple[RowGroup, ...]:
    """Read the row groups of a file."""
    return read_footer(path, _read_groups)


def _read_groups(path: Place) -> tuple[RowGroup, ...]:
    footer = pq.read_metadata(parquet(path))
    leaves = {place: footer.schema.column(place) for place in range(footer.num_columns)}
    # The name of a column of the source may be such a path; only a leaf in a map or a list is repeated.
    keys = {place: leaf for place, leaf in leaves.items() if leaf.max_repetition_level and leaf.path.endswith(_KEYS)}
    maps = {leaf.path.removesuffix(_KEYS): place for place, leaf in keys.items()}
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    return tuple(
        RowGroup(group.num_rows, group.total_byte_size, frozenset(n for n, at in maps.items() if _is_empty(group, at)))
        for group in groups
    )


def _is_empty(group: pq.RowGroupMetaData, place: int) -> bool:
    """Return whether the statistics show that a column has no value."""
    found = group.column(place).statistics
    return found is not None and found.has_null_count and found.null_count == group.column(place).num_values


def keys_of_maps(schema: pa.Schema) -> list[str]:
    """Name the columns of Parquet that hold the keys of maps; their statistics show `RowGroup.empty_maps`."""
    return [f"{field.name}{_KEYS}" for field in schema if pa.types.is_map(field.type)]


def all_row_groups(paths: Iterable[Place]) -> list[RowGroup]:
    """Read the row groups of several files of a table."""
    files = list(paths)
    return [group for groups in read_each(files[0], row_groups, files) for group in groups] if files else []


def held_bytes(paths: Iterable[Place]) -> int:
    """Return the approximate size in memory of all rows of these files."""
    return sum(group.held_bytes for group in all_row_groups(paths))


def largest_group(paths: Iterable[Place]) -> int:
    """Return the size of the largest row group of these files: no row is larger."""
    return max((group.size_bytes for group in all_row_groups(paths)), default=0)


def read_batches(path: Place, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Read a file in order, about `GROUP_BYTES` at a time, or a row."""
    for _, batch in read_placed(path, columns):
        yield batch


def read_placed(
    path: Place, columns: list[str] | None = None, is_wanted: Callable[[int, int], bool] = lambda *_: True
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Read as `read_batches`, with the position of each batch in the file.

    `is_wanted` is asked for each row group, by the position of its first row and the number of its rows.
    """
    file, begin = pq.ParquetFile(parquet(path), pre_buffer=False, buffer_size=1 << 16), 0
    for number, group in enumerate(row_groups(path)):
        place = begin
        begin += group.rows
        if not is_wanted(place, group.rows):
            continue
        rows = max(1, group.rows * GROUP_BYTES // max(GROUP_BYTES, group.size_bytes))
        for batch in file.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False):
            yield place, batch
            place += batch.num_rows


def read_kept(path: Place, gone: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Read as `read_batches`, without the rows at the positions `gone`; a batch without any other is left out."""
    deleted = np.fromiter(gone, np.int64)
    for begin, batch in read_placed(path):
        kept = np.ones(batch.num_rows, bool)
        kept[deleted[(deleted >= begin) & (deleted < begin + batch.num_rows)] - begin] = False
        if kept.any():
            yield batch.filter(pa.array(kept))


def write_groups(writer: pq.ParquetWriter, rows: pa.Table) -> None:
    """Write rows in row groups of at most `GROUP_BYTES`, or of one row."""
    begin = 0
    for end in group_ends(rows):
        writer.write_table(rows.slice(begin, end - begin))
        begin = end


def gathered(batches: Iterable[pa.RecordBatch], limit_bytes: int = GROUP_BYTES) -> Iterator[pa.Table]:
    """Join batches that follow each other into tables of up to this size; one that is larger stays alone."""
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if held and size_bytes + batch.nbytes > limit_bytes:
            yield pa.Table.from_batches(held)
            held, size_bytes = [], 0
        held.append(batch)
        size_bytes += batch.nbytes
    if held:
        yield pa.Table.from_batches(held)


def short_texts(rows: pa.Table) -> list[str]:
    """Name the text columns whose values are short on average: a dictionary of them hides little."""
    texts = [field.name for field in rows.schema if pa.types.is_string(field.type)]
    return [name for name in texts if rows[name].nbytes <= _DICTIONARY_BYTES * max(1, rows.num_rows)]


def group_ends(rows: pa.Table) -> list[int]:
    """Cut rows so that each group has at most `GROUP_BYTES`, or one row; return where each group ends."""
    if rows.nbytes <= GROUP_BYTES:
        return [rows.num_rows]
    totals = np.cumsum(row_bytes(rows))
    ends, begin = [], 0
    while begin < rows.num_rows:
        before = int(totals[begin - 1]) if begin else 0
        begin = max(begin + 1, int(np.searchsorted(totals, before + GROUP_BYTES, side="right")))
        ends.append(begin)
    return ends


def row_bytes(rows: pa.Table | pa.RecordBatch) -> np.ndarray:
    """Return the size of each row: the length of its variable values, and an equal share of all others."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        total += np.concatenate([_lengths(chunk) for chunk in chunks] or [total])
    return total


def _lengths(chunk: pa.Array) -> np.ndarray:
    kind = chunk.type
    if not len(chunk):
        return np.zeros(0, np.int64)
    if not any(is_kind(kind) for is_kind in _VARIABLE):
        return np.full(len(chunk), chunk.nbytes // len(chunk), np.int64)
    offsets = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.diff(offsets).astype(np.int64) + OFFSET_BYTES
    inner = [chunk.values] if pa.types.is_list(kind) else [chunk.keys, chunk.items]
    total = np.full(len(chunk), OFFSET_BYTES, np.int64)
    for each in inner:
        ends = np.concatenate([[0], np.cumsum(_lengths(each))])
        total += ends[offsets[1:]] - ends[offsets[:-1]]
    return total
