"""Audit queries of the commands: resolve names and moments, check them, query, and add the transactions.

Table, key and moments are checked before the first line of output, and that no change between the moments is missing.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from auditlake.audit.answers import BlamedColumn, Commit, DeletedRow, RowEvent, columns_shown
from auditlake.audit.diff import Compared, compared_rows
from auditlake.audit.equal_keys import equal_keys
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.row_history import Blame, Book, RowEffect, blame, deleted_rows, last_version
from auditlake.audit.row_key import GivenKey, Key, Written, parse_key
from auditlake.audit.state import with_comparisons
from auditlake.audit.touched_rows import lsns_of_table, touches_key
from auditlake.audit.transactions import OfTable, Transaction, TransactionFilters, find, transactions_at
from auditlake.audit.versions import CommitMark, Version, versions_of
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.comparison_keys import ENUM
from auditlake.lake.gaps import Gap
from auditlake.lake.history import HistoryTable
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.messages import say, say_once
from auditlake.temporal.knowledge import say_erased
from auditlake.temporal.table_lookup import find_table, split_name
from auditlake.temporal.when import is_when

_POLL_S = 0.3

Given = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """Arguments of `auditlake log`, unparsed. `keys` () is no key, `limit` None is no limit."""

    table: str | None
    keys: Written
    column: str | None
    actor: str | None
    reason: str | None
    unattributed: bool
    since: str | None
    until: str | None
    limit: int | None

    @classmethod
    def read(cls, given: Given) -> Self:
        """Take the options of the command."""
        return cls(**{**given, "limit": given["limit"] or None})

    def wanted(self, reader: Reader, span: Span) -> TransactionFilters:
        """Return the filters for the transactions of a span; raises BadUsage."""
        if self.table is None:
            if self.keys != () or self.column:
                raise BadUsage("--key and --column need --table", "Add --table TABLE.")
            return TransactionFilters(actor=self.actor, reason=self.reason, unattributed=self.unattributed)
        table = reader.keyed_table(self.table, span.upto)
        given = parse_key(table, self.keys) if self.keys != () else None
        span = _of_one_key(reader, table, span) if given or self.column else span
        keys = [None] if given is None else _equal_keys(reader, table, given, span.upto)
        found = [lsns_of_table(reader, table, span, key, self.column) for key in keys]
        lsns = None if found == [None] else frozenset(lsn for each in found for lsn in each or ())
        of_table = OfTable.of(reader, table, self.table)
        return TransactionFilters((of_table,), lsns, None, self.actor, self.reason, self.unattributed)


def _of_one_key(reader: Reader, table: HistoryTable, span: Span) -> Span:
    """Return the end of a span in which the key has the same columns; report it if the span is longer."""
    changed = reader.rekeyed_at(table, span.upto)
    if changed is None or changed <= span.after + 1:
        return span
    say(f"the key of {table.last_name} changed at {Lsn(changed)}: the answer starts there")
    return replace(span, after=Lsn(changed - 1))


def with_doubts(reader: Reader, table: HistoryTable, given: GivenKey) -> GivenKey:
    """Return the same key with the columns, too, whose collation may take texts for equal."""
    names = {column.name for column in given.other_texts}
    key = with_comparisons(reader, table, table.key)
    return replace(given, other_texts=tuple(c for c in key if c.name in names or c.compared not in {None, ENUM}))


def _equal_keys(reader: Reader, table: HistoryTable, given: GivenKey, upto: Lsn) -> list[Key]:
    """Return the key; if no row has it at an LSN, and equal ones can have another text, these too.

    Raises NotAnswerable if no row ever had it, and equality is not known.
    """
    doubted = with_doubts(reader, table, given)
    known = versions_of(reader, table, [given.key], upto) if doubted.other_texts else []
    if not doubted.other_texts or any(version.end is None for version in known):
        return [given.key]
    equal = equal_keys(reader, table, given, upto)
    if equal is not None:
        return list(dict.fromkeys([given.key, *equal]))
    if not known and not touches_key(reader, table, given.key):
        doubted.check_absent()
    say(f"equal values can have another text ({doubted.columns_in_doubt}): a row may exist under one of these")
    return [given.key]


def _say_other(reader: Reader, table: HistoryTable, name: str, span: Span) -> None:
    """Report that another table had this name at the beginning of a span: the answer covers one table only."""
    found = find_table(split_name(name), reader.known.names)
    since = table.called_since(found, span.upto)
    if since is None or span.after >= since - 1:
        return
    before = (each.called_since(found, Lsn(since - 1)) for each in reader.known.had(found) if each.name != table.name)
    if any(each is not None for each in before):
        say(f"{found} is another table since {Lsn(since)}; --until {Lsn(since - 1)} asks for the one before")


def log_of(reader: Reader, question: LogQuestion) -> Iterator[Transaction]:
    """Return the transactions, newest first; raises BadUsage, NotAnswerable."""
    span = reader.with_transactions(reader.span(question.since, question.until))
    wanted = question.wanted(reader, span)
    return _with_missing(reader, wanted, span, question.limit, find(reader, span, wanted, question.limit))


def _with_missing(
    reader: Reader, wanted: TransactionFilters, span: Span, limit: int | None, found: Iterable[Transaction]
) -> Iterator[Transaction]:
    """Yield transactions, then report where others may be missing: back to the last one if there may be more."""
    count, last = 0, span.upto
    for count, each in enumerate(found, 1):  # noqa: B007 - it is read after the loop
        last = each.lsn
        yield each
    after = span.after if limit is None or count < limit else last
    reader.say_missing(Span(after, span.upto), wanted.histories(reader))


def follow_log(
    reader: Reader, question: LogQuestion, first: Iterable[Transaction], stop: threading.Event
) -> Iterator[Transaction]:
    """Yield `first`, then new transactions as capture makes them durable, oldest first, until `stop` is set."""
    shown = set()
    for each in first:
        shown.add(each.lsn)
        yield each
    seen = reader.watermark
    while not stop.wait(_POLL_S):
        positions = read_positions(reader.lake)
        if positions is None or positions.watermark <= seen:
            continue
        now = Reader(reader.lake, datetime.now(reader.now.tzinfo))
        span = Span(seen, now.watermark)
        wanted = question.wanted(now, span)
        found = [each for each in find(now, span, wanted, None) if each.lsn not in shown]
        for missing in now.known.missing(seen, now.watermark, wanted.histories(now)):
            say_once(reader.lake.root, missing)
        shown |= {each.lsn for each in found if not each.xid}
        yield from reversed(found)
        seen = now.watermark


@dataclass(frozen=True, slots=True)
class RowQuestion:
    """Arguments that choose a row and a span, unparsed."""

    table: str
    key: Written
    since: str | None
    until: str | None

    @classmethod
    def read(cls, given: Given) -> Self:
        """Take the arguments of the command."""
        return cls(given["table"], given["key"], given.get("since"), given["until"])


@dataclass(frozen=True, slots=True)
class Life:
    """History of one row within a span; `keys` are the one that was given, and equal ones."""

    reader: Reader
    table: HistoryTable
    keys: Sequence[Key]
    events: list[RowEffect]
    span: Span

    @property
    def exists(self) -> bool:
        """Whether a row has the key at the end of the span."""
        return bool(self.events) and last_version(self.events, *self.keys)[1] is None

    def entries(self) -> Iterator[RowEvent | Gap]:
        """Yield events and gaps, newest first."""
        self.say_expired()
        events = [event for event in self.events if event.mark.lsn in self.span]
        transactions = transactions_at(self.reader, (event.mark.lsn for event in events))
        gaps = [gap for gap in self.reader.gaps_of(self.table) if gap.lsn_to in self.span]
        entries: list[tuple[int, RowEffect | Gap]] = [(gap.lsn_to, gap) for gap in gaps]
        entries += [(event.mark.lsn, event) for event in events]
        entries.sort(key=lambda pair: pair[0])
        for lsn, entry in reversed(entries):
            if isinstance(entry, Gap):
                yield entry
            else:
                yield RowEvent.of(self.reader, self.table, self._as_shown(entry), transactions.get(lsn))

    def say_expired(self) -> None:
        """Report that versions of the row may have expired."""
        self.reader.say_expired(self.table, self.span, "if the row had earlier ones, they are not known")

    def _as_shown(self, event: RowEffect) -> RowEffect:
        sides = (event.before, event.after)
        before, after = (
            v and replace(v, values=self.reader.shown_at(self.table, event.mark.lsn, v.values)) for v in sides
        )
        return replace(event, before=before, after=after)


def life_of(reader: Reader, question: RowQuestion) -> Life:
    """Return the history of a row; it has no events if no row ever had the key; raises BadUsage, NotAnswerable."""
    span = reader.span(question.since, question.until)
    table = reader.keyed_table(question.table, span.upto)
    given = parse_key(table, question.key)
    reader.check(table, span.upto, question.until)
    _say_other(reader, table, question.table, span)
    say_erased(reader.lake, table, span.after, span.upto)
    span = _of_one_key(reader, table, span)
    keys = _equal_keys(reader, table, given, span.upto)
    events = Book(reader, table, span.upto).life(*keys)
    if unlinked := _unlinked(reader, table, events):
        say(f"the changes up to {reader.expired} have expired: whether the row had another key is not known {unlinked}")
    return Life(reader, table, keys, events, span)


def _unlinked(reader: Reader, table: HistoryTable, events: Iterable[RowEffect]) -> str:
    """Return at which commits a row may have got another key, or been inserted, by changes that have expired.

    Before the horizon of the table, its version on the other side may have expired, too.
    """
    since = table.horizon if table.has_expired else 0
    ends = [event for event in events if event.mark.op == "update" and (event.before is None or event.after is None)]
    sides = (("before" if event.before is None else "after", event.mark.lsn) for event in ends)
    return ", ".join(f"{side} {lsn}" for side, lsn in sides if since < lsn <= reader.expired)


def never(reader: Reader, table: HistoryTable, upto: Lsn) -> str:
    """Return the notice that no row ever had the key, as far as that is known."""
    told = f"no row of {table.label} had this key at any moment from {table.horizon} to {upto}"
    is_whole = not reader.known.missing(table.horizon, upto, [table])
    return told if is_whole else f"{told}, except in its gaps, where that is not known"


@dataclass(frozen=True, slots=True)
class Blamed:
    """The commit that set each column; there are none if no row ever had the key."""

    columns: list[BlamedColumn]
    table: HistoryTable
    upto: Lsn


def blame_of(reader: Reader, question: RowQuestion) -> Blamed:
    """Return who set each column of a row; none if the key never existed. Raises BadUsage, NotAnswerable."""
    return blame_in(life_of(reader, question))


def blame_in(life: Life) -> Blamed:
    """Return the same for a row whose history has been read, from its beginning on; raises NotAnswerable."""
    reader = life.reader
    if not life.events:
        reader.say_missing(Span(life.table.horizon, life.span.upto), [life.table])
        life.say_expired()
        return Blamed([], life.table, life.span.upto)
    last, mark = last_version(life.events, *life.keys)
    if mark is not None and mark.op == "update":
        raise NotAnswerable(
            f"the row has another key since {mark.lsn}, and the changes up to {reader.expired} have expired",
            "Ask by the key that it has today.",
        )
    at = mark.lsn if mark else life.span.upto
    columns = _blamed_columns(life, last, at)
    marks = [each.mark for each in columns] + [mark]
    _require_one_key(life, marks)
    transactions = transactions_at(reader, (each.lsn for each in marks if each is not None and each.xid))
    ended = None if mark is None else (Commit.of(mark, transactions.get(mark.lsn)), mark.op)
    reader.say_missing(Span(at, life.span.upto), [life.table])  # a deleted row may have been there again
    types = columns_shown(reader, life.table, at)
    gaps = reader.gaps_of(life.table)
    crossed = [(each, each.crossed(gaps, at)) for each in columns]
    by = [transactions.get(each.mark.lsn) if each.mark and each.mark.xid else None for each in columns]
    blamed = [BlamedColumn.of(each, gap, who, ended, types) for (each, gap), who in zip(crossed, by, strict=True)]
    if lost := [each.column for each in blamed if each.has_expired]:
        reader.say_expired(life.table, life.span, f"who set {', '.join(lost)} is not known")
    return Blamed(blamed, life.table, life.span.upto)


def _blamed_columns(life: Life, last: Version, at: Lsn) -> list[Blame]:
    """Return who set the values of the last version, by the names at an LSN; raises NotAnswerable if it is unknown."""
    reader, table = life.reader, life.table
    shown, own = reader.shown_at(table, at, last.values), reader.own_names(table)
    names = {own.get(column.stored, column.stored): column.name for column in reader.columns_at(table, at)}
    found = {each.column: each for each in _since_added(reader, table, blame(life.events, last))}
    begins = (event for event in life.events if event.before is None)
    if any(each.mark is None for each in found.values()) and _unlinked(reader, table, begins):
        raise NotAnswerable(
            f"who set values of this row is not known: the changes up to {reader.expired} have expired",
            "auditlake row shows its versions.",
        )
    return [replace(found[each], column=name) for each, name in names.items() if each in found and name in shown]


def _require_one_key(life: Life, marks: Iterable[CommitMark | None]) -> None:
    """Require that no value of a row was set before the columns of its key changed; raises NotAnswerable."""
    changed = life.reader.rekeyed_at(life.table, life.span.upto)
    if changed is not None and any(each is not None and each.lsn < changed for each in marks):
        raise NotAnswerable(
            f"the key of {life.table.last_name} changed at {Lsn(changed)}, and values of this row were set before",
            f"Ask as of {Lsn(changed - 1)}, by the former key.",
        )


def _since_added(reader: Reader, table: HistoryTable, columns: Iterable[Blame]) -> Iterator[Blame]:
    """Yield the columns of a row; a value older than its column was set by the commit that added the column.

    That commit is known only if the DDL trigger reported it; else the mark has no xid, and so no actor. It has no time
    either if its transaction has expired, or is not shown.
    """
    later = reader.later(table.name)
    added = transactions_at(reader, (each.since for each in later.values()))
    for each in columns:
        column = later.get(each.column)
        is_set = each.mark is not None or each.has_expired
        if column is None or (is_set and each.since >= column.since):
            yield each
            continue
        by = added.get(column.since)
        time_us, xid = (by.time_us, by.xid if column.exact else None) if by is not None and by.xid else (None, None)
        yield replace(each, mark=CommitMark(column.since, time_us, "add column", xid), has_expired=False)


def deleted_of(
    reader: Reader, name: str, since: str | None, until: str | None
) -> tuple[HistoryTable, list[DeletedRow]]:
    """Return the deleted rows of a table, newest deletion first; raises BadUsage, NotAnswerable."""
    span = reader.span(since, until)
    table = reader.keyed_table(name, span.upto)
    reader.check(table, span.upto, until)
    _say_other(reader, table, name, span)
    span = _of_one_key(reader, table, span)
    rows = deleted_rows(reader, table, span)
    reader.say_missing(Span(Lsn(max(span.after, table.first_snapshot_lsn)), span.upto), [table])
    transactions = transactions_at(reader, (row.mark.lsn for row in rows))
    return table, [DeletedRow.of(reader, table, row, transactions.get(row.mark.lsn)) for row in rows]


def table_of_both(reader: Reader, name: str, first: Lsn, last: Lsn) -> HistoryTable:
    """Return the table that has a name at both of two LSNs; raises BadUsage, NotAnswerable if these are two tables."""
    table = reader.table(name, last)
    if reader.table(name, first) is not table:
        raise NotAnswerable(
            f"{name} is one table at {first} and another one at {last}",
            "Compare two moments of one of them; auditlake log lists DROP and RENAME.",
        )
    return table


@dataclass(frozen=True, slots=True)
class DiffQuestion:
    """Arguments of `auditlake diff`, unparsed: two moments and the tables to compare, all if none is named.

    The second moment may be omitted and is then now; the argument in its place is the first table.
    """

    moment_a: str
    moment_b: str | None
    tables: tuple[str, ...]
    reverse: bool

    def diffs(self, reader: Reader) -> list[Compared]:
        """Compare the tables; raises BadUsage, and NotAnswerable if a table is not known at both moments."""
        moment_b, names = self._second(reader)
        a, b = reader.moment(self.moment_a), reader.moment(moment_b)
        last = max(a, b)
        tables = [table_of_both(reader, name, min(a, b), last) for name in names]
        tables = tables or list(reader.known.tables_at(last).values())
        for table in tables:
            reader.check(table, a, self.moment_a)
            reader.check(table, b, moment_b)
        span = Span(min(a, b), max(a, b))
        return [compared_rows(reader, table, span, reverse=(a > b) != self.reverse) for table in tables]

    def _second(self, reader: Reader) -> tuple[str, tuple[str, ...]]:
        """Return the second moment and the tables; raises BadUsage if the argument is neither."""
        if self.moment_b is None:
            return "now", self.tables
        if is_when(self.moment_b, reader.now):
            return self.moment_b, self.tables
        try:
            reader.table(self.moment_b)
        except BadUsage as exc:
            raise BadUsage(f"{self.moment_b!r} is neither a moment nor a table of this lake", exc.hint) from exc
        return "now", (self.moment_b, *self.tables)
