"""Cache of a lake's history tables for a long-running apply: a table is opened again only if it changed.

A batch of changes for one table of a thousand must not open the other 999. Every commit modifies the table's log
folder, so an unchanged modification time shows an unchanged table. Two commits may share one tick of that clock: a
folder that was modified just before it was read is read again the next time.

A table without a position is being copied, and is opened every time.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from auditlake.delta.log_reader import has_entry_after
from auditlake.lake.history import HistoryTable, open_history
from auditlake.lake.layout import Lake, source_name
from auditlake.relation import TableName

_SETTLED_NS = 1_000_000_000
"""Longer than a tick of the clock of any file system with fractions of a second."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A table, and the modification time of its log folder before it was read; None if too recent to rely on."""

    table: HistoryTable
    modified_ns: int | None


class Histories:
    """The history tables of one lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._read: dict[str, _Read] = {}

    def current(self) -> list[HistoryTable]:
        """Return every history table that has a position, in name order, as it is now."""
        histories = self._lake.histories
        if not isinstance(histories, Path):
            return self._current_remote()
        self._read = {path: read for path, name in _folders(histories) if (read := self._open(path, name))}
        return [read.table for read in self._read.values()]

    def _current_remote(self) -> list[HistoryTable]:
        """As `current`, for an object store: a table has changed if there is an entry after its version."""
        before, self._read = self._read, {}
        for name in self._lake.history_names():
            read = before.get(str(name))
            if read is None or has_entry_after(read.table.path, read.table.delta_version):
                table = open_history(self._lake, name)
                read = None if table is None else _Read(table, None)
            if read is not None:
                self._read[str(name)] = read
        return [read.table for read in self._read.values()]

    def _open(self, path: str, segments: tuple[str, str]) -> _Read | None:
        before = self._read.get(path)
        modified_ns = _modified_ns(path)
        if before is not None and before.modified_ns is not None and before.modified_ns == modified_ns:
            return before
        settled = modified_ns is not None and time.time_ns() - modified_ns > _SETTLED_NS
        table = open_history(self._lake, TableName(*map(source_name, segments)))
        return None if table is None else _Read(table, modified_ns if settled else None)


def _folders(histories: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    for schema in _names(str(histories)):
        for table in _names(f"{histories}/{schema}"):
            yield f"{histories}/{schema}/{table}", (schema, table)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - as below
    except (FileNotFoundError, NotADirectoryError):
        return []


def _modified_ns(path: str) -> int | None:
    try:
        return os.stat(f"{path}/_delta_log").st_mtime_ns  # noqa: PTH116 - a Path costs more than the call
    except FileNotFoundError:
        return None
