"""Rows that existed and do not: their last state, who ended them and when. Tables with a key.

A row is deleted as of a moment if it ended by then and no row has its key; of several that had the key it is the last.
A row that went on under another key did not end; a key that was inserted again is there; a row that was inserted and
deleted in one transaction was never seen by anybody. The ends that history has merged come from it; the tail may add
ends, and take back those of keys inserted again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from auditlake.audit.changes import States, changes_of
from auditlake.audit.keys import HERE, THERE, Key, same_in_history
from auditlake.audit.life import Book
from auditlake.audit.reading import Reader, Span
from auditlake.audit.tail import Tail
from auditlake.audit.versions import Fold, Mark, Version, history_texts, row_values, versions_from
from auditlake.errors import BadUsage
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Deleted:
    """A row that is gone: its last state, and the commit that ended it."""

    last: Version
    mark: Mark


def deleted_rows(reader: Reader, table: HistoryTable, span: Span) -> list[Deleted]:
    """Find the rows deleted in a span that are not there at its end, the newest deletion first.

    Raises BadUsage where the table has no key.
    """
    if not table.key:
        raise BadUsage(f"{table.name} has no key, so its rows cannot be told apart", "auditlake diff counts its rows.")
    merged = Span(span.after, Lsn(min(span.upto, table.position)))
    ended = {version.key: version for version in _ended_in_history(reader, table, merged)}
    if span.upto > table.position:
        _lay_tail_over(ended, reader, table, span.upto)
    book = Book(reader, table, span.upto)
    found = (_judged(version, book) for version in ended.values())
    rows = [_as_shown(reader, table, row) for row in found if row is not None and row.mark.lsn in span]
    return sorted(rows, key=lambda row: (-row.mark.lsn, row.last.key))


def _as_shown(reader: Reader, table: HistoryTable, row: Deleted) -> Deleted:
    return replace(row, last=replace(row.last, values=reader.shown_at(table, row.mark.lsn, row.last.values)))


def _ended_in_history(reader: Reader, table: HistoryTable, span: Span) -> Iterator[Version]:
    same = " and ".join(same_in_history(table, column.name) for column in table.key)
    later = f"select 1 from history {THERE} where {same} and {THERE}._from_lsn between {HERE}._to_lsn and {span.upto:d}"
    condition = f"{HERE}._to_lsn > {span.after:d} and {HERE}._to_lsn <= {span.upto:d} and not exists ({later})"
    return versions_from(table, history_texts(reader, table, condition))


def _lay_tail_over(ended: dict[Key, Version], reader: Reader, table: HistoryTable, upto: Lsn) -> None:
    """Take out the keys that the tail brings back, and put in those that it ends."""
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


def _judged(version: Version, book: Book) -> Deleted | None:
    """The last row that ended under the key: the one of its last version may have gone on under another key."""
    assert version.end is not None  # noqa: S101 - only ended ones are asked for
    if version.end.op != "update":
        return Deleted(version, version.end)
    ends = [event for event in book.life(version.key) if event.after is None]
    ended = [(event.before, event.mark) for event in ends if event.before and event.before.key == version.key]
    return Deleted(*ended[-1]) if ended else None
