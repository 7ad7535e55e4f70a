"""Request for a feed, as users write it: start and selection, checked before the first transaction.

`since` is a WHEN, inclusive as in `auditlake log --since`, or `beginning`. `after` is a cursor, exclusive. Without
either the feed starts with the next transaction. Tables are named as on the command line; a table that the lake does
not have is refused, because a misspelt name would select nothing for ever.
"""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime

from auditlake.apply.tails import FOLDED_OPS
from auditlake.audit.lake_reader import Reader
from auditlake.audit.queries import with_doubts
from auditlake.audit.row_key import as_written, in_doubt, parse_key
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.feed.feed import Feed, Start, parse_cursor
from auditlake.feed.selection import ColumnFilter, FeedSelection, KeyFilter
from auditlake.lake.comparison_keys import ENUM
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lsn import Lsn
from auditlake.messages import say
from auditlake.relation import SYSTEM_SCHEMA, TableName
from auditlake.temporal.moments import Known, begins_at, just_before, read_known, resolve
from auditlake.temporal.table_lookup import find_table, split_name
from auditlake.temporal.when import AtLsn, AtTime, format_us, parse_when
from auditlake.values.equality import has_number

BEGINNING = "beginning"


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """Arguments of a feed, unparsed; empty collections are no filter.

    The key is given as on the command line (`key`) or in Python (`key_value`): a value, several, or a mapping.
    """

    since: str | None = None
    after: str | None = None
    tables: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    key_value: object = None
    follow: bool = True
    allow_gaps: bool = False
    column: str | None = None

    def open(
        self,
        lake: Lake,
        now: datetime | None = None,
        closed: threading.Event | None = None,
        known: Known | None = None,
    ) -> Feed:
        """Open the feed; relative times are relative to `now`, and setting `closed` ends it.

        A feed of a `known` state that is limited to some tables delivers these alone, under their names then.

        Raises BadUsage, WrongSource, LakeUnusable, and NotAnswerable if the lake does not have everything from there.
        """
        require_manifest(lake)
        known = known or read_known(lake)
        start = Start(self._start(known, now or datetime.now(UTC)), self.follow, self.allow_gaps)
        return Feed(lake, start, self._selection(known), closed)

    def _start(self, known: Known, now: datetime) -> Lsn:
        if self.after is not None and self.since is not None:
            raise BadUsage("a cursor and --since exclude each other", "Use one of them, or neither.")
        first = Lsn(min(table.first_snapshot_lsn for table in known.tables.values()))
        if self.after is not None:
            return _known_from(parse_cursor(self.after, known.lake), first, self.after)
        if self.since is None:
            return known.positions.watermark
        return first if self.since == BEGINNING else _since(known, self.since, now, first)

    def _selection(self, known: Known) -> FeedSelection:
        if unknown := sorted(set(self.ops) - set(FOLDED_OPS)):
            raise BadUsage(f"{unknown[0]!r} is not an operation", f"Use {', '.join(FOLDED_OPS)}.")
        names = frozenset(_table(known, name) for name in self.tables)
        if known.only is not None:
            names = names or frozenset(known.names)
        ops = frozenset(self.ops) or None
        keyed = bool(self.key) or self.key_value is not None
        if not keyed and self.column is None:
            return FeedSelection(names or None, ops, only=known.only)
        if len(names) != 1:
            raise BadUsage("a key or a column needs one table", "Name the table whose key or column it is.")
        reader = Reader(known.lake, datetime.now(UTC), known)
        table = reader.keyed_at(reader.table(self.tables[0]), known.now_lsn)
        column = None if self.column is None else self._column(reader, table, self.column)
        return FeedSelection(names, ops, self._key(reader, table) if keyed else None, column, known.only)

    @staticmethod
    def _column(reader: Reader, table: HistoryTable, name: str) -> ColumnFilter:
        lsn = reader.known.now_lsn
        return ColumnFilter(table.name, name, reader.physical_columns(table, name, lsn))

    def _key(self, reader: Reader, table: HistoryTable) -> KeyFilter:
        given = with_doubts(reader, table, parse_key(table, self.key or as_written(self.key_value)))
        if doubted := [c for c in given.other_texts if c.compared != ENUM and not has_number(c.type_oid)]:
            say(f"equal values can have another text ({in_doubt(doubted)}): rows under another one are not selected")
        return KeyFilter(table.name, table.key, given.key)


def _table(known: Known, name: str) -> TableName:
    found = find_table(split_name(name), known.names, known.in_doubt)
    if found.schema == SYSTEM_SCHEMA:
        raise BadUsage(f"{found} is the lake's own table, which has no changes", "Name one that is.")
    return found


def _known_from(lsn: Lsn, first: Lsn, asked: str) -> Lsn:
    if lsn < first:
        raise NotAnswerable(
            f"asked for the changes from {asked} on, this lake begins at {first}",
            "Read the state of the tables first, then start from its moment.",
        )
    return lsn


def _since(known: Known, text: str, now: datetime, first: Lsn) -> Lsn:
    when = parse_when(text, now)
    if isinstance(when, AtTime):
        begin_us = begins_at(known)
        if begin_us is not None and when.time_us < begin_us:
            raise NotAnswerable(
                f"asked for the changes from {when} on, this lake begins at {format_us(begin_us)}",
                f"Start at {BEGINNING!r}, or at a later moment.",
            )
    if isinstance(when, AtLsn):
        _known_from(when.lsn, first, text)
    resolve(known, when)
    return Lsn(max(first, just_before(known, when)))
