"""The history tables of a lake: each is opened once, and again when it has changed.

`Histories` opens a table again only if its *mark* has changed, so that a question about one table of ten thousand opens
one. On a disk, the mark is number and times of the log's folder, which every commit changes: one call of stat(2). In a
store, it is the ETag of the entry of the table's version. One listing shows it, and the entries since; these are read
without opening the table if they change no columns. Two commits may share one tick of a file system's clock: a folder
that was modified just before it was read has no mark, and is read again the next time. A table without a position is
being copied, and is opened every time. Apply saves the tables to `histories.json` for processes that start later. That
file is only a cache: a table whose mark differs is opened, and readers never write the file.

In a store, one request per table would make ten thousand for a question about one. So a question opens only the tables
that it names. The others may stay at an older Delta version: an older history plus a longer tail gives the same rows.
Only a new snapshot has rows that the stream does not contain. While one is due, and after it, the table has a record
(`lake.parking`), which makes a reader open the table (`temporal.moments.read_known`).

No JVM.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from auditlake.delta.log_reader import entries_since, read_actions
from auditlake.errors import LakeUnusable
from auditlake.lake.history import HistoryTable, former_of, lsn_or_none, open_history
from auditlake.lake.layout import (
    ERASED_APP,
    EXPIRED_APP,
    HISTORY_APP,
    RESYNC_APP,
    SNAPSHOT_APP,
    SNAPSHOT_TIME_APP,
    Lake,
    source_name,
)
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName
from auditlake.store.files import AtOnce, is_settled, read_file, replace_file
from auditlake.store.place import by_requests

_SAVED_AFTER = 32
"""So many tables that differ from the file cost a process a fraction of a second to open."""
_SAVED_EVERY_S = 60.0
"""In a store, where a question trusts the file."""

Asked = Callable[[HistoryTable], bool]
"""Whether a question may be about a table, given as it was known before."""


def no_table_yet(lake: Lake) -> LakeUnusable:
    """Return the error for a lake without a history."""
    return LakeUnusable(f"the lake {lake.root} holds no table yet", "Run auditlake bootstrap.")


def ALL(_: HistoryTable) -> bool:  # noqa: N802 - a constant
    """Ask for every table."""
    return True


_Mark = tuple[int, ...] | str
"""State of a table's log; equal only if the log is the same."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A table, and the mark of its log; None if too recent to rely on."""

    table: HistoryTable
    mark: _Mark | None


class Histories:
    """The history tables of one lake; a table is opened again only if its mark has changed."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._read: dict[TableName, _Read] = {}
        self._saved: dict[TableName, _Mark] = {}
        self._written: set[TableName] = set()
        self._loaded = False
        self._saved_at_s = -_SAVED_EVERY_S
        self.names: list[TableName] = []
        """The names of all history tables when they were last read, sorted; also of those without a position."""

    def current(self, asked: Asked = ALL) -> list[HistoryTable]:
        """Return every history table that has a position, in name order, as it is now.

        In a store, a known table that is not among `asked` is returned at the version last read. With its longer tail,
        it gives the same rows.
        """
        return self.read(asked)[0]

    def read(self, asked: Asked = ALL) -> tuple[list[HistoryTable], list[TableName]]:
        """Return the same, and the names of the tables without a position."""
        if not self._loaded:
            self._load()
        before = self._read
        if by_requests(self._lake.root):
            found = self._all_in_store(before, asked)
        else:
            logs = _logs_on_disk(self._lake.histories)
            found = {name: self._on_disk(name, log, before.get(name)) for name, log in logs.items()}
        names = list(found)
        # Threads of the page share this object: their results must not be mixed.
        read = {name: read for name, read in found.items() if read is not None}
        self._read, self.names = read, names
        return [each.table for each in read.values()], [name for name in names if name not in read]

    def forget(self, names: Collection[TableName]) -> None:
        """Read these tables again the next time: this process has written them."""
        if not by_requests(self._lake.root):
            for name in names:
                self._read.pop(name, None)
        else:  # reading the entries since takes fewer requests than opening the table
            self._written.update(names)

    def save(self) -> None:
        """Save the tables for other processes if enough differ; writers call it, and a failure is ignored."""
        is_due = by_requests(self._lake.root) and time.monotonic() - self._saved_at_s > _SAVED_EVERY_S
        if is_due and self._written:
            self.read(lambda _: False)
        marks = {name: read.mark for name, read in self._read.items() if read.mark is not None}
        differ = len(marks.items() ^ self._saved.items())
        if differ < _SAVED_AFTER and not (is_due and differ):
            return
        self._saved_at_s = time.monotonic()
        lines = (_line(self._read[name].table, mark) for name, mark in marks.items())
        with suppress(OSError):
            replace_file(self._lake.known_histories, "\n".join([_FORM, *lines, ""]), durable=False)
            self._saved = marks

    def _load(self) -> None:
        self._loaded = True
        try:
            form, *lines, rest = read_file(self._lake.known_histories).decode().split("\n")
            if form == _FORM and not rest:  # else it is cut off: it was not synced
                self._read = {read.table.name: read for read in (_parsed(self._lake, line) for line in lines)}
        except (OSError, ValueError, TypeError, KeyError):
            return
        self._saved = {name: read.mark for name, read in self._read.items() if read.mark is not None}

    def _on_disk(self, name: TableName, log: str, before: _Read | None) -> _Read | None:
        mark = _folder_mark(log)
        if before is not None and mark is not None and before.mark == mark:
            return before
        settled = mark is not None and is_settled(mark[0])
        table = open_history(self._lake, name)
        return None if table is None else _Read(table, mark if settled else None)

    def _all_in_store(self, before: Mapping[TableName, _Read], asked: Asked) -> dict[TableName, _Read | None]:
        """Read the tables in name order; those known before are read while the names are listed."""
        written = frozenset(self._written)
        kept = {name: read for name, read in before.items() if name not in written and not asked(read.table)}
        with AtOnce(self._lake.root) as at_once:
            listed = at_once.start(self._lake.history_names, frozenset(name.schema for name in before))
            reads = {n: at_once.start(self._in_store, n, read) for n, read in before.items() if n not in kept}
            names = listed.result()
            reads |= {n: at_once.start(self._in_store, n) for n in names if n not in before}
            found = {name: kept[name] if name in kept else reads[name].result() for name in names}
        self._written -= written
        return found

    def _in_store(self, name: TableName, before: _Read | None = None) -> _Read | None:
        if before is not None and (advanced := _advanced(before)) is not None:
            return advanced
        table = open_history(self._lake, name)
        return None if table is None else _Read(table, table.etag)


def _advanced(before: _Read) -> _Read | None:
    """Return a table in a store at its newest version, by the entries since; None if these are not enough."""
    if before.mark is None:
        return None
    table = before.table
    entries = _entries_since(table)
    if entries.pop(table.delta_version, None) != before.mark:
        return None
    if not entries:
        return before
    actions = read_actions(table.path, entries)
    if any(action.keys() & {"metaData", "protocol"} for action in actions):
        return None
    moved = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
    if moved.keys() & {EXPIRED_APP, ERASED_APP}:
        return None
    newest = max(entries)
    now = replace(
        table,
        delta_version=newest,
        position=Lsn(moved.get(HISTORY_APP, table.position)),
        horizon=Lsn(moved.get(SNAPSHOT_APP, table.horizon)),
        resynced=Lsn(moved.get(RESYNC_APP, table.resynced)),
        snapshot_us=moved.get(SNAPSHOT_TIME_APP, table.snapshot_us),
        etag=entries[newest],
    )
    return _Read(now, entries[newest])


def list_histories(lake: Lake) -> list[HistoryTable]:
    """Return every history table that has a position, in name order; those that have changed are opened."""
    return read_histories(lake)[0]


def folded_to(lake: Lake) -> Lsn:
    """Return the last LSN of a snapshot or of changes in a history; 0 without a history."""
    return Lsn(max((lsn for table in list_histories(lake) for lsn in (table.horizon, table.position)), default=0))


def read_histories(lake: Lake, asked: Asked = ALL) -> tuple[list[HistoryTable], list[TableName]]:
    """Return the same (`Histories.current`), and the names of the tables without a position."""
    return histories_of(lake).read(asked)


def histories_of(lake: Lake) -> Histories:
    """Return the histories of a lake as its session knows them."""
    return lake.session.part(Histories, lambda: Histories(lake))


def _logs_on_disk(root: Path) -> dict[TableName, str]:
    """Return the folder of each table's log, in name order. Ten thousand Paths would cost more than all else here."""
    found = [
        (TableName(source_name(schema), source_name(table)), f"{root}/{schema}/{table}/_delta_log")
        for schema in _folders(str(root))
        for table in _folders(f"{root}/{schema}")
    ]
    return dict(sorted(found))


