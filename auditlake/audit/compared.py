"""One table at two moments, read in the direction that was asked for: with a key or without one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from auditlake.audit.diff import ADDED, REMOVED, Diff, Entry, Stat
from auditlake.audit.multiset import MultisetDiff
from auditlake.audit.reading import Reader, Span
from auditlake.lake.history import HistoryTable
from auditlake.relation import Column, TableName

_TURNED = {ADDED: REMOVED, REMOVED: ADDED}


class Compared:
    """The difference of one table over a span; `reverse` tells it from its end to its beginning."""

    def __init__(self, reader: Reader, table: HistoryTable, span: Span, *, reverse: bool) -> None:
        self._diff = Diff(reader, table, span) if table.key else MultisetDiff(reader, table, span)
        self._reverse = reverse

    @property
    def name(self) -> TableName:
        return self._diff.table.name

    @property
    def columns_before(self) -> Sequence[Column]:
        """The columns at the moment that is told first."""
        return self._diff.columns_after if self._reverse else self._diff.columns_before

    @property
    def columns_after(self) -> Sequence[Column]:
        """The columns at the other moment."""
        return self._diff.columns_before if self._reverse else self._diff.columns_after

    def entries(self, kind: str) -> Iterator[Entry]:
        """Give the rows added, removed or modified, in the order of their keys."""
        if not self._reverse:
            yield from self._diff.entries(kind)
            return
        for entry in self._diff.entries(_TURNED.get(kind, kind)):
            yield entry.turned()

    def stat(self) -> Stat:
        """Count what differs."""
        stat = self._diff.stat()
        if not self._reverse:
            return stat
        return replace(
            stat, rows_before=stat.rows_after, rows_after=stat.rows_before, added=stat.removed, removed=stat.added
        )

    def schema_changes(self) -> list[str]:
        """Say how the columns differ, in words."""
        was = {column.name: (column.type_oid, column.typmod) for column in self.columns_before}
        now = {column.name: (column.type_oid, column.typmod) for column in self.columns_after}
        added = [f"column {name} added" for name in now if name not in was]
        removed = [f"column {name} removed" for name in was if name not in now]
        other = [
            f"column {name} of type {was[name][0]}, modifier {was[name][1]}, became {now[name][0]}, {now[name][1]}"
            for name in now
            if name in was and was[name] != now[name]
        ]
        return [*added, *removed, *other]
