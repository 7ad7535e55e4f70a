"""History of rows: the versions of a row, linked in both directions through key changes, and deleted rows.

A key may have had several rows, one after the other, and a row several keys. `Book.life` starts at the versions of one
key and follows each row backwards and forwards, under another key if a transaction changed it. If a version of the key
ends and another begins in the same transaction, the changes of that transaction decide whether it is the same row: an
UPDATE continues it; a DELETE and an INSERT, or an exchange of keys, does not. If these changes have expired, a version
that an update began continues one that an update ended, and other keys of the row are not known. Rows are not followed
to before the last change of the columns that identify them: earlier changes lack values of today's key.

A row is deleted as of a moment if it was deleted by then and no row has its key; of several rows that had the key, the
last one is reported, with its last state, and who deleted it when. A row whose key was changed is not deleted, nor is a
key that was inserted again; a row inserted and deleted in one transaction was never visible.

Both need a table with a key.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from auditlake.audit.changes import RowChange, Values, changes_of
from auditlake.audit.history_conditions import HERE, THERE, same_in_history, types_over_time
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.overlay import Overlay, overlaid
from auditlake.audit.row_key import Key, in_doubt
from auditlake.audit.state import with_comparisons
from auditlake.audit.versions import CommitMark, KeyReads, Version, history_texts, value_column, versions_from
from auditlake.errors import BadUsage
from auditlake.lake.comparison_keys import compared_sql, is_grouped_by_key
from auditlake.lake.gaps import Gap
from auditlake.lake.history import RESYNC, HistoryTable
from auditlake.lsn import Lsn
from auditlake.messages import say


@dataclass(frozen=True, slots=True)
class RowEffect:
    """Effect of one transaction on the row: its versions before and after, None if it did not exist.

    `mark.op` is snapshot, insert, update, delete, truncate or resync; an update without a row before or after it if
    the version or the changes that had that row have expired. A transaction that deletes a row and inserts one
    with the same key makes two events.
    """

    mark: CommitMark
    before: Version | None
    after: Version | None

    @property
    def key(self) -> Key:
        """The row's key after the event; of a deletion, before it."""
        version = self.after or self.before
        assert version is not None  # noqa: S101 - an event has at least one of them
        return version.key

    @property
    def key_before(self) -> Key | None:
        """The row's key before the event if the event changed it."""
        return self.before.key if self.before and self.after and self.before.key != self.after.key else None

    def changed(self) -> list[str]:
        """Return the columns whose value differs; all columns if the row begins or ends."""
        before = self.before.values if self.before else {}
        after = self.after.values if self.after else {}
        names = dict.fromkeys((*before, *after))
        if self.before is None or self.after is None:
            return list(names)
        return [name for name in names if before.get(name) != after.get(name)]


