"""One row's life: its versions linked to each other, through key changes too. Reads only.

A key may have had several rows, one after the other, and a row several keys. `Book.life` starts at the versions of one
key and follows each both ways: to what the row was before (under another key, if that transaction moved it) and to what
it became. Where a key's version ends and another begins in one transaction, the changes of that transaction say whether
that is the same row: an update keeps it, a delete and insert or a swap of keys does not.

Only what `changes` says of births and deaths is read for that, at the commits where versions begin or end.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from auditlake.audit.changes import Change, changes_of
from auditlake.audit.keys import Key, in_changes
from auditlake.audit.reading import Reader, Span, in_lsns
from auditlake.audit.versions import Mark, Version, versions_of
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn

_NOT_KEPT = "(op <> 'update' or \"old\" is not null)"


@dataclass(frozen=True, slots=True)
class Event:
    """What one transaction did to the row: `before` and `after` are versions, None where there is none.

    `mark.op` is snapshot, insert, update, delete, truncate or resync. Where a transaction deletes a row and inserts one
    with the same key, that is two events.
    """

    mark: Mark
    before: Version | None
    after: Version | None

    @property
    def key(self) -> Key:
        """The key it left, or the one it ended under."""
        version = self.after or self.before
        assert version is not None  # noqa: S101 - made with one of them
        return version.key

    @property
    def key_before(self) -> Key | None:
        """The key that the row had before, where it is another."""
        return self.before.key if self.before and self.after and self.before.key != self.after.key else None

    def changed(self) -> list[str]:
        """The columns that have another value than before; all of them at a birth or a death."""
        before = self.before.values if self.before else {}
        after = self.after.values if self.after else {}
        names = dict.fromkeys((*before, *after))
        if self.before is None or self.after is None:
            return list(names)
        return [name for name in names if before.get(name) != after.get(name)]


class Book:
    """Versions of a table's keys as of one moment, and how they are linked; what was read is kept."""

    def __init__(self, reader: Reader, table: HistoryTable, upto: Lsn) -> None:
        self._reader = reader
        self._table = table
        self._upto = upto
        self._names = tuple(column.name for column in table.key)
        self._versions: dict[Key, list[Version]] = {}
        self._turns: dict[Key, dict[int, list[Change]]] = {}

    def versions(self, key: Key) -> list[Version]:
        """Every version of a key, oldest first."""
        if key not in self._versions:
            self._versions[key] = versions_of(self._reader, self._table, [key], self._upto)
        return self._versions[key]

    def life(self, key: Key) -> list[Event]:
        """Everything that happened to the rows that ever had this key, oldest first."""
        seen: set[tuple[Key, int]] = set()
        events = [event for version in self.versions(key) for event in self._around(version, seen)]
        return sorted(events, key=lambda event: (event.mark.lsn, event.after is not None))

    def _around(self, start: Version, seen: set[tuple[Key, int]]) -> Iterable[Event]:
        """The whole chain that a version is in, once."""
        if _place(start) in seen:
            return
        version: Version | None = start
        while version is not None:
            seen.add(_place(version))
            before = self._before(version)
            op = "insert" if before is None and version.begin.op == "update" else version.begin.op
            yield Event(replace(version.begin, op=op), before, version)
            version = before
        version = start
        while version is not None and version.end is not None:
            following = self._after(version)
            if following is None:
                op = "delete" if version.end.op == "update" else version.end.op
                yield Event(replace(version.end, op=op), version, None)
            else:
                seen.add(_place(following))
                yield Event(following.begin, version, following)
            version = following

    def _before(self, version: Version) -> Version | None:
        """What the row was before this version began."""
        if version.begin.op == "snapshot":
            return None
        key: Key | None = version.key
        ordinal: float = float("inf")
        while key is not None:
            births = [c for c in self._turn(key, version.begin.lsn) if c.ordinal < ordinal and self._bears(c, key)]
            if not births:
                return next((v for v in self.versions(key) if v.end and v.end.lsn == version.begin.lsn), None)
            ordinal = births[-1].ordinal
            key = births[-1].key_before(self._names) if births[-1].op == "update" else None
        return None

    def _after(self, version: Version) -> Version | None:
        """What the row became when this version ended."""
        assert version.end is not None  # noqa: S101 - asked for ended versions only
        key, ordinal, lsn = version.key, -1, version.end.lsn
        if version.end.op == "truncate":
            return None
        while True:
            deaths = [c for c in self._turn(key, lsn) if c.ordinal > ordinal and self._ends(c, key)]
            if not deaths:
                return next((v for v in self.versions(key) if v.begin.lsn == lsn), None)
            if deaths[0].op != "update":
                return None
            key, ordinal = deaths[0].key_after(self._names), deaths[0].ordinal

    def _bears(self, change: Change, key: Key) -> bool:
        if change.op == "insert":
            return True
        return change.op == "update" and change.key_after(self._names) == key != change.key_before(self._names)

    def _ends(self, change: Change, key: Key) -> bool:
        if change.op in {"delete", "truncate"}:
            return True
        return change.op == "update" and change.key_before(self._names) == key != change.key_after(self._names)

    def _turn(self, key: Key, lsn: int) -> list[Change]:
        """The births and deaths of a key in one transaction."""
        turns = self._turns.setdefault(key, {})
        if lsn not in turns:
            marks = [mark for v in self.versions(key) for mark in (v.begin, v.end) if mark and mark.op != "snapshot"]
            lsns = {lsn, *(mark.lsn for mark in marks)}
            turns |= {each: [] for each in lsns}
            for change in self._read_turns(key, lsns):
                turns.setdefault(change.lsn, []).append(change)
        return turns[lsn]

    def _read_turns(self, key: Key, lsns: set[int]) -> Iterable[Change]:
        this = in_changes(self._table, self._reader.relations, [key])
        condition = f"{in_lsns('lsn', list(lsns))} and {_NOT_KEPT} and (op = 'truncate' or {this})"
        span = Span(Lsn(min(lsns) - 1), Lsn(max(lsns)))
        return changes_of(self._reader, self._table.name, span, condition)


def _place(version: Version) -> tuple[Key, int]:
    return version.key, version.begin.lsn


@dataclass(frozen=True, slots=True)
class Blame:
    """Who last set one column: `mark` is None where that was before capture, `value` what it is."""

    column: str
    value: str | None
    mark: Mark | None


def blame(events: list[Event], last: Version) -> list[Blame]:
    """For each column of a row's last version, the commit that gave it its value."""
    begins = {_place(event.after): event for event in events if event.after is not None}
    found: dict[str, Mark | None] = {}
    version: Version | None = last
    while version is not None:
        event = begins[_place(version)]
        if event.mark.op == "snapshot":
            found = {name: found.get(name) for name in last.values}
            break
        for name in event.changed():
            if name in last.values:
                found.setdefault(name, event.mark)
        version = event.before
    return [Blame(name, last.values[name], found.get(name)) for name in last.values]


def last_version(events: list[Event], key: Key) -> tuple[Version, Mark | None]:
    """The last version of the row that had this key last, under whatever key it is now, and what ended it, if that is.

    `events` must not be empty.
    """
    following = {_place(event.before): event for event in events if event.before is not None}
    of_key = [event.after for event in events if event.after is not None and event.after.key == key]
    version = of_key[-1]
    while event := following.get(_place(version)):
        if event.after is None:
            return version, event.mark
        version = event.after
    return version, None
