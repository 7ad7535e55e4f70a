"""Rows of an append-only table of the lake by commit LSN, while its writer continues to append. No JVM.

`LogTail` has the data files of one version of the Delta table and follows its log: `refresh` reads the entries that
were written since. If there is none, it costs one attempt to open a file. Files and row groups that cannot contain an
LSN are skipped by their statistics. Reads return rows in any order: compaction joins files that are not neighbours.

The writer deletes log entries after an hour, and files that it replaced after six. A reader that was paused for longer
finds an entry or a file missing, and then lists the files of the newest version again.

Authority: Delta's PROTOCOL.md, "Delta Log Entries", "Per-file Statistics"
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.delta.log_reader import Add, entry, file_path, statistics
from auditlake.delta.row_groups import read_footer
from auditlake.delta.sql import read_newest
from auditlake.lake.expiries import expired_upto
from auditlake.lake.layout import EXPIRED_APP
from auditlake.lsn import Lsn
from auditlake.store.files import parquet
from auditlake.store.place import Place

_LISTED_AGAIN_S = 30.0
_ANY = (0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Group:
    """A row group of a file, with the least and greatest LSN in it."""

    file: Place
    number: int
    rows: int
    held_bytes: int
    first: int
    last: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Read the row group; raises FileNotFoundError if the writer has replaced the file and deleted it."""
        with pq.ParquetFile(parquet(self.file), pre_buffer=False) as file:
            return file.read_row_group(self.number, columns=list(columns), use_threads=False)


def _read_groups(file: Place) -> tuple[Group, ...]:
    footer = pq.read_metadata(parquet(file))
    place = next(place for place in range(footer.num_columns) if footer.schema.column(place).path == "lsn")
    return tuple(_group(file, number, footer.row_group(number), place) for number in range(footer.num_row_groups))


def _group(file: Place, number: int, group: pq.RowGroupMetaData, place: int) -> Group:
    statistics = group.column(place).statistics
    first, last = (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else _ANY
    return Group(file, number, group.num_rows, group.total_byte_size, first, last)


class LogTail:
    """Data files of a table with a column `lsn`, as of the newest version that `refresh` has seen."""

    def __init__(self, table: Place, app: str) -> None:
        """Open the table; its position is the version of the application transaction `app`."""
        self._table = table
        self._app = app
        self._version = -1
        self._files: dict[str, tuple[Place, int, int]] = {}
        self.position = 0
        """The position in the version that was seen last; 0 if there is none."""
        self.expired = Lsn(0)
        """The LSN up to which rows have expired by then."""
        self._listed_at = time.monotonic()
        self.list_again()

    def list_again(self) -> None:
        """List the files of the newest version."""
        found = read_newest(self._table)
        if found is None:
            return
        self._version = found.version
        self._files = {str(each.add["path"]): _located(self._table, each.add, each.stats) for each in found.files}
        self.position, self.expired = found.transactions.get(self._app, 0), expired_upto(found)
        self._listed_at = time.monotonic()

    def refresh(self) -> bool:
        """Read the entries written since; return whether there were any."""
        before = self._version
        while self._read_next():
            self._listed_at = time.monotonic()
        if self._version == before and (before < 0 or time.monotonic() - self._listed_at > _LISTED_AGAIN_S):
            self._listed_at = time.monotonic()
            self.list_again()
        return self._version != before

    def _read_next(self) -> bool:
        if self._version < 0:
            return False
        try:
            actions = list(entry(self._table, self._version + 1))
        except FileNotFoundError:
            return False
        for action in actions:
            if "add" in action:
                add = action["add"]
                self._files[add["path"]] = _located(self._table, add, statistics(add))
            elif "remove" in action:
                self._files.pop(action["remove"]["path"], None)
            elif "txn" in action and action["txn"]["appId"] == self._app:
                self.position = action["txn"]["version"]
            elif "txn" in action and action["txn"]["appId"] == EXPIRED_APP:
                self.expired = Lsn(action["txn"]["version"])
        self._version += 1
        return True

    def groups(self, after: Lsn, upto: Lsn) -> list[Group]:
        """List the row groups that may have rows in `(after, upto]`, by their first LSN."""
        for _ in range(2):
            try:
                return sorted(self._overlapping(after, upto), key=lambda group: (group.first, group.last))
            except FileNotFoundError:
                self.list_again()
        return sorted(self._overlapping(after, upto), key=lambda group: (group.first, group.last))

    def _overlapping(self, after: Lsn, upto: Lsn) -> Iterator[Group]:
        for file, first, last in list(self._files.values()):
            if last > after and first <= upto:
                groups = read_footer(file, _read_groups)
                yield from (group for group in groups if group.last > after and group.first <= upto)

    def rows(self, after: Lsn, upto: Lsn, columns: Sequence[str]) -> pa.Table | None:
        """Read the rows in `(after, upto]`, in any order; None if there is none."""
        for attempt in range(2):
            try:
                found = [in_span(group.read(columns), after, upto) for group in self.groups(after, upto)]
                return pa.concat_tables(found) if any(each.num_rows for each in found) else None
            except FileNotFoundError:
                if attempt:
                    raise
                self.list_again()
        return None


def in_span(rows: pa.Table, after: Lsn, upto: Lsn) -> pa.Table:
    """Return the rows with an LSN in `(after, upto]`."""
    lsns = rows["lsn"]
    return rows.filter(pc.and_(pc.greater(lsns, after), pc.less_equal(lsns, upto)))


def _located(table: Place, add: Add, stats: Mapping[str, Any]) -> tuple[Place, int, int]:
    first, last = (stats.get(bound, {}).get("lsn") for bound in ("minValues", "maxValues"))
    bounds = _ANY if first is None or last is None else (int(first), int(last))
    return (file_path(table, add), *bounds)
