"""Answers of the audit questions: one record of each, for the commands, the Python API, the page and MCP.

A record has PostgreSQL's texts, as all JSON of the audit commands has. Python values are decoded when they are asked
for: `event.after` from `event.after_texts`, each exact or `ExactText` (`values.python_values`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, Compared
from auditlake.audit.lake_reader import Reader
from auditlake.audit.row_history import Blame, Deleted, RowEffect
from auditlake.audit.transactions import Transaction
from auditlake.audit.versions import CommitMark, Version
from auditlake.instants import to_time
from auditlake.lake.gaps import Gap
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.values.python_values import decoder

Row: TypeAlias = Mapping[str, Any]
Texts: TypeAlias = Mapping[str, str | None]
Sides: TypeAlias = dict[Literal["old", "new"], str | None]
Columns: TypeAlias = Mapping[str, Column]
"""The columns of a row by the names that its texts have."""


def changed_sides(before: Texts | None, after: Texts | None) -> Iterator[tuple[str, Sides]]:
    """Yield each column that differs with its `old` and `new` value; a side without the column has no entry."""
    for name in dict.fromkeys((*(before or {}), *(after or {}))):
        sides: Sides = {}
        if before is not None and name in before:
            sides["old"] = before[name]
        if after is not None and name in after:
            sides["new"] = after[name]
        if len(sides) == 1 or sides["old"] != sides["new"]:
            yield name, sides


def _values(columns: Columns, texts: Texts | None) -> dict[str, Any] | None:
    if texts is None:
        return None
    return {name: _value(columns[name], text) for name, text in texts.items()}


def _value(column: Column, text: str | None) -> Any:  # noqa: ANN401 - of the column's type
    return None if text is None else decoder(*column.type)(text)


def columns_shown(reader: Reader, table: HistoryTable, lsn: Lsn, begun: Lsn | None = None) -> Columns:
    """Return the columns of a row under the names that they had at an LSN; `begun` is its version's first LSN.

    The types are those of the version: a column may have got another one when it ended.
    """
    own = reader.own_names(table)
    then = reader.columns_at(table, lsn)
    typed = then if begun is None else reader.columns_at(table, begun)
    columns = {column.name: column for column in table.columns}
    columns |= {own.get(column.stored, column.stored): column for column in typed}
    return columns | {column.name: columns.get(own.get(column.stored, column.stored), column) for column in then}


class ShownColumns:
    """Columns of a row as `columns_shown` has them, found when they are first asked for, or pickled."""

    def __init__(self, find: Callable[[], Columns]) -> None:
        self._find = find

    def __getstate__(self) -> dict[str, Columns]:
        return {"columns": self.columns}

    @cached_property
    def columns(self) -> Columns:
        return self._find()

    def values(self, texts: Texts | None) -> dict[str, Any] | None:
        """Return the values of a row's texts."""
        return None if texts is None else _values(self.columns, texts)


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of a change, with its actor and reason; without `lsn`, it was before the lake begins.

    `actor` and `reason` are as the application recorded them; `db_user` is the role that the server observed.
    """

    lsn: Lsn | None = None
    time_us: int | None = None
    xid: int | None = None
    actor: str | None = None
    reason: str | None = None
    db_user: str | None = None

    @classmethod
    def of(cls, mark: CommitMark | None, by: Transaction | None) -> "Commit":
        """Return the commit of a mark; without actor for a snapshot, or if its transaction is not known."""
        who = (None, None, None) if by is None else (by.context.actor, by.context.reason, by.context.db_user)
        return cls() if mark is None else cls(mark.lsn, mark.time_us, mark.xid or None, *who)

    @property
    def time(self) -> datetime | None:
        """When PostgreSQL committed it."""
        return None if self.time_us is None else to_time(self.time_us)


@dataclass(frozen=True)
class RowEvent:
    """Effect of one transaction on a row.

    `op` is snapshot, insert, update, delete, truncate or resync. `before` and `after` are whole rows, None if the row
    did not exist; `changed` are the columns that differ. `key_before` is None unless the key changed.
    """

    op: str
    key_texts: Texts
    key_texts_before: Texts | None
    before_texts: Texts | None
    after_texts: Texts | None
    changed: tuple[str, ...]
    at: Commit = field(repr=False)
    """The commit; of a snapshot its LSN and time."""
    _columns: tuple[ShownColumns, ShownColumns] = field(repr=False, compare=False)
    """Of the row before, and of the row after."""

    @classmethod
    def of(cls, reader: Reader, table: HistoryTable, event: RowEffect, by: Transaction | None) -> "RowEvent":
        """Return the record of an event, whose rows are as they are shown at its LSN."""

        def shown(version: Version | None) -> ShownColumns:
            begun = None if version is None else version.begin.lsn
            return ShownColumns(partial(columns_shown, reader, table, event.mark.lsn, begun))

        names = [column.name for column in table.key]
        key, key_before = (
            None if k is None else dict(zip(names, k, strict=True)) for k in (event.key, event.key_before)
        )
        before, after = (None if each is None else each.values for each in (event.before, event.after))
        columns = shown(event.before), shown(event.after)
        changed, at = tuple(event.changed()), Commit.of(event.mark, by)
        return cls(event.mark.op, key or {}, key_before, before, after, changed, at, columns)

    @property
    def commit(self) -> Commit:
        """Actor, time and reason; all None for a snapshot, whose rows are older."""
        return Commit() if self.is_before_capture else self.at

    @property
    def is_before_capture(self) -> bool:
        """Whether the row was there before the lake begins."""
        return self.op == "snapshot"

    @cached_property
    def key(self) -> Row:
        """The row's key after the event; of a deletion, before it."""
        return self._columns[0 if self.after_texts is None else 1].values(self.key_texts) or {}

    @cached_property
    def key_before(self) -> Row | None:
        """The row's key before the event, if the event changed it."""
        return self._columns[0].values(self.key_texts_before)

    @cached_property
    def before(self) -> Row | None:
        """The row before the event."""
        return self._columns[0].values(self.before_texts)

    @cached_property
    def after(self) -> Row | None:
        """The row after the event."""
        return self._columns[1].values(self.after_texts)


