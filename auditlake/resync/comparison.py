"""Compare the open versions of a history with a new snapshot of its table, in DuckDB. Reads only, and starts no JVM.

    with comparing(files, copied, columns, mark, spill) as found:
        found.ended                             the positions of open versions that end, by file
        found.closed_rows(), found.begun_rows() complete rows of the history to write, in batches

A row of the snapshot and an open version are the same if they have the same key and the exact texts of all values are
equal: the typed values, -0 apart from 0, and the texts in `_raw`. In a table without a key, and in one whose key has
changed, equal rows are numbered, the oldest version first: if the history has too many copies, the youngest ones end,
as in the fold.
  a. An open version that the snapshot does not have ends: `closed_rows`.
  b. A row that no open version has begins: `begun_rows`.
  c. An open version that contradicts another version of its key is removed: the second open one of a key, or one that
     overlaps a closed one. Only damage causes that, and the period in which it was true is unknown.

Files are read by Arrow, some 16 MB at a time, so that neither large values nor the names of columns matter to
DuckDB: it gets columns `c0`, `c1` …, and compares long values by their SHA-256. It holds up to a quarter of the
machine's memory, the rest goes to the folder `spill`. Beside that there are the positions of the versions that end and
of the rows that begin, as bitmaps, and the rows of one file to write.

DuckDB is here for its speed. If every hundredth of 2 million rows differed, a new snapshot took 16.4 times the first
copy with a join in Spark, and 2.4 times with this one (2026-11-23, bench/new_snapshot.py).
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from auditlake.delta.row_groups import gathered, read_placed
from auditlake.delta.sql import open_duckdb
from auditlake.errors import LakeUnusable
from auditlake.lake.column_identity import source_columns
from auditlake.lake.duckdb_rows import apart, raw_entry
from auditlake.lake.history import PERIOD_FIELDS, RESYNC, HistoryTable, history_schema, type_of
from auditlake.lake.history_files import Files, is_open
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.snapshot.ctid_ranges import SnapshotMark
from auditlake.store.files import local_path, parquet, read_each
from auditlake.store.place import Place
from auditlake.store.process_folder import process_folder

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

_BATCH_ROWS = 1 << 14
_FILE_BYTES = 32 << 20
"""Size in memory of the rows of a file that is written; one row may be larger."""
_LONG_BYTES = 256
_PREFIX = f"'{'-' * _LONG_BYTES}'"
"""Makes a digest longer than every value that is not replaced by one."""
_NEEDED = ("_from_lsn", "_ordinal", "_raw")

_SIDE = "create temp table {side} as select h.file, h.row, h._from_lsn as since, h._ordinal, {parts} from {source} h"
_NUMBERED = """
(select *, row_number() over (partition by {key} order by since, _ordinal, file, "row") as nth from {side})
"""
_REPEATED = "select 1 from {side} group by {key} having count(*) > 1 limit 1"
_UNIQUE = "(select *, 1 as nth from {side})"
_FOUND = """
create temp table found as
select o.file as o_file, o.row as o_row, o.since, o.nth, n.file as n_file, n.row as n_row, {keys}
from {opened} o full outer join {fresh} n on o.nth = n.nth and {same_key}
where o.row is null or n.row is null or {differ}
"""
_CLOSED = "create temp table closed as select o_file, o_row from found where o_row is not null"
# Of the closed versions of a key, the one that ended last overlaps, if any does.
_ALONE = """
create temp table closed as
with e as (select * from found where o_row is not null and nth = 1),
p as (select {keys}, max(_to_lsn) as until from past c semi join e on {c_is_e} group by {keys})
select e.o_file, e.o_row from e left join p on {p_is_e} where p.until is null or p.until <= e.since
"""
_TOTALS = """
select count(n_row), count(*) filter (where n_row is not null and o_row is null), min(since),
  (select count(*) from closed)