class Book:
    """Rows of a table as of one moment: the versions of its keys, linked."""

    def __init__(self, reader: Reader, table: HistoryTable, upto: Lsn) -> None:
        self._reader = reader
        self._reads = KeyReads(reader, table, upto)
        self._first_snapshot = table.first_snapshot_lsn
        self._expired = table.horizon if table.has_expired else Lsn(0)
        self._rekeyed = reader.rekeyed_at(table, upto) or 0
        self._names = tuple(column.name for column in table.key)

    def life(self, *keys: Key) -> list[RowEffect]:
        """Return the events of all rows that ever had one of these keys, oldest first."""
        seen: set[tuple[Key, int]] = set()
        versions = (version for key in keys for version in self._reads.versions(key))
        events = [event for version in versions for event in self._around(version, seen)]
        return sorted(events, key=lambda event: (event.mark.lsn, event.after is not None))

    def _around(self, start: Version, seen: set[tuple[Key, int]]) -> Iterable[RowEffect]:
        """Yield the events of the row that a version belongs to, unless already seen."""
        if _place(start) in seen:
            return
        version: Version | None = start
        while version is not None:
            seen.add(_place(version))
            before = self._before(version)
            yield RowEffect(replace(version.begin, op=self._begin_op(version, before)), before, version)
            version = before
        version = start
        while version is not None and version.end is not None:
            following, op = self._after(version)
            if following is None:
                op = "delete" if op == "update" and self._has_changes(version.end.lsn) else op
                yield RowEffect(replace(version.end, op=op), version, None)
            else:
                seen.add(_place(following))
                op = self._begin_op(following, version)
                yield RowEffect(replace(following.begin, op=op), version, following)
            version = following

    def _begin_op(self, version: Version, before: Version | None) -> str:
        """Return the operation that began a version: `resync` for a snapshot after the table's first.

        A version that was updated to and has none before it was inserted in the same transaction, unless that one has
        expired.
        """
        op = version.begin.op
        if op == "snapshot" and version.begin.lsn > self._first_snapshot:
            return RESYNC
        if before is not None or op != "update" or self._is_continued(version):
            return op
        return "insert"

    def _is_continued(self, version: Version) -> bool:
        """Return whether the version before one has expired, or may have been under another key."""
        if not self._has_changes(version.begin.lsn):
            return True
        return version.begin.lsn <= self._expired and self._key_before(version) is not None

    def _has_changes(self, lsn: Lsn) -> bool:
        """Return whether the changes of a transaction have not expired."""
        return lsn > self._reader.expired

    def _resynced(self, version: Version) -> Version | None:
        """Return the version of the key that ended with the snapshot with which this one began."""
        begin = version.begin.lsn
        return next((v for v in self._reads.versions(version.key) if v.end and v.end.lsn == begin), None)

    def _before(self, version: Version) -> Version | None:
        """Return the row's version before this one, None if the row began with this one, or under another key.

        No transaction that changes rows before it changes the key is applied (`apply.tails`), so every change read here
        has the whole key.
        """
        if version.begin.lsn < self._rekeyed:
            return None
        if version.begin.op == "snapshot":
            return self._resynced(version)
        if not self._has_changes(version.begin.lsn):
            ends = (v for v in self._reads.versions(version.key) if v.end and v.end.lsn == version.begin.lsn)
            return next((v for v in ends if _may_continue(v, version)), None)
        key = self._key_before(version)
        versions = () if key is None else self._reads.versions(key)
        return next((v for v in versions if v.end and v.end.lsn == version.begin.lsn), None)

    def _key_before(self, version: Version) -> Key | None:
        """Return the row's key before the transaction that began a version, None if that inserted the row.

        It is None, too, before the last change of the columns that identify rows: they are not followed to there.
        """
        if version.begin.lsn < self._rekeyed:
            return None
        key, ordinal = version.key, float("inf")
        while True:
            births = [
                c for c in self._reads.turns(key, version.begin.lsn) if c.ordinal < ordinal and self._bears(c, key)
            ]
            if not births:
                return key
            if births[-1].op != "update":
                return None
            key, ordinal = births[-1].key_before(self._names), births[-1].ordinal

    def _after(self, version: Version) -> tuple[Version | None, str]:
        """Return the row's version after this one, None if the row ended, and the operation that ended this one.

        `version.end.op` is the last operation in the transaction that ended the key; the first one ended the row.
        """
        assert version.end is not None  # noqa: S101 - the caller passes closed versions only
        key, ordinal, lsn = version.key, -1, version.end.lsn
        if lsn < self._rekeyed:
            return None, version.end.op
        if not self._has_changes(lsn):
            begins = (v for v in self._reads.versions(key) if v.begin.lsn == lsn)
            return next((v for v in begins if _may_continue(version, v)), None), version.end.op
        while True:
            deaths = [c for c in self._reads.turns(key, lsn) if c.ordinal > ordinal and self._ends(c, key)]
            if not deaths:
                following = (v for v in self._reads.versions(key) if v.begin.lsn == lsn)
                return None if version.end.op == "truncate" else next(following, None), version.end.op
            if deaths[0].op != "update":
                return None, deaths[0].op
            key, ordinal = deaths[0].key_after(self._names), deaths[0].ordinal

    def _bears(self, change: RowChange, key: Key) -> bool:
        if change.op == "insert":
            return True
        return change.op == "update" and change.key_after(self._names) == key != change.key_before(self._names)

    def _ends(self, change: RowChange, key: Key) -> bool:
        if change.op in {"delete", "truncate"}:
            return True
        return change.op == "update" and change.key_before(self._names) == key != change.key_after(self._names)