@dataclass(frozen=True)
class BlamedColumn:
    """The commit that set the value of a column; `deleted` is the one that deleted the row by `deleted_by`, if any.

    The value may have been set, or set again, in the last `gap` that is not before it; then no commit is named. Nor is
    one if `has_expired`: the versions that would tell it are not kept.
    """

    column: str
    text: str | None
    commit: Commit
    deleted: Commit | None
    deleted_by: str | None
    gap: Gap | None
    has_expired: bool
    _column: Column = field(repr=False, compare=False)

    @classmethod
    def of(
        cls,
        found: Blame,
        gap: Gap | None,
        by: Transaction | None,
        ended: tuple[Commit, str] | None,
        columns: Columns,
    ) -> "BlamedColumn":
        """Return the record of a column; `ended` is the commit that deleted the row, and by which operation."""
        commit, (deleted, op) = Commit() if gap else Commit.of(found.mark, by), ended or (None, None)
        column = columns[found.column]
        return cls(found.column, found.value, commit, deleted, op, gap, found.has_expired and not gap, column)

    @property
    def is_before_capture(self) -> bool:
        """Whether the value was there before the lake begins, and has not been set since."""
        return self.commit.lsn is None and self.gap is None and not self.has_expired

    @cached_property
    def value(self) -> Any:  # noqa: ANN401 - of the column's type
        """The value."""
        return _value(self._column, self.text)


@dataclass(frozen=True)
class DeletedRow:
    """A deleted row: its last state, and the commit that deleted it by `op` (delete or truncate)."""

    table: str
    commit: Commit
    op: str
    key_texts: Texts
    texts: Texts
    _columns: ShownColumns = field(repr=False, compare=False)

    @classmethod
    def of(cls, reader: Reader, table: HistoryTable, found: Deleted, by: Transaction | None) -> "DeletedRow":
        """Return the record of a deleted row."""
        columns = ShownColumns(partial(columns_shown, reader, table, found.mark.lsn, found.last.begin.lsn))
        commit = Commit.of(found.mark, by)
        return cls(str(table.name_at(found.mark.lsn)), commit, found.mark.op, found.key, found.last.values, columns)

    @cached_property
    def key(self) -> Row:
        """The row's key."""
        return self._columns.values(self.key_texts) or {}

    @cached_property
    def row(self) -> Row:
        """The row."""
        return self._columns.values(self.texts) or {}


@dataclass(frozen=True)
class RowDifference:
    """A row that differs between two moments; `kind` is added, removed or modified, `changed` the columns."""

    table: str
    kind: str
    key_texts: Texts
    before_texts: Texts | None
    after_texts: Texts | None
    changed: tuple[str, ...]
    _columns: tuple[Columns, Columns, Columns] = field(repr=False, compare=False)
    """Of the key, of the row before, of the row after."""

    @cached_property
    def key(self) -> Row:
        """The row's key; empty in a table without one."""
        return _values(self._columns[0], self.key_texts) or {}

    @cached_property
    def before(self) -> Row | None:
        """The row at the first moment."""
        return _values(self._columns[1], self.before_texts)

    @cached_property
    def after(self) -> Row | None:
        """The row at the second moment."""
        return _values(self._columns[2], self.after_texts)

    @property
    def changed_before(self) -> Texts | None:
        """The texts that differ, at the first moment; None if there was no row."""
        return None if self.before_texts is None else {name: self.before_texts[name] for name in self.changed}

    @property
    def changed_after(self) -> Texts | None:
        """The texts that differ, at the second moment; None if there is no row."""
        return None if self.after_texts is None else {name: self.after_texts[name] for name in self.changed}


def differences(table: Compared, kinds: tuple[str, ...] = (REMOVED, MODIFIED, ADDED)) -> Iterator[RowDifference]:
    """Yield the rows of a table that differ, of one kind after the other, in key order."""
    keyed = table.named_columns(MODIFIED)
    for kind in kinds:
        named = table.named_columns(kind)
        for each in table.entries(kind):
            columns = (keyed[1 if each.before is None else 0], *named)
            yield RowDifference(str(table.name), kind, each.key, each.before, each.after, tuple(each.changed), columns)