from found
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes of a new snapshot; the methods read while the block of `comparing` runs.

    `ended` has the positions of all open versions that end, those that are removed included, by file. `since` is the
    least `_from_lsn` of these, and `unmatched` the number of rows that begin although their key has no open version.
    """

    ended: Mapping[str, BitMap64]
    closed: int
    begun: int
    unmatched: int
    since: Lsn | None
    _sides: "_Sides"

    @property
    def removed(self) -> int:
        """Return the number of open versions that contradict others."""
        return sum(len(rows) for rows in self.ended.values()) - self.closed

    def __bool__(self) -> bool:
        return bool(self.ended) or self.begun > 0

    def closed_rows(self) -> Iterator[pa.Table]:
        """Read the open versions that end, with their ends; rows of a history without `_part`."""
        return self._sides.closed_rows()

    def begun_rows(self) -> Iterator[pa.Table]:
        """Read the rows that begin, with NULL in columns that the snapshot does not have."""
        return self._sides.begun_rows()


@contextmanager
def comparing(
    files: Files, copied: Sequence[Place], columns: tuple[Column, ...], mark: SnapshotMark, spill: Place
) -> Iterator[Difference]:
    """Compare the open versions in `files`, all readable files of a history, with the copied files of a snapshot.

    `spill` is a folder; one on a store is replaced by a temporary folder of this machine.
    Raises LakeUnusable if memory and disk do not suffice, or a file cannot be read.
    """
    import duckdb  # noqa: PLC0415 - see above

    try:
        with (
            TemporaryDirectory(dir=local_path(spill) or process_folder(), prefix="compared-") as folder,
            open_duckdb(_memory_bytes(), Path(folder)) as connection,
        ):
            yield _Sides(connection, files, copied, columns, mark).compare()
    except (duckdb.IOException, duckdb.OutOfMemoryException) as exc:
        raise LakeUnusable(
            f"the history of {files.table.name} cannot be compared with its snapshot: {exc}",
            "See that memory and the disk of the lake, or of the temporary folder, suffice; then run auditlake resync.",
        ) from exc


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


class _Sides:
    """Open versions and snapshot as tables of DuckDB, with the parts by which their rows are the same."""

    def __init__(
        self,
        connection: "DuckDBPyConnection",
        files: Files,
        copied: Sequence[Place],
        columns: tuple[Column, ...],
        mark: SnapshotMark,
    ) -> None:
        rewritten = _rewritten(files.table, mark)
        self._connection, self._files, self._mark = connection, files, mark
        self._columns = (*columns, *rewritten)
        self._old, self._new = _of_files(files.which(is_open)), [_File(path, BitMap64()) for path in copied]
        table = files.table
        before = table.columns_at(table.position)  # the key by which the open versions are distinguished
        is_keyed = {c.stored for c in columns if c.key} == {c.stored for c in before if c.key}
        self._key = tuple(column for column in columns if column.key) if is_keyed else ()
        rest = [column for column in self._columns if column not in self._key]
        self._keys = _parts("k", self._columns, self._key or self._columns) or {"k0": "true"}
        self._values = _parts("v", self._columns, rest) if self._key else {}

    def compare(self) -> Difference:
        """Find what differs, as tables of the connection."""
        self._load("opened", self._old, self._keys | self._values)
        self._load("fresh", self._new, self._keys | self._values)
        run = self._connection.execute
        run(
            _FOUND.format(
                keys=", ".join(f"o.{name}" for name in self._keys),
                opened=self._numbered("opened"),
                fresh=self._numbered("fresh"),
                same_key=f"{_same(self._keys, 'o', 'n')}{self._numbered_only}",
                differ=" or ".join(["false", *(f"o.{name} is distinct from n.{name}" for name in self._values)]),
            )
        )
        run(self._closing())
        begun, unmatched, since, closed = run(_TOTALS).fetchone() or (0, 0, None, 0)
        names = [file.path.name for file in self._old]
        bitmaps = {names[file]: rows for file, rows in self._places("found", "o").items()}
        return Difference(bitmaps, closed, begun, unmatched, None if since is None else Lsn(since), self)

    @property
    def _numbered_only(self) -> str:
        """Return the condition that ends snapshot rows of a table that had a key and has none now.

        Without a key, `_from_lsn` and `_ordinal` identify a version, and such rows have no `_ordinal`.
        """
        return "" if any(column.key for column in self._columns) else " and o._ordinal is not null"

    def _numbered(self, side: str) -> str:
        """Return a table with the number of each row among those of its key; to sort is slow, and mostly not needed."""
        key = ", ".join(self._keys)
        is_unique = self._connection.execute(_REPEATED.format(side=side, key=key)).fetchone() is None
        return (_UNIQUE if is_unique else _NUMBERED).format(side=side, key=key)

    def _load(self, side: str, files: Sequence["_File"], parts: Mapping[str, str], *more: str) -> None:
        """Read files into a table with place, begin and parts of every row."""
        columns = self._columns
        fields = [
            *(field.with_name(f"c{n}") for n, field in enumerate(history_schema(columns)) if n < len(columns)),
            *(field for field in PERIOD_FIELDS if field.name in {*_NEEDED, *more}),
        ]
        schema = pa.schema(fields)
        names = {f"c{n}": column.stored for n, column in enumerate(columns)}
        placed = pa.schema([*schema, ("file", pa.int64()), ("row", pa.int64())])
        batches = (
            pa.record_batch([*rows.columns, np.full(len(places), number, np.int64), pa.array(places)], schema=placed)
            for number, file in enumerate(files)
            for rows, places in file.kept(schema, names)
        )
        self._connection.register(f"{side}_rows", pa.RecordBatchReader.from_batches(placed, batches))
        shown = ", ".join([*(f"{sql} as {name}" for name, sql in parts.items()), *(f"h.{name}" for name in more)])
        self._connection.execute(_SIDE.format(side=side, parts=shown, source=f"{side}_rows"))
        self._connection.unregister(f"{side}_rows")

    def _closing(self) -> str:
        past = self._files.which(lambda file: not is_open(file))
        if not self._key:
            return _CLOSED
        if not past.by_name:
            return f"{_CLOSED} and nth = 1"
        self._load("past", _of_files(past), self._keys, "_to_lsn")
        keys, c_is_e, p_is_e = ", ".join(self._keys), _same(self._keys, "c", "e"), _same(self._keys, "p", "e")
        return _ALONE.format(keys=keys, c_is_e=c_is_e, p_is_e=p_is_e)

    def _places(self, table: str, side: str) -> dict[int, BitMap64]:
        """Return the positions of the rows of one side in a table, by number of their file."""
        found = defaultdict[int, BitMap64](BitMap64)
        places = self._connection.execute(f"select {side}_file, {side}_row from {table} where {side}_row is not null")
        for batch in places.to_arrow_reader(_BATCH_ROWS):
            files, rows = (batch.column(place).to_numpy() for place in (0, 1))
            for file in np.unique(files):
                found[int(file)].update(rows[files == file])
        return dict(found)

    def closed_rows(self) -> Iterator[pa.Table]:
        mark = self._mark
        time = pa.scalar(int(mark.time_us), pa.timestamp("us", tz="UTC"))
        ends = {"_to_lsn": pa.scalar(int(mark.lsn)), "_to_time": time, "_end_op": pa.scalar(RESYNC), "_end_xid": None}
        return self._read(self._old, self._places("closed", "o"), ends)

    def begun_rows(self) -> Iterator[pa.Table]:
        return self._read(self._new, self._places("found", "n"), {})

    def _read(
        self, files: Sequence["_File"], places: Mapping[int, BitMap64], ends: Mapping[str, pa.Scalar | None]
    ) -> Iterator[pa.Table]:
        """Read the rows at these places, with other values in some columns, as many at a time as a file gets."""
        schema = history_schema(self._files.table.columns)
        batches = (batch for number, rows in sorted(places.items()) for batch in files[number].at(rows, schema))
        return gathered((_with(batch, ends) for batch in batches), _FILE_BYTES)


@dataclass(frozen=True, slots=True)
class _File:
    """A Parquet file of a history, and the positions of its deleted rows; it may lack columns that were added since."""

    path: Place
    gone: BitMap64

    def kept(
        self, schema: pa.Schema, names: Mapping[str, str]
    ) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]:
        """Yield the rows that are not deleted, with their positions; `names` has those of renamed columns."""
        gone = np.fromiter(self.gone, np.int64, len(self.gone))
        for first, batch in self._batches(schema, names, None):
            kept = np.ones(batch.num_rows, np.bool_)
            kept[_within(gone, first, batch.num_rows)] = False
            yield batch.filter(pa.array(kept)), np.flatnonzero(kept) + first

    def at(self, rows: BitMap64, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows at these positions."""
        wanted = np.fromiter(rows, np.int64, len(rows))
        for first, batch in self._batches(schema, {}, wanted):
            yield batch.take(pa.array(_within(wanted, first, batch.num_rows)))

    def _batches(
        self, schema: pa.Schema, names: Mapping[str, str], wanted: npt.NDArray[np.int64] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches of rows with the position of their first; of row groups without a wanted one, none."""
        stored = [names.get(name, name) for name in schema.names]
        there = frozenset(pq.read_schema(parquet(self.path)).names)
        for first, batch in read_placed(
            self.path,
            [name for name in stored if name in there],
            lambda begin, count: wanted is None or len(_within(wanted, begin, count)) > 0,
        ):
            cells = [
                batch[name].cast(field.type) if name in there else pa.nulls(batch.num_rows, field.type)
                for name, field in zip(stored, schema, strict=True)
            ]
            yield first, pa.record_batch(cells, schema=schema)


def _rewritten(table: HistoryTable, mark: SnapshotMark) -> list[Column]:
    """Return the physical columns that another type of the same column replaces with this snapshot.

    The snapshot is NULL in them, so every open version with a value in one ends, also if the new column is NULL.
    """
    groups = source_columns(table.columns, table.former_oids)
    return [was for group in groups for was, now in pairwise(group) if was.until == now.since == mark.lsn]


def _of_files(files: Files) -> list[_File]:
    gone = read_each(files.table.path, files.gone, list(files.by_name))
    return [_File(path, rows) for path, rows in zip(files.paths, gone, strict=True)]


def _within(sorted_rows: npt.NDArray[np.int64], first: int, count: int) -> npt.NDArray[np.int64]:
    """Return those of the positions that are among `count` rows, relative to the first of these."""
    begin, end = np.searchsorted(sorted_rows, [first, first + count])
    return sorted_rows[begin:end] - first


def _with(rows: pa.RecordBatch, ends: Mapping[str, pa.Scalar | None]) -> pa.RecordBatch:
    count = rows.num_rows
    cells = {
        name: pa.nulls(count, rows.schema.field(name).type) if end is None else pa.repeat(end, count)
        for name, end in ends.items()
    }
    return pa.record_batch([cells.get(name, rows[name]) for name in rows.schema.names], schema=rows.schema)


def _parts(letter: str, columns: Sequence[Column], chosen: Iterable[Column]) -> dict[str, str]:
    """Return SQL for what the exact texts of the chosen columns consist of, in the rows `h`, by numbered names."""
    parts = []
    for column in chosen:
        parts.append(_distinct(column, f"h.c{columns.index(column)}"))
        if type_of(column).may_not_fit:
            parts.append(raw_entry(column))
    return {f"{letter}{number}": part for number, part in enumerate(parts)}


def _distinct(column: Column, value: str) -> str:
    """Return SQL that is equal for equal values only, and short."""
    if type_of(column).delta == "string":
        return f"if(strlen({value}) > {_LONG_BYTES}, {_PREFIX} || sha256({value}), {value})"
    if type_of(column).delta == "binary":
        return f"if(octet_length({value}) > {_LONG_BYTES}, ({_PREFIX} || sha256({value}))::blob, {value})"
    return apart(column, value)


def _same(names: Iterable[str], left: str, right: str) -> str:
    return " and ".join(f"{left}.{name} is not distinct from {right}.{name}" for name in names)
