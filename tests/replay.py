"""Replay a lake's log in plain Python: snapshot rows, then one change after the other.

Independent of Spark and of the fold: every row of `changes` is applied to a dict of rows, as texts. A change that
contradicts the state is an AssertionError, so a missing or duplicate change fails at its place.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from auditlake.audit.lake_reader import Reader
from auditlake.audit.versions import history_texts, value_column
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import TableName

Row = tuple[str | None, ...]
State = Counter[Row]


class Rows:
    """Rows of one table; those of a table without a key are a multiset."""

    def __init__(self, table: HistoryTable, rows: Iterable[Row]) -> None:
        self._name = table.name
        columns = table.columns_at(table.first_snapshot_lsn)
        self._key = [number for number, column in enumerate(columns) if column.key]
        self._rows: dict[Row, Row] = {}
        self._copies: State = Counter()
        for row in rows:
            self._put(row)

    def state(self) -> State:
        """Return the current rows, counted."""
        return Counter(self._rows.values()) if self._key else Counter(self._copies)

    def apply(self, change: Mapping[str, Any]) -> None:
        """Apply one row of `changes`."""
        match change["op"]:
            case "insert":
                self._put(tuple(change["new"]))
            case "update":
                before = self._take(tuple(change["old"] or change["new"]))
                self._put(_filled(before, change))
            case "delete":
                self._take(tuple(change["old"]))
            case "truncate":
                self._rows.clear()
                self._copies.clear()

    def _put(self, row: Row) -> None:
        if not self._key:
            self._copies[row] += 1
            return
        key = tuple(row[place] for place in self._key)
        assert key not in self._rows, f"an existing key of {self._name} is inserted"
        self._rows[key] = row

    def _take(self, row: Row) -> Row:
        if self._key:
            found = self._rows.pop(tuple(row[place] for place in self._key), None)
            assert found is not None, f"a missing key of {self._name} is removed"
            return found
        assert self._copies[row] > 0, f"a missing row of {self._name} is removed"
        self._copies[row] -= 1
        if not self._copies[row]:
            del self._copies[row]
        return row


def _filled(before: Row, change: Mapping[str, Any]) -> Row:
    unchanged = frozenset(change["unchanged"] or ())
    return tuple(before[place] if place in unchanged else value for place, value in enumerate(change["new"]))


def history_rows(lake: Lake, table: HistoryTable, condition: str, lsn: Lsn) -> list[Row]:
    """Return the rows of a history that match `condition`, as PostgreSQL's texts of the columns that exist at `lsn`."""
    texts = history_texts(Reader(lake, datetime.now(UTC)), table, condition)
    columns = [texts[value_column(column.name)].to_pylist() for column in table.columns_at(lsn)]
    return list(zip(*columns, strict=True))


def _first_snapshot(lake: Lake, table: HistoryTable) -> list[Row]:
    copied = table.first_snapshot_lsn
    return history_rows(lake, table, f"_op = 'snapshot' and _from_lsn = {copied:d}", copied)


class Replay:
    """The tables of a lake, starting with their first snapshots; `to` moves forward only."""

    def __init__(self, lake: Lake, tables: Iterable[HistoryTable], changes: Iterable[Mapping[str, Any]]) -> None:
        self._tables = {table.name: (table.horizon, Rows(table, _first_snapshot(lake, table))) for table in tables}
        self._changes = iter(changes)
        self._next = next(self._changes, None)

    def to(self, lsn: int) -> None:
        """Apply all changes up to `lsn`."""
        while self._next is not None and self._next["lsn"] <= lsn:
            change, self._next = self._next, next(self._changes, None)
            horizon, rows = self._tables.get(TableName(change["schema"], change["table"]), (None, None))
            if rows is not None and horizon is not None and change["lsn"] > horizon:
                rows.apply(change)

    def state(self, table: TableName) -> State:
        """Return the current rows of a table."""
        return self._tables[table][1].state()
