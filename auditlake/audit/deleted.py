"""Deleted rows: last state, and who deleted them when. Tables with a key only.

A row is deleted as of a moment if it was deleted by then and no row has its key; of several rows that had the key, the
last one is reported. A row whose key was changed is not deleted, nor is a key that was inserted again; a row inserted
and deleted in one transaction was never visible. Deletions up to the table's position come from the history; the tail
adds deletions, and removes those of keys that it inserts again.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from auditlake.audit.changes import States, changes_of
from auditlake.audit.keys import HERE, THERE, Key, same_in_history
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.pending_changes import Tail
from auditlake.audit.row_history import Book
from auditlake.audit.versions import Fold, Mark, Version, history_texts, row_values, versions_from
from auditlake.errors import BadUsage
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deleted row: its last version, and the commit that deleted it."""

    last: Version
    mark: Mark


def deleted_rows(reader: Reader, table: HistoryTable, span: Span) -> list[Deleted]:
    """Return the rows deleted in a span whose key has no row at its end, newest deletion first.

    Raises BadUsage if the table has no key.
    """
    if not table.key:
        raise BadUsage(
            f"{table.name} has no key, so its rows cannot be identified",
            "auditlake diff counts added and removed rows.",
        )
    merged = Span(span.after, Lsn(min(span.upto, table.position)))
    ended = {version.key: version for version in _ended_in_history(reader, table, merged)}
    if span.upto > table.position:
        _overlay_tail(ended, reader, table, span.upto)
    book = Book(reader, table, span.upto)
    first = _first_ends(reader, table, {version.end.lsn for version in ended.values() if version.end})
    candidates = (_deleted_row(version, book, first) for version in ended.values())
    rows = [_as_shown(reader, table, row) for row in candidates if row is not None and row.mark.lsn in span]
    return sorted(rows, key=lambda row: (-row.mark.lsn, row.last.key))


def _as_shown(reader: Reader, table: HistoryTable, row: Deleted) -> Deleted:
    return replace(row, last=replace(row.last, values=reader.shown_at(table, row.mark.lsn, row.last.values)))


def _ended_in_history(reader: Reader, table: HistoryTable, span: Span) -> Iterator[Version]:
    same = " and ".join(same_in_history(table, column.name) for column in table.key)
    later = f"select 1 from history {THERE} where {same} and {THERE}._from_lsn between {HERE}._to_lsn and {span.upto:d}"
    condition = f"{HERE}._to_lsn > {span.after:d} and {HERE}._to_lsn <= {span.upto:d} and not exists ({later})"
    return versions_from(table, history_texts(reader, table, condition))


def _overlay_tail(ended: dict[Key, Version], reader: Reader, table: HistoryTable, upto: Lsn) -> None:
    """Remove from `ended` the keys that the tail inserts again, and add those that it deletes."""
    tail = Tail(reader, table, upto)
    base: pa.Table = tail.base
    changes = changes_of(reader, table.name, Span(Lsn(table.position), upto))
    if (keys := tail.ended()) is not None:
        alive, dead = keys
        for row in alive.to_pylist() if ended else ():
            ended.pop(tuple(row.values()), None)
        base, changes = tail.only(base, dead), tail.changes_of(dead)
    now = {version.key: version for version in _open(table, base)}
    fold = Fold(States(tuple(c.name for c in table.key), {key: version.values for key, version in now.items()}), now)
    for _, transaction in groupby(changes, key=lambda change: change.lsn):
        fold.commit(list(transaction))
    ended |= {version.key: version for version in fold.closed}
    for key in fold.open:
        ended.pop(key, None)


def _open(table: HistoryTable, base: pa.Table) -> Iterator[Version]:
    for row in base.to_pylist():
        values = row_values(row)
        begin = Mark(row["lsn"], 0, "", None)
        yield Version(tuple(str(values[column.name]) for column in table.key), values, begin, None)


def _first_ends(reader: Reader, table: HistoryTable, lsns: Collection[int]) -> Mapping[int, Mapping[Key, str]]:
    """Return, for each transaction with a TRUNCATE, the first operation before it that ended a row, by key."""
    if not lsns:
        return {}
    truncates = changes_of(reader, table.name, Span(Lsn(min(lsns) - 1), Lsn(max(lsns))), "op = 'truncate'")
    names = tuple(column.name for column in table.key)
    first: dict[int, dict[Key, str]] = {}
    for truncate in truncates:
        if truncate.lsn in lsns and truncate.lsn not in first:
            span = Span(Lsn(truncate.lsn - 1), Lsn(truncate.lsn))
            condition = f"ordinal < {truncate.ordinal:d} and op <> 'insert' and \"old\" is not null"
            ends = first.setdefault(truncate.lsn, {})
            for change in changes_of(reader, table.name, span, condition):
                if change.op == "delete" or change.key_before(names) != change.key_after(names):
                    ends.setdefault(change.key_before(names), change.op)
    return first


def _deleted_row(version: Version, book: Book, first: Mapping[int, Mapping[Key, str]]) -> Deleted | None:
    """Return the last row deleted under the key of `version`, the key's last version; None if none was.

    The row of that version may live on under another key. A transaction with a TRUNCATE may end a key several times;
    the first end is the row's (`first`).
    """
    assert version.end is not None  # noqa: S101 - the caller passes closed versions only
    op = version.end.op
    if version.end.lsn in first:
        op = first[version.end.lsn].get(version.key, "truncate")
    if op != "update":
        return Deleted(version, replace(version.end, op=op))
    ends = [event for event in book.life(version.key) if event.after is None]
    ended = [(event.before, event.mark) for event in ends if event.before and event.before.key == version.key]
    return Deleted(*ended[-1]) if ended else None