def _may_continue(before: Version, after: Version) -> bool:
    """Return whether one UPDATE ended the first version and began the second."""
    return before.end is not None and before.end.op == "update" == after.begin.op


def _place(version: Version) -> tuple[Key, int]:
    return version.key, version.begin.lsn


@dataclass(frozen=True, slots=True)
class Blame:
    """Value of one column and the commit that set it; `mark` is None if that was before the snapshot.

    `since` is the LSN of that commit, or of the first known version with the value. `has_expired`: without a mark, the
    versions that would tell the commit have expired.
    """

    column: str
    value: str | None
    mark: CommitMark | None
    since: Lsn
    has_expired: bool = False

    def crossed(self, gaps: Iterable[Gap], upto: Lsn) -> Gap | None:
        """Return the last gap in which the value may have been set, or set again, up to an LSN; None if there is none.

        A new snapshot shows the value that a gap left: its commit is not the one that set it.
        """
        found = self.mark is not None and self.mark.op == RESYNC
        since = self.since - 1 if found else self.since
        meeting = [gap for gap in gaps if gap.lacks_changes and gap.lsn_from < upto and since < gap.lsn_to]
        return max(meeting, key=lambda gap: gap.lsn_to, default=None)


def blame(events: list[RowEffect], last: Version) -> list[Blame]:
    """Return, for each column of a row's last version, the commit that set its value."""
    begins = {_place(event.after): event for event in events if event.after is not None}
    marks: dict[str, CommitMark] = {}
    version: Version | None = last
    first, has_expired = last.begin.lsn, False
    while version is not None:
        event, first = begins[_place(version)], version.begin.lsn
        has_expired = event.mark.op == "update" and event.before is None
        if event.mark.op == "snapshot" or has_expired:
            break
        for name in event.changed():
            marks.setdefault(name, event.mark)
        version = event.before
    found = ((name, value, marks.get(name)) for name, value in last.values.items())
    return [
        Blame(name, value, mark, mark.lsn if mark else first, has_expired and not mark) for name, value, mark in found
    ]