def _folders(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - as above
    except (FileNotFoundError, NotADirectoryError):
        return []


def _folder_mark(log: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(log)  # noqa: PTH116 - a Path costs more than the call
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _entries_since(table: HistoryTable) -> dict[int, str | None]:
    """List the entries of a table in a store from its version on, with their ETags."""
    return dict(entries_since(table.path, table.delta_version))


_NAME, _LAKE, _COLUMNS, *_LINE, _ETAG = (each.name for each in fields(HistoryTable))
_FORM = json.dumps([*_LINE, *(each.name for each in fields(Column))])
"""The first line of the file: without the same fields, it is not read."""


def _line(table: HistoryTable, mark: _Mark) -> str:
    """Return a line: the mark, the name, what every question reads; and after a tab the columns."""
    head = json.dumps([mark, *table.name, *(getattr(table, name) for name in _LINE)])
    given = table.columns
    columns = given.text if isinstance(given, _SavedColumns) else json.dumps(list(map(astuple, given)))
    return f"{head}\t{columns}"


class _SavedColumns(Sequence[Column]):
    """The columns of a table in the file, parsed when they are first read: a question needs those of few tables."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        return tuple(map(_column, json.loads(self.text)))

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - of a number or a slice, as of a tuple
        return self._columns[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._columns == tuple(other)

    def __hash__(self) -> int:
        return hash(self._columns)


def _column(values: Sequence[Any]) -> Column:
    name, type_oid, typmod, key, stored_as, since, attnum, until, former, _ = values  # `compared` is not stored
    return Column(
        name, type_oid, typmod, key, stored_as, lsn_or_none(since), attnum, lsn_or_none(until), former_of(former)
    )


def _parsed(lake: Lake, line: str) -> _Read:
    head, _, columns = line.partition("\t")
    mark, schema, name, *others = json.loads(head)
    version, position, horizon, as_made, oid, names, resynced, former, taken_us, copied, erased = others
    table = HistoryTable(
        TableName(schema, name),
        lake,
        _SavedColumns(columns),
        version,
        Lsn(position),
        Lsn(horizon),
        as_made,
        oid,
        tuple((Lsn(since), TableName(*each)) for since, each in names),
        Lsn(resynced),
        tuple((Lsn(upto), oid) for upto, oid in former),
        taken_us,
        Lsn(copied),
        erased,
        mark if isinstance(mark, str) else None,
    )
    return _Read(table, tuple(mark) if isinstance(mark, list) else mark)
