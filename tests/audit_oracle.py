"""Oracle of the audit queries: expected answers are computed from the states of a walk, as PostgreSQL printed them."""

import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import TypeVar

from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, Compared, compared_rows
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.row_history import Book, blame, deleted_rows, last_version
from auditlake.audit.touched_rows import lsns_of_table
from auditlake.audit.transaction_contents import ShownChange, contents
from auditlake.audit.transactions import TransactionFilters, find
from auditlake.audit.undo_script import patch
from auditlake.lake.layout import Lake
from auditlake.source.connection import connect
from tests.audit_walk import HEAP, KEYS, Happened, Moment, Values, by_key, key_of, lives, read_states, table_name

T = TypeVar("T")


class AuditOracle:
    """A reader of a lake, and the moments of the walk that the lake covers."""

    def __init__(self, lake: Lake, moments: list[Moment], most: int = 5, seed: int = 3) -> None:
        """Query at most `most` keys, rows, columns and transactions of each kind, chosen by `seed`."""
        self._most = most
        self.reader = Reader(lake, datetime.now(UTC))
        self.moments = moments
        self._chance = random.Random(seed)  # noqa: S311 - no secret

    def _some(self, count: int) -> list[tuple[Moment, Moment]]:
        pairs = [sorted(self._chance.sample(range(len(self.moments)), 2)) for _ in range(count)]
        return [(self.moments[one], self.moments[other]) for one, other in pairs]

    def _few(self, everything: Iterable[T]) -> list[T]:
        found = list(everything)
        return self._chance.sample(found, min(self._most, len(found)))

    def check(self, pairs: int) -> None:
        """Check every query."""
        self.check_diffs(pairs)
        for table in KEYS:
            self.check_lives(table)
            self.check_blame(table)
            self.check_deleted(table, pairs)
            self.check_columns(table)
        self.check_transactions()

    def check_diffs(self, count: int) -> None:
        """Check that the diff of two moments is the difference of their states."""
        for before, after in self._some(count):
            span = Span(before.lsn, after.lsn)
            for table in KEYS:
                self._check_diff(table, before, after, span)
            found = self._compared(HEAP, span)
            net = Counter(after.heap)
            net.subtract(before.heap)
            added = Counter(tuple((e.after or {}).items()) for e in found.entries(ADDED))
            removed = Counter(tuple((e.before or {}).items()) for e in found.entries(REMOVED))
            assert (+net, -net) == (added, removed)
            assert (before.heap.total(), after.heap.total()) == (found.stat().rows_before, found.stat().rows_after)

    def _compared(self, table: str, span: Span) -> Compared:
        return compared_rows(self.reader, self.reader.known.tables[table_name(table)], span, reverse=False)

    def _check_diff(self, table: str, before: Moment, after: Moment, span: Span) -> None:
        one, other = by_key(table, before.states[table]), by_key(table, after.states[table])
        found = self._compared(table, span)
        entries = {kind: list(found.entries(kind)) for kind in (ADDED, REMOVED, MODIFIED)}
        place = (table, before.lsn, after.lsn)
        assert {key: row for key, row in other.items() if key not in one} == {
            tuple(e.key.values()): e.after for e in entries[ADDED]
        }, place
        assert {key: row for key, row in one.items() if key not in other} == {
            tuple(e.key.values()): e.before for e in entries[REMOVED]
        }, place
        modified = {key: (one[key], other[key]) for key in one.keys() & other.keys() if one[key] != other[key]}
        assert modified == {tuple(e.key.values()): (e.before, e.after) for e in entries[MODIFIED]}, place
        cells = sum(was[name] != now[name] for was, now in modified.values() for name in was)
        stat = found.stat()
        assert (len(one), len(other), cells) == (stat.rows_before, stat.rows_after, stat.cells_modified), place

    def check_lives(self, table: str) -> None:
        """Check that a key's events are those of every row that ever had it; events without a change are ignored."""
        told = lives(self.moments, table)
        history = self.reader.known.tables[table_name(table)]
        keys = {key_of(table, row) for life in told.values() for _, *sides in life for row in sides if row}
        for key in self._few(sorted(keys)):
            rows = [life for life in told.values() if any(r and key_of(table, r) == key for _, *s in life for r in s)]
            expected = sorted((event for life in rows for event in life), key=_order)
            events = Book(self.reader, history, self.moments[-1].lsn).life(key)
            found: list[Happened] = [
                (
                    event.mark.lsn,
                    dict(event.before.values) if event.before else None,
                    dict(event.after.values) if event.after else None,
                )
                for event in events
                if event.changed()
            ]
            assert expected == sorted(found, key=_order), (table, key)

    def check_blame(self, table: str) -> None:
        """Check the commit that last changed each column of an existing row, also as of an earlier moment."""
        history = self.reader.known.tables[table_name(table)]
        for at in {len(self.moments) - 1, self._chance.randrange(1, len(self.moments))}:
            moments = self.moments[: at + 1]
            told = lives(moments, table)
            for rid, row in self._few(moments[-1].states[table].items()):
                events = Book(self.reader, history, moments[-1].lsn).life(key_of(table, row))
                last, ended = last_version(events, key_of(table, row))
                assert ended is None
                found = {each.column: each.mark.lsn if each.mark else None for each in blame(events, last)}
                assert {name: _last_set(told[rid], name) for name in row} == found, (table, rid)

    def check_deleted(self, table: str, count: int) -> None:
        """Check the deleted rows whose key no row has, and their last states."""
        history = self.reader.known.tables[table_name(table)]
        for since, until in self._some(count):
            moments = [moment for moment in self.moments if moment.lsn <= until.lsn]
            found = {
                row.last.key: (row.mark.lsn, dict(row.last.values))
                for row in deleted_rows(self.reader, history, Span(since.lsn, until.lsn))
            }
            gone: dict[tuple[str, ...], tuple[int, Values]] = {}
            for life in lives(moments, table).values():
                lsn, before, after = life[-1]
                if after is None and before is not None:
                    key = key_of(table, before)
                    gone[key] = max(gone.get(key, (0, before)), (lsn, before), key=lambda pair: pair[0])
            there = {key_of(table, row) for row in until.states[table].values()}
            expected = {k: v for k, v in gone.items() if k not in there and v[0] > since.lsn}
            assert expected == found, (table, since.lsn, until.lsn)

    def check_columns(self, table: str) -> None:
        """Check that a transaction changed a column if it left another value there in some row."""
        history = self.reader.known.tables[table_name(table)]
        told = lives(self.moments, table)
        span = Span(self.moments[0].lsn, self.moments[-1].lsn)
        for column in self._few(c.name for c in history.columns):
            happened = [event for life in told.values() for event in life]
            expected = {lsn for lsn, one, other in happened if one and other and one[column] != other[column]}
            found = lsns_of_table(self.reader, history, span, None, column)
            assert found is not None
            assert expected == set(found), (table, column)

    def check_transactions(self) -> None:
        """Check that each transaction's changes lead from the state before it to the state after it."""
        found = {each.lsn: each for each in find(self.reader, self.reader.span(None, None), TransactionFilters(), None)}
        for before, after in self._few(pairwise(self.moments)):
            states = {table: by_key(table, before.states[table]) for table in KEYS}
            for shown in contents(self.reader, found[after.lsn]):
                if not isinstance(shown, ShownChange) or shown.table.table not in states:
                    continue
                state, step = states[shown.table.table], shown.step
                if step.change.op == "truncate":
                    assert len(state) == step.removed
                    state.clear()
                if step.key_before is not None:
                    assert state.pop(step.key_before) == step.before
                if step.key_after is not None:
                    assert step.after is not None
                    state[step.key_after] = dict(step.after)
            assert {table: by_key(table, after.states[table]) for table in KEYS} == states

    def check_patches(self, dsn: str, count: int) -> None:
        """Run undo scripts on another database: from nothing to A, from A to B and back; compare the states."""
        with connect(dsn) as conn:
            for before, after in self._some(count):
                conn.execute('truncate public."Odd Table", public.plain, public.heap')
                for span, reverse, wanted in (
                    (Span(self.moments[0].lsn, before.lsn), False, before),
                    (Span(before.lsn, after.lsn), False, after),
                    (Span(before.lsn, after.lsn), True, before),
                ):
                    for statement in patch(self._all(span, reverse=reverse)):
                        conn.execute(statement.encode())
                    assert (wanted.states, wanted.heap) == read_states(conn), (before.lsn, after.lsn, reverse)

    def _all(self, span: Span, *, reverse: bool) -> list[Compared]:
        return [compared_rows(self.reader, table, span, reverse=reverse) for table in self.reader.known.tables.values()]


def _order(event: Happened) -> tuple[int, bool, str]:
    return event[0], event[2] is not None, str(event)


def _last_set(life: list[Happened], column: str) -> int:
    return next(lsn for lsn, one, other in reversed(life) if one is None or not other or one[column] != other[column])