def last_version(events: list[RowEffect], *keys: Key) -> tuple[Version, CommitMark | None]:
    """Return the last version of the last row with one of these keys, and its deletion; `events` is not empty."""
    following = {_place(event.before): event for event in events if event.before is not None}
    of_key = [event.after for event in events if event.after is not None and event.after.key in keys]
    version = of_key[-1]
    while event := following.get(_place(version)):
        if event.after is None:
            return version, event.mark
        version = event.after
    return version, None


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deleted row: its last version, the commit that deleted it, and its key, by the names of that moment."""

    last: Version
    mark: CommitMark
    key: Values


def deleted_rows(reader: Reader, table: HistoryTable, span: Span) -> list[Deleted]:
    """Return the rows deleted in a span whose key has no row at its end, newest deletion first.

    Raises BadUsage if the table has no key, NotAnswerable if changes or versions of the span have expired.
    """
    if not table.key:
        raise BadUsage(
            f"{table.name} has no key, so its rows cannot be identified",
            "auditlake diff counts added and removed rows.",
        )
    asked = f"the deleted rows of {table.label}"
    span = reader.with_versions(table, reader.with_changes(span, asked), asked)
    overlay = overlaid(reader, table, span.upto)
    ended = {version.key: version for version in _ended(reader, overlay, span)}
    book = Book(reader, table, span.upto)
    first = _first_ends(reader, table, {version.end.lsn for version in ended.values() if version.end})
    candidates = (_deletion(version, book, first) for version in ended.values())
    rows = [_as_shown(reader, table, *found) for found in candidates if found is not None and found[1].lsn in span]
    unsure = [column for column in with_comparisons(reader, table, table.key) if not is_grouped_by_key(column)]
    if rows and unsure:
        say(f"equal values can have another text ({in_doubt(unsure)}): rows listed here may exist under one of these")
    return sorted(rows, key=lambda row: (-row.mark.lsn, row.last.key))


def _as_shown(reader: Reader, table: HistoryTable, last: Version, mark: CommitMark) -> Deleted:
    """Return a deleted row in the columns that the table had then."""
    own = {column.name: str(last.values[column.name]) for column in table.key}
    key: Values = reader.shown_at(table, mark.lsn, own)
    return Deleted(replace(last, values=reader.shown_at(table, mark.lsn, last.values)), mark, key)


def _ended(reader: Reader, overlay: Overlay, span: Span) -> Iterator[Version]:
    """Yield the versions that ended in a span, of keys that no later version in it has."""
    table = overlay.table
    if any(len(types_over_time(table, column)) > 1 for column in table.key):
        yield from _ended_under_types(reader, overlay, span)
        return
    same = " and ".join(same_in_history(table, column.name, compared_sql) for column in table.key)
    later = f"select 1 from history {THERE} where {same} and {THERE}._from_lsn between {HERE}._to_lsn and {span.upto:d}"
    condition = f"{span.sql(f'{HERE}._to_lsn')} and not exists ({later})"
    files = overlay.within_any({"_to_lsn": span.bounds}, {"_from_lsn": span.bounds})
    yield from versions_from(table, history_texts(reader, table, condition, files=files))


def _ended_under_types(reader: Reader, overlay: Overlay, span: Span) -> Iterator[Version]:
    """Yield the same of a table whose key was rewritten for another type: its texts are compared."""
    table = overlay.table
    names = [column.name for column in table.key]
    keys = [value_column(name) for name in names]
    of_ended, of_begun = overlay.within(_to_lsn=span.bounds), overlay.within(_from_lsn=span.bounds)
    ended = history_texts(reader, table, span.sql("_to_lsn"), files=of_ended)
    begun = history_texts(reader, table, span.sql("_from_lsn"), names, of_begun)
    last = begun.group_by(keys).aggregate([("_from_lsn", "max")])
    paired = ended.join(last, keys=keys, join_type="left outer")
    lives = pc.fill_null(pc.greater_equal(paired["_from_lsn_max"], paired["_to_lsn"]), fill_value=False)
    yield from versions_from(table, paired.filter(pc.invert(lives)))


def _first_ends(reader: Reader, table: HistoryTable, lsns: Collection[int]) -> Mapping[int, Mapping[Key, str]]:
    """Return, for each transaction with a TRUNCATE, the first operation before it that ended a row, by key."""
    if not lsns:
        return {}
    truncates = changes_of(reader, table.name, Span(Lsn(min(lsns) - 1), Lsn(max(lsns))), "op = 'truncate'")
    names = tuple(column.name for column in table.key)
    first: dict[int, dict[Key, str]] = {}
    for truncate in truncates:
        if truncate.lsn not in lsns or truncate.lsn in first:
            continue
        span, ends = Span(Lsn(truncate.lsn - 1), truncate.lsn), first.setdefault(truncate.lsn, {})
        condition = f"ordinal < {truncate.ordinal:d} and op <> 'insert' and \"old\" is not null"
        for change in changes_of(reader, table.name, span, condition):
            if change.op == "delete" or change.key_before(names) != change.key_after(names):
                ends.setdefault(change.key_before(names), change.op)
    return first


def _deletion(
    version: Version, book: Book, first: Mapping[int, Mapping[Key, str]]
) -> tuple[Version, CommitMark] | None:
    """Return the last row deleted under the key of `version`, the key's last version, and the commit; None if none was.

    The row of that version may live on under another key. A transaction with a TRUNCATE may end a key several times;
    the first end is the row's (`first`).
    """
    assert version.end is not None  # noqa: S101 - the caller passes closed versions only
    op = version.end.op
    if version.end.lsn in first:
        op = first[version.end.lsn].get(version.key, "truncate")
    if op != "update":
        return version, replace(version.end, op=op)
    ends = [event for event in book.life(version.key) if event.after is None and event.mark.op != "update"]
    ended = [(event.before, event.mark) for event in ends if event.before and event.before.key == version.key]
    return ended[-1] if ended else None
