"""Two moments compared, net: per key what was added, removed or modified, and in which columns. Tables with a key.

Set and set back nets to nothing. A key change is a row removed and one added. The comparison is by column, over all
keys at once; rows become Python values only as they are given out.

Columns are those that the table had at each moment: `before` shows the ones of A, `after` those of B, and a row is
modified where a column that both moments have differs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.changes import Values
from auditlake.audit.reading import Reader, Span
from auditlake.audit.sides import Sides, column_or_null, differs, read_sides
from auditlake.audit.tail import LSN, Tail
from auditlake.audit.versions import value_column
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.relation import Column

ADDED, REMOVED, MODIFIED = "added", "removed", "modified"


@dataclass(frozen=True, slots=True)
class Entry:
    """One key that is not as it was; `before` and `after` are whole rows, `changed` the columns that differ."""

    kind: str
    key: Values
    before: Values | None
    after: Values | None
    changed: tuple[str, ...]
    lsn_before: int | None
    lsn_after: int | None

    def turned(self) -> "Entry":
        """The same, from the second moment to the first."""
        kind = {ADDED: REMOVED, REMOVED: ADDED}.get(self.kind, self.kind)
        return Entry(kind, self.key, self.after, self.before, self.changed, self.lsn_after, self.lsn_before)


@dataclass(frozen=True, slots=True)
class Stat:
    """How much differs; rows are of the whole table, cells of rows that both moments have."""

    rows_before: int
    rows_after: int
    added: int
    removed: int
    modified: int
    cells_modified: int

    @property
    def unmodified(self) -> int:
        return self.rows_after - self.added - self.modified


class Diff:
    """One table at two moments, A before B."""

    def __init__(self, reader: Reader, table: HistoryTable, span: Span) -> None:
        self._reader = reader
        self.table = table
        self._span = span
        self.columns_before = reader.columns_at(table, span.after)
        self.columns_after = reader.columns_at(table, span.upto)
        self._key = [value_column(column.name) for column in table.key]

    @cached_property
    def _sides(self) -> Sides:
        return read_sides(self._reader, self.table, self._span)

    @cached_property
    def _pairs(self) -> pa.Table:
        """Which row before belongs to which row after: their numbers, NULL where there is none."""
        sides = self._sides
        before = sides.before.select(self._key).append_column("i", pa.array(np.arange(sides.before.num_rows)))
        after = sides.after.select(self._key).append_column("j", pa.array(np.arange(sides.after.num_rows)))
        return before.join(after, keys=self._key, join_type="full outer").select(["i", "j"]).combine_chunks()

    @cached_property
    def common(self) -> list[str]:
        """The columns, key aside, that the table had at both moments."""
        later = {column.name for column in self.columns_after}
        return [c.name for c in self.columns_before if c.name in later and value_column(c.name) not in self._key]

    @cached_property
    def _both(self) -> pa.Table:
        """The pairs that have both rows, with a boolean for each common column: whether it differs."""
        pairs = self._pairs.filter(pc.and_(pc.is_valid(self._pairs["i"]), pc.is_valid(self._pairs["j"])))
        for name in self.common:
            before = column_or_null(self._sides.before, name).take(pairs["i"])
            after = column_or_null(self._sides.after, name).take(pairs["j"])
            pairs = pairs.append_column(value_column(name), differs(before, after))
        return pairs

    @cached_property
    def _modified(self) -> pa.Table:
        flags = [self._both[value_column(name)] for name in self.common]
        if not flags:
            return self._both.slice(0, 0)
        some = flags[0]
        for flag in flags[1:]:
            some = pc.or_(some, flag)
        return self._both.filter(some)

    @cached_property
    def _removed(self) -> pa.Array:
        return self._pairs.filter(pc.is_null(self._pairs["j"]))["i"]

    @cached_property
    def _added(self) -> pa.Array:
        return self._pairs.filter(pc.is_null(self._pairs["i"]))["j"]

    def stat(self) -> Stat:
        """Count what differs."""
        modified = self._modified
        cells = sum(pc.sum(modified[value_column(name)]).as_py() or 0 for name in self.common)
        rows_before, rows_after = (
            count_rows(self._reader, self.table, lsn) for lsn in (self._span.after, self._span.upto)
        )
        return Stat(rows_before, rows_after, len(self._added), len(self._removed), modified.num_rows, cells)

    def entries(self, kind: str) -> Iterator[Entry]:
        """Give the rows that were added, removed or modified, in the order of their keys."""
        if kind == MODIFIED:
            yield from self._modified_entries()
            return
        side, rows = (self._sides.after, self._added) if kind == ADDED else (self._sides.before, self._removed)
        columns = self.columns_after if kind == ADDED else self.columns_before
        for row in _in_order(side.take(rows), self._key).to_pylist():
            values = _row(row, columns)
            if kind == ADDED:
                yield Entry(kind, self._key_of(values), None, values, tuple(values), None, row[LSN])
            else:
                yield Entry(kind, self._key_of(values), values, None, tuple(values), row[LSN], None)

    def _modified_entries(self) -> Iterator[Entry]:
        before = self._sides.before.take(self._modified["i"])
        after = self._sides.after.take(self._modified["j"])
        order = _order(before, self._key)
        flags = self._modified.select([value_column(name) for name in self.common])
        rows = (table.take(order).to_pylist() for table in (before, after, flags))
        for was, now, flag in zip(*rows, strict=True):
            one, other = _row(was, self.columns_before), _row(now, self.columns_after)
            changed = tuple(name for name in self.common if flag[value_column(name)])
            yield Entry(MODIFIED, self._key_of(other), one, other, changed, was[LSN], now[LSN])

    def _key_of(self, values: Values) -> Values:
        return {column.name: values[column.name] for column in self.table.key}


def _row(row: dict[str, str | None], columns: tuple[Column, ...]) -> Values:
    return {column.name: row.get(value_column(column.name)) for column in columns}


def _order(rows: pa.Table, key: list[str]) -> pa.Array:
    return pc.sort_indices(rows.select(key), sort_keys=[(name, "ascending") for name in key])


def _in_order(rows: pa.Table, key: list[str]) -> pa.Table:
    return rows.take(_order(rows, key))


def count_rows(reader: Reader, table: HistoryTable, lsn: int) -> int:
    """How many rows a table had at an LSN."""
    merged = min(lsn, table.position)
    condition = f"_from_lsn <= {merged:d} and (_to_lsn is null or _to_lsn > {merged:d})"
    sql = f"select count(*) as n from history where {condition}"
    count: int = reader.query(sql, history=reader.history(table))["n"][0].as_py()
    if lsn <= table.position:
        return count
    tail = Tail(reader, table, Lsn(lsn))
    return count - tail.base.num_rows + tail.state(lsn).num_rows if tail.rows.num_rows else count
