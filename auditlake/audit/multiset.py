"""Two moments of a table without a key: how many copies of each row were added or removed. Row by row, in Python.

Nobody can tell equal rows apart, so there is nothing that could be modified. What history has merged comes from the
versions that ended or began; the rest from the changes, which carry whole rows under REPLICA IDENTITY FULL. A truncate
among those needs every row that was there.
"""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from auditlake.audit.changes import Change, States, Values, changes_of
from auditlake.audit.diff import ADDED, REMOVED, Entry, Stat
from auditlake.audit.reading import Reader, Span
from auditlake.audit.versions import history_texts, row_values
from auditlake.lake.history import OPEN_PART, HistoryTable
from auditlake.lsn import Lsn

Row = tuple[tuple[str, str | None], ...]


class MultisetDiff:
    """One table without a key at two moments."""

    def __init__(self, reader: Reader, table: HistoryTable, span: Span) -> None:
        self._reader = reader
        self.table = table
        self._span = span
        self.columns_before = reader.columns_at(table, span.after)
        self.columns_after = reader.columns_at(table, span.upto)
        self._net = self._merged()
        self._net.update(self._tail())

    def _merged(self) -> Counter[Row]:
        span = Span(self._span.after, Lsn(min(self._span.upto, self.table.position)))
        net: Counter[Row] = Counter()
        if span.after >= span.upto:
            return net
        gone = f"{_holds(span.after)} and _to_lsn <= {span.upto:d}"
        come = f"{_holds(span.upto)} and _from_lsn > {span.after:d}"
        net.update(self._versions(come))
        net.subtract(self._versions(gone))
        return net

    def _versions(self, condition: str) -> Counter[Row]:
        return _counted(history_texts(self._reader, self.table, condition))

    def _tail(self) -> Counter[Row]:
        if self._span.upto <= self.table.position:
            return Counter()
        tail = Span(Lsn(self.table.position), self._span.upto)
        changes = list(changes_of(self._reader, self.table.name, tail))
        rows: Counter[Row] = Counter()
        if any(change.op == "truncate" for change in changes):
            rows = self._versions(f"_part = '{OPEN_PART}'")
        for change in changes:
            if change.lsn <= self._span.after:
                _apply(rows, change)
        before = rows.copy()
        for change in changes:
            if change.lsn > self._span.after:
                _apply(rows, change)
        rows.subtract(before)
        return rows

    def stat(self) -> Stat:
        """Count what differs."""
        added, removed = (sum(1 for _ in self.entries(kind)) for kind in (ADDED, REMOVED))
        before = self._count(self._span.after)
        return Stat(before, before + added - removed, added, removed, 0, 0)

    def _count(self, lsn: int) -> int:
        merged = min(lsn, self.table.position)
        sql = f"select count(*) as n from history where {_holds(merged)}"
        count: int = self._reader.query(sql, history=self._reader.history(self.table))["n"][0].as_py()
        for change in changes_of(self._reader, self.table.name, Span(Lsn(merged), Lsn(lsn))):
            count = 0 if change.op == "truncate" else count + {"insert": 1, "delete": -1}.get(change.op, 0)
        return count

    def entries(self, kind: str) -> Iterator[Entry]:
        """Give each copy that was added or removed."""
        sign = {ADDED: 1, REMOVED: -1}.get(kind, 0)
        for row, count in sorted(self._net.items(), key=lambda item: str(item[0])):
            found = dict(row)
            columns = self.columns_after if kind == ADDED else self.columns_before
            values = {column.name: found.get(column.name) for column in columns}
            whole = (None, values) if kind == ADDED else (values, None)
            for _ in range(count * sign):
                yield Entry(kind, {}, whole[0], whole[1], tuple(values), None, None)


def _holds(lsn: int) -> str:
    return f"_from_lsn <= {lsn:d} and (_to_lsn is null or _to_lsn > {lsn:d})"


def _counted(rows: pa.Table) -> Counter[Row]:
    return Counter(_row(row_values(row)) for row in rows.to_pylist())


def _row(values: Values) -> Row:
    return tuple(sorted(values.items()))


def _apply(rows: Counter[Row], change: Change) -> None:
    if change.op == "truncate":
        rows.clear()
        return
    step = States(()).apply(change)
    if step.before is not None:
        rows[_row(step.before)] -= 1
    if step.after is not None:
        rows[_row({name: step.after[name] for name in step.before or step.after})] += 1
