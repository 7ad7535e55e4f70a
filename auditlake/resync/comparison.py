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

Memory: DuckDB holds up to a quarter of the machine's, the rest goes to the folder `spill`. Beside that there are the
positions of the versions that end, as bitmaps, and one batch of rows to write.

DuckDB is here for its speed: a new snapshot of 2 million rows of which every hundredth differed took 16.4 times the
first copy with a join in Spark and 2.2 times with this one (2026-11-23, bench/new_snapshot.py).
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from auditlake.errors import LakeUnusable
from auditlake.lake.duckdb_rows import (
    FILE,
    ROW,
    apart,
    connect,
    placed_copy,
    placed_rows,
    quoted,
    raw_entry,
    sql_type,
)
from auditlake.lake.history import PERIOD_FIELDS, HistoryTable, history_schema, type_of
from auditlake.lake.history_files import Files, is_open
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.snapshot.ctid_ranges import SnapshotMark
from auditlake.store.place import Place

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

RESYNC = "resync"
_BATCH_ROWS = 1 << 14
_BATCH_BYTES = 64 << 20
_FILE_ROWS = 250_000
_PERIOD = [field.name for field in PERIOD_FIELDS]

_FOUND = """
create temp table found as
select o.file as o_file, o.row as o_row, o.since, o.nth, n.file as n_file, n.row as n_row, {keys}
from ({opened}) o full outer join ({fresh}) n on o.nth = n.nth and {same_key}
where o.row is null or n.row is null or {differ}
"""
_SIDE = """
select {file} as file, {row} as "row", _from_lsn as since, {parts},
  row_number() over (partition by {key} order by _from_lsn, _ordinal, {file}, {row}) as nth
from {rows} h
"""
_CLOSED = "create temp table closed as select o_file, o_row from found where o_row is not null"
# Of the closed versions of a key, the one that ended last overlaps, if any does.
_ALONE = """
create temp table closed as
with e as (select * from found where o_row is not null and nth = 1),
c as (select {past} from {rows} h),
p as (select {keys}, max(_to_lsn) as until from c semi join e on {c_is_e} group by {keys})
select e.o_file, e.o_row from e left join p on {p_is_e} where p.until is null or p.until <= e.since
"""
_TOTALS = """
select count(o_row), count(n_row), count(*) filter (where n_row is not null and o_row is null), min(since),
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
        return self._sides.closed_rows() if self.closed else iter(())

    def begun_rows(self) -> Iterator[pa.Table]:
        """Read the rows that begin, with NULL in columns that the snapshot does not have."""
        return self._sides.begun_rows() if self.begun else iter(())


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
            TemporaryDirectory(dir=spill if isinstance(spill, Path) else None, prefix="compared-") as folder,
            connect(_memory_bytes(), Path(folder)) as connection,
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
    """Open versions and snapshot as queries, with the parts by which their rows are the same."""

    def __init__(
        self,
        connection: "DuckDBPyConnection",
        files: Files,
        copied: Sequence[Place],
        columns: tuple[Column, ...],
        mark: SnapshotMark,
    ) -> None:
        self._connection, self._files, self._columns, self._mark = connection, files, columns, mark
        self._opened = files.which(is_open)
        self._old = placed_rows(connection, self._opened)
        self._new = placed_copy(connection, copied, columns)
        is_keyed = {c.stored for c in columns if c.key} == {c.stored for c in _before(files.table) if c.key}
        self._key = tuple(column for column in columns if column.key) if is_keyed else ()
        self._keys = _numbered("k", _parts(self._key or columns))
        rest = [column for column in columns if column not in self._key]
        self._values = _numbered("v", _parts(rest)) if self._key else {}

    def compare(self) -> Difference:
        """Find what differs, as tables of the connection."""
        run = self._connection.execute
        run(
            _FOUND.format(
                keys=_listed(f"o.{name}" for name in self._keys),
                opened=self._side(self._old),
                fresh=self._side(self._new),
                same_key=_same(self._keys, "o", "n"),
                differ=" or ".join(["false", *(f"o.{name} is distinct from n.{name}" for name in self._values)]),
            )
        )
        run(self._closing())
        ended, begun, unmatched, since, closed = run(_TOTALS).fetchone() or (0, 0, 0, None, 0)
        bitmaps = self._bitmaps() if ended else {}
        return Difference(bitmaps, closed, begun, unmatched, None if since is None else Lsn(since), self)

    def _side(self, rows: str) -> str:
        parts = _listed(f"{sql} as {name}" for name, sql in (self._keys | self._values).items())
        return _SIDE.format(file=FILE, row=ROW, parts=parts, key=_listed(self._keys.values()), rows=rows)

    def _closing(self) -> str:
        past = self._files.which(lambda file: not is_open(file))
        if not self._key:
            return _CLOSED
        if not past.by_name:
            return f"{_CLOSED} and nth = 1"
        shown = _listed([*(f"{sql} as {name}" for name, sql in self._keys.items()), "_to_lsn"])
        return _ALONE.format(
            past=shown,
            rows=placed_rows(self._connection, past),
            keys=_listed(self._keys),
            c_is_e=_same(self._keys, "c", "e"),
            p_is_e=_same(self._keys, "p", "e"),
        )

    def _bitmaps(self) -> dict[str, BitMap64]:
        names, found = list(self._opened.by_name), defaultdict[str, BitMap64](BitMap64)
        places = self._connection.execute("select o_file, o_row from found where o_row is not null")
        for batch in places.to_arrow_reader(_BATCH_ROWS):
            files, rows = (batch.column(place).to_numpy() for place in (0, 1))
            for file in np.unique(files):
                found[names[file]].update(rows[files == file])
        return dict(found)

    def closed_rows(self) -> Iterator[pa.Table]:
        mark = self._mark
        ends = {
            "_to_lsn": f"cast({int(mark.lsn)} as bigint)",
            "_to_time": f"make_timestamp({int(mark.time_us)}) at time zone 'UTC'",
            "_end_op": f"'{RESYNC}'",
            "_end_xid": "cast(null as bigint)",
        }
        return self._read(self._old, ends, "closed", "o")

    def begun_rows(self) -> Iterator[pa.Table]:
        there = {column.stored for column in self._columns}
        past = [column for column in self._files.table.columns if column.stored not in there]
        nothing = {quoted(column): f"cast(null as {sql_type(column)})" for column in past}
        return self._read(self._new, nothing, "found", "n")

    def _read(self, rows: str, instead: Mapping[str, str], places: str, side: str) -> Iterator[pa.Table]:
        """Read the rows at these places, with other values in some columns, as many at a time as a file gets."""
        columns = self._files.table.columns
        schema = history_schema(columns)
        shown = _listed(instead.get(name, name) for name in [*map(quoted, columns), *_PERIOD])
        here = f"t.{FILE} = p.{side}_file and t.{ROW} = p.{side}_row"
        found = self._connection.execute(f"select {shown} from {rows} t semi join {places} p on {here}")
        waiting: list[pa.Table] = []
        for batch in found.to_arrow_reader(_BATCH_ROWS):
            waiting.append(pa.table(batch).rename_columns(schema.names).cast(schema))
            if sum(t.num_rows for t in waiting) >= _FILE_ROWS or sum(t.nbytes for t in waiting) >= _BATCH_BYTES:
                yield pa.concat_tables(waiting)
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting)


def _before(table: HistoryTable) -> tuple[Column, ...]:
    """Return the columns by whose key the open versions are distinguished."""
    return table.columns_at(table.position)


def _parts(columns: Sequence[Column]) -> list[str]:
    """Return SQL for what the exact texts of columns consist of, in the rows `h`."""
    parts = []
    for column in columns:
        parts.append(apart(column, f"h.{quoted(column)}"))
        if type_of(column).may_not_fit:
            parts.append(raw_entry(column))
    return parts or ["true"]


def _numbered(letter: str, parts: Sequence[str]) -> dict[str, str]:
    return {f"{letter}{number}": part for number, part in enumerate(parts)}


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def _same(names: Iterable[str], left: str, right: str) -> str:
    return " and ".join(f"{left}.{name} is not distinct from {right}.{name}" for name in names)
