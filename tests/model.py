"""Reference model of the fold in plain Python, written for clarity rather than speed.

A transaction is a list of operations on a table with one key. The model applies them one after the other to a dict of
key → state, and at the commit compares the dicts before and after. It shares nothing with the fold's implementation:
no windows, no effects, no chains.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

UNCHANGED = object()
"""Marker in the new values of an Update: PostgreSQL did not send this value because it did not change."""

Key = Hashable
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Insert:
    """A new row."""

    key: Key
    values: Values


@dataclass(frozen=True)
class Update:
    """New values for the row of `key` and, if `new_key` differs, a new key."""

    key: Key
    new_key: Key
    values: Values


@dataclass(frozen=True)
class Delete:
    """A deleted row."""

    key: Key


@dataclass(frozen=True)
class Truncate:
    """Deletion of all rows."""


Operation = Insert | Update | Delete | Truncate


@dataclass(frozen=True)
class Transaction:
    """Committed operations; `time` has the type that the test uses for times."""

    lsn: int
    xid: int | None
    time: Any
    operations: Sequence[Operation]


@dataclass(frozen=True)
class Version:
    """One state of one key; open while `to_lsn` is None."""

    key: Key
    values: Values
    from_lsn: int
    from_time: Any
    op: str
    xid: int | None
    ordinal: int | None
    to_lsn: int | None = None
    to_time: Any = None
    end_op: str | None = None
    end_xid: int | None = None


@dataclass
class Model:
    """A history, built transaction by transaction."""

    closed: list[Version] = field(default_factory=list)
    open: dict[Key, Version] = field(default_factory=dict)

    def commit(self, transaction: Transaction) -> None:
        """Apply one transaction."""
        rows = {key: version.values for key, version in self.open.items()}
        births: dict[Key, str] = {}
        deaths: dict[Key, str] = {}
        last: dict[Key, int] = {}
        for ordinal, operation in enumerate(transaction.operations):
            apply_operation(operation, rows, births, deaths)
            for key in _touched(operation):
                last[key] = ordinal
        for key in set(last) | set(deaths):
            if key in self.open:
                self._close(key, transaction, deaths.get(key, "update"))
            if key in rows:
                begun = (transaction.lsn, transaction.time, births.get(key, "update"), transaction.xid)
                self.open[key] = Version(key, rows[key], *begun, ordinal=last[key])

    def _close(self, key: Key, transaction: Transaction, end_op: str) -> None:
        ended = replace(
            self.open.pop(key),
            to_lsn=transaction.lsn,
            to_time=transaction.time,
            end_op=end_op,
            end_xid=transaction.xid,
        )
        self.closed.append(ended)

    def versions(self) -> set[Version]:
        """Return all versions, closed and open."""
        return {*self.closed, *self.open.values()}


def apply_operation(
    operation: Operation, rows: dict[Key, Values], births: dict[Key, str], deaths: dict[Key, str]
) -> None:
    """Apply one operation to `rows`; record the operation of each key's last birth and last death."""
    match operation:
        case Insert(key, values):
            rows[key] = values
            births[key] = "insert"
        case Update(key, new_key, values):
            before = rows[key]
            if key != new_key:
                del rows[key]
                deaths[key] = births[new_key] = "update"
            rows[new_key] = tuple(old if new is UNCHANGED else new for old, new in zip(before, values, strict=True))
        case Delete(key):
            del rows[key]
            deaths[key] = "delete"
        case Truncate():
            deaths.update(dict.fromkeys(rows, "truncate"))
            rows.clear()


@dataclass
class Bag:
    """Rows without a key, translated to the keyed model: equal rows are numbered from 1, and the last one ends first.

    An operation names a row by its values, as `key`; its translation has (row, number) as key and the row as values.
    """

    counts: Counter[Key] = field(default_factory=Counter)

    def numbered(self, operation: Operation) -> Operation:
        """Apply one operation, and return it with the numbers of the copies that it touches."""
        match operation:
            case Insert(row, _):
                return Insert(self._next(row), (row,))
            case Update(row, new_row, _) if row == new_row:
                return Update((row, self.counts[row]), (row, self.counts[row]), (row,))
            case Update(row, new_row, _):
                return Update(self._last(row), self._next(new_row), (new_row,))
            case Delete(row):
                return Delete(self._last(row))
            case Truncate():
                self.counts.clear()
                return operation

    def _next(self, row: Key) -> Key:
        self.counts[row] += 1
        return row, self.counts[row]

    def _last(self, row: Key) -> Key:
        self.counts[row] -= 1
        return row, self.counts[row] + 1


def _touched(operation: Operation) -> tuple[Key, ...]:
    match operation:
        case Update(key, new_key, _):
            return (key, new_key)
        case Truncate():
            return ()
        case _:
            return (operation.key,)
