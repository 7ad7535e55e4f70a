"""Histories of any size, written as maintenance leaves them, without a server or a JVM.

Keys change in turns. Version `n` is of key `n % keys`, begins when the key's last one ends, and its other columns are
`n * factor(place) % 1000`. So the state after `m` changes has the versions from `m` up to `m + keys`, in any SQL.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from auditlake.capture.change_log import CaptureLog
from auditlake.delta.log_writer import moved, put_commit
from auditlake.lake.history import OPEN_PART, create_history, history_schema, open_history, write_rows
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName

BEGIN = 1_000
_STEP = 10
_FIRST_YEAR = 2007
_FILE_ROWS = 500_000


def factor(place: int) -> int:
    """Return the factor of the values of a column, by its place after the key, from 0."""
    return 7919 + 2 * place


@dataclass(frozen=True)
class Versions:
    """An open version of each key, and `closed` ones, a multiple of `keys`, as many in each month."""

    keys: int
    closed: int
    months: int

    @property
    def end(self) -> Lsn:
        """Return the LSN of the last change."""
        return self.after(self.closed)

    @staticmethod
    def after(changes: int) -> Lsn:
        """Return the LSN of a change, by their number up to it."""
        return Lsn(BEGIN + changes * _STEP)

    def write(self, lake: Lake, name: TableName, columns: tuple[Column, ...], oid: int = 1) -> None:
        """Create the history, and a log that reaches its end; all columns are bigint, and the first one is the key."""
        create_history(lake, name, columns, oid)
        path = lake.history(name)
        put_commit(path, 1, "WRITE", moved({HISTORY_APP: self.end, SNAPSHOT_APP: BEGIN, SNAPSHOT_TIME_APP: 0}))
        table = open_history(lake, name)
        assert table is not None  # noqa: S101 - it has a position now
        added = [write_rows(table, part, self._rows(numbers, columns)) for part, numbers in self._files()]
        put_commit(path, 2, "WRITE", added)
        CaptureLog(lake).start_at(Lsn(self.end + 1))

    def _files(self) -> Iterator[tuple[str, range]]:
        """Yield the partition of each file and the numbers of its versions."""
        for month in range(self.months):
            part = f"{_FIRST_YEAR + month // 12}-{month % 12 + 1:02}"
            numbers = range(self.closed * month // self.months, self.closed * (month + 1) // self.months)
            yield from ((part, each) for each in _divided(numbers))
        yield from ((OPEN_PART, each) for each in _divided(range(self.closed, self.closed + self.keys)))

    def _rows(self, numbers: range, columns: tuple[Column, ...]) -> pa.Table:
        n = np.arange(numbers.start, numbers.stop)
        begun = BEGIN + np.maximum(0, n + 1 - self.keys) * _STEP
        given = {columns[0].stored: n % self.keys, "_from_lsn": begun}
        given |= {column.stored: n * factor(place) % 1000 for place, column in enumerate(columns[1:])}
        given |= {} if numbers.start >= self.closed else {"_to_lsn": BEGIN + (n + 1) * _STEP}
        schema = history_schema(columns)
        arrays = [pa.array(given[f.name]) if f.name in given else pa.nulls(len(n), f.type) for f in schema]
        return pa.table(arrays, schema=schema)


def _divided(numbers: range) -> Iterator[range]:
    return (numbers[at : at + _FILE_ROWS] for at in range(0, len(numbers), _FILE_ROWS))
