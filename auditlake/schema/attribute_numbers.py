"""Attribute numbers of a relation's columns: match a Relation message with the catalog.

The stream has names, types and places of columns, never their numbers, so it does not distinguish a renamed column from
a dropped and an added one. For every Relation message the catalog is read, and the message is matched with

- `before`: the numbers and names of the columns at the version in force before, else in the table's history;
- `now`: the numbers and names of the table's columns, dropped ones too, in the catalog.

The catalog may have moved on since the change. But a column never changes its number, numbers are never used again, and
columns are always in the order of their numbers. Hence:

1. A column that existed before and exists now existed in between.
2. A column of the message has a number that is in `before`, or above all of them, or that of a column in `now` which
   was not published before.
3. It has the name that the number had before or has now; any name if the column was added since, as it may have been
   renamed or dropped since. This supposes that a column of `before` was not renamed twice, or renamed and dropped,
   between the change and the look.
4. A column that was added since and exists now is in every message that has a later one, unless it may not be
   published: it is generated, or the table has a column list. Such a column has the name that it has now.
5. A message with the names of `before` has none that was renamed since it was added: PostgreSQL repeats messages.

If exactly one assignment of numbers satisfies these, it is the answer; if it has a column that was added and renamed
since, it must be the only one, too, if dropped columns had any names. Otherwise a column was dropped and one of the
same name was added, and the message may be from before or after that: the table is parked at this place
(`schema.evolution`). The DDL event trigger reports the numbers and leaves nothing to match.

Nothing is supposed of a table with a masked column, as its values would be shown under another name: `possible` trusts
1, 2 and 4, from a base that is certain, the columns of a message that allowed one assignment alone, or of the last
copy; and no name but that of a column whose catalog entry is the one that was read before the message. If it allows
several, what they do to a value decides (`lake.masks`).

Authority: postgresql.org/docs/current/catalog-pg-attribute.html
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import LiteralString, cast

import psycopg

from auditlake.lake.column_identity import possible
from auditlake.lake.history import HistoryTable, history_of, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.masks import CatalogEntries, Masks
from auditlake.lake.records import read_recorded
from auditlake.lake.relations import RelationVersion, with_attnums
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.relation import Column, Relation, TableName
from auditlake.schema.catalog_snapshot import VISIBLE_WITHIN_S, read_catalog_snapshot, read_when_visible
from auditlake.source.connection import Row, answering_within, connect, fetch, lsn_in_lake
from auditlake.source.publication_membership import Membership

_ATTRIBUTES = """
select a.attnum::int, case when not a.attisdropped then a.attname::text end
  from pg_catalog.pg_attribute a where a.attrelid = %s::oid and a.attnum > 0 order by a.attnum
"""
# Read after the snapshot of the statement, so that every commit that it shows began before.
_ENTRIES = """
select a.attnum::int, a.xmin::text, (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint
  from pg_catalog.pg_attribute a where a.attrelid = %s::oid and a.attnum > 0 and not a.attisdropped
"""
# prattrs, which 15 added, is read through to_jsonb.
_UNPUBLISHED = """
with recursive roots (oid) as (
    select %s::oid union select i.inhparent from roots r join pg_catalog.pg_inherits i on i.inhrelid = r.oid)
select a.attnum::int from pg_catalog.pg_attribute a
 where a.attrelid = %s::oid and a.attnum > 0 and (a.attgenerated <> '' or exists (
       select from pg_catalog.pg_publication_rel p join roots on roots.oid = p.prrelid
        where pg_catalog.to_jsonb(p) ->> 'prattrs' is not null))
"""


def match(
    names: Sequence[str],
    before: Mapping[int, str] | None,
    now: Mapping[int, str | None],
    last: int = 0,
    unpublished: Collection[int] = (),
) -> tuple[int, ...] | None:
    """Return the number of each column of a message, None if more or less than one assignment is possible.

    The names in `now` are None for dropped columns. Without `before` the message must agree with `now`. Numbers up to
    `last` were given before: a column that has one of them and is not in `before` had been dropped, or not published.
    Those in `unpublished` may exist and not be published.
    """
    if before is None:
        return _agreeing(names, now, unpublished)
    last = max(last, *before, 0)
    named = now if list(names) == [before[number] for number in sorted(before)] else unpublished
    free = {number for number, name in now.items() if number > last and (name is None or number not in named)}
    found = _assignments(names, before, now, free)
    if len(found) == 1 and not _has_known_names(found[0], names, before, now):
        found = _assignments(names, before, now, free.union(n for n in before if now.get(n) is None))
    return found[0] if len(found) == 1 else None


def _has_known_names(
    numbers: Sequence[int], names: Sequence[str], before: Mapping[int, str], now: Mapping[int, str | None]
) -> bool:
    """Return whether no column was added and renamed since."""
    return all(n in before or now[n] in (None, name) for n, name in zip(numbers, names, strict=True))


def _agreeing(
    names: Sequence[str], now: Mapping[int, str | None], unpublished: Collection[int]
) -> tuple[int, ...] | None:
    there = {number: name for number, name in sorted(now.items()) if name is not None}
    found = tuple(number for number, name in there.items() if name in set(names))
    last = max(found, default=0)
    if any(number < last for number in there.keys() - {*found, *unpublished}):
        return None
    return found if [there[number] for number in found] == list(names) else None


def _assignments(
    names: Sequence[str], before: Mapping[int, str], now: Mapping[int, str | None], free: Collection[int]
) -> list[tuple[int, ...]]:
    """Return the assignments that satisfy the rules, at most two of them; the `free` numbers have any name."""
    candidates = {*before, *free, *(number for number, name in now.items() if name is not None)}
    # For each number of leading names: at most two assignments of them to the candidates so far.
    reached: dict[int, list[tuple[int, ...]]] = {0: [()]}
    for number in sorted(candidates):
        was, is_now = before.get(number), now.get(number)
        stayed = number in free and is_now is not None
        after: dict[int, list[tuple[int, ...]]] = {}
        for place, assignments in reached.items():
            if (was is None or is_now is None) and (place == len(names) or not stayed):
                after.setdefault(place, []).extend(assignments)
            if place < len(names) and (number in free or names[place] in (was, is_now)):
                after.setdefault(place + 1, []).extend((*each, number) for each in assignments)
        reached = {place: assignments[:2] for place, assignments in after.items()}
    return reached.get(len(names), [])


def read_attribute_entries(conn: psycopg.Connection[Row], oid: int) -> CatalogEntries:
    """Read who wrote the catalog entry of each column of a table."""
    rows = cast("list[tuple[int, str, int]]", fetch(conn, _ENTRIES, oid))
    at = lsn_in_lake(conn, max((lsn for _, _, lsn in rows), default=LAST_LSN))
    return CatalogEntries(at, {number: xmin for number, xmin, _ in rows})


class AttributeNumbers:
    """Reads attribute numbers over a connection of its own, which is open from the first question to `close`.

    All questions in between are about what was received before the first one.
    """

    def __init__(
        self,
        conninfo: str,
        lake: Lake,
        silence_s: float,
        masks: Masks | None = None,
        reports: Callable[[], bool] = lambda: False,
    ) -> None:
        """Read nothing yet; `reports` tells whether the DDL trigger has reported every change."""
        self._conninfo = conninfo
        self._lake = lake
        self._silence_s = silence_s
        self._masks = masks
        self._reports = reports
        self._opened = ExitStack()
        self._conn: psycopg.Connection[Row] | None = None
        self._recorded: Membership | None = None
        self._until: float | None = None

    def __call__(
        self, relation: Relation, version: RelationVersion | None, last: int, lsn: Lsn
    ) -> tuple[int, ...] | None:
        """Return the attribute numbers of a relation in the commit at `lsn`, or None; raises SourceUnreachable."""
        history = self._history(relation) if version is None else None
        before = _numbers_of(history) if version is None else _numbered(version.relation.columns)
        now = self._visible(relation, [column.name for column in relation.columns], before)
        if not now:  # the table was dropped
            repeated = version.attnums if version is not None and version.relation == relation else None
            found = _of_history(history, relation) if version is None else repeated
        else:
            found = self._match(relation, before, now, last)
        if self._masks is None or not self._masks.has_masked(relation):
            return found
        if version is not None and version.attnums and version.relation == relation and self._reports():
            return version.attnums
        return self._without_names(self._masks, with_attnums(relation, found), now, lsn) if now else None

    def _match(
        self, relation: Relation, before: Mapping[int, str] | None, now: Mapping[int, str | None], last: int
    ) -> tuple[int, ...] | None:
        names = [column.name for column in relation.columns]
        found = match(names, before, now, last)
        if found is not None and (before is None or _is_certain(found, names, before, now, last)):
            return found  # nothing else would change it
        last = max(last, self._last(relation, self._history(relation)))
        now = self._visible(relation, names, before) or now
        return match(names, before, now, last, self._unpublished(relation.oid))

    def _without_names(
        self, masks: Masks, relation: Relation, now: Mapping[int, str | None], lsn: Lsn
    ) -> tuple[int, ...] | None:
        """Return the numbers of a table with a masked column, if they hide its values by whatever name it had."""
        names, hidden = [column.name for column in relation.columns], self._unpublished(relation.oid)
        kept = masks.kept(relation.oid, lsn, self._entries(relation.oid))
        ways = tuple[frozenset[int], ...]()
        for base in self._bases(masks, relation, lsn):
            ways = possible(names, base, now, hidden, kept)
            if admitted := masks.admit(relation, ways, named=bool(hidden)):
                return admitted
        masks.doubt(relation, ways or [frozenset(now)] * len(names))
        return None

    def _bases(self, masks: Masks, relation: Relation, lsn: Lsn) -> Iterator[Collection[int]]:
        """Yield the numbers of columns that were certain before `lsn`: of a message, of the last copy; nothing else."""
        if recorded := masks.certain(relation.oid):
            yield recorded
        history = self._history(relation)
        is_before = history is not None and history.snapshot_lsn < lsn
        copied = _numbered(history.columns_at(history.snapshot_lsn)) if history is not None and is_before else None
        if copied or not recorded:
            yield copied or ()

    def _visible(
        self, relation: Relation, names: Sequence[str], before: Mapping[int, str] | None
    ) -> Mapping[int, str | None]:
        """Read the numbers of a relation, again while it lacks a name; nothing if there is no such relation."""
        new = set(names).difference((before or {}).values())
        if self._until is None:
            self._until = time.monotonic() + VISIBLE_WITHIN_S
        # A new name that the catalog does not have may still become visible, or was there and is gone.
        read = partial(self._read, relation.oid)
        return read_when_visible(read, lambda now: not now or new <= set(now.values()), self._until)

    def close(self) -> None:
        """Close the connection; the next question opens another, and reads the record of the publication again."""
        self._opened.close()
        self._conn, self._recorded, self._until = None, None, None

    def _name(self, relation: Relation) -> TableName:
        if self._recorded is None:
            self._recorded = read_recorded(self._lake)
        return history_of(self._recorded, relation)

    def _history(self, relation: Relation) -> HistoryTable | None:
        """Open the history of a table; None if it has none."""
        history = open_history(self._lake, self._name(relation))
        return history if history is not None and history.oid == relation.oid else None

    def _last(self, relation: Relation, history: HistoryTable | None) -> int:
        """Return the highest number that the lake knows of: of the history, and of the catalog before it was copied."""
        seen = read_catalog_snapshot(self._lake, self._name(relation))
        last = seen.attributes if seen is not None and seen.relation == relation.oid else 0
        return last if history is None else max(last, *(column.attnum or 0 for column in history.columns), 0)

    def _read(self, oid: int) -> Mapping[int, str | None]:
        rows = self._fetch(_ATTRIBUTES, oid)
        return {cast("int", number): None if name is None else str(name) for number, name in rows}

    def _entries(self, oid: int) -> CatalogEntries:
        with answering_within(self._connected, self._silence_s):
            return read_attribute_entries(self._connected, oid)

    def _unpublished(self, oid: int) -> Collection[int]:
        """Return the numbers of a table's columns that may not be published."""
        return {cast("int", number) for (number,) in self._fetch(_UNPUBLISHED, oid, oid)}

    @property
    def _connected(self) -> psycopg.Connection[Row]:
        if self._conn is None:
            self._conn = self._opened.enter_context(connect(self._conninfo))
        return self._conn

    def _fetch(self, sql: LiteralString, *oids: int) -> Sequence[Row]:
        with answering_within(self._connected, self._silence_s):
            return fetch(self._connected, sql, *oids)


def _is_certain(
    found: Sequence[int], names: Sequence[str], before: Mapping[int, str], now: Mapping[int, str | None], last: int
) -> bool:
    """Return whether no column added since was renamed or is gone.

    Else `last`, and what is not published, decide which columns may be in a message.
    """
    dropped = any(name is None and number > max(last, 0, *before) for number, name in now.items())
    return not dropped and _has_known_names(found, names, before, now)


def _numbers_of(history: HistoryTable | None) -> Mapping[int, str] | None:
    return None if history is None else _numbered(history.current)


def _of_history(history: HistoryTable | None, relation: Relation) -> tuple[int, ...] | None:
    """Return the numbers of a dropped table that still had the columns of its history."""
    if history is None:
        return None
    was, now = ([(c.name, c.type_oid, c.typmod) for c in each] for each in (history.current, relation.columns))
    return tuple(_numbered(history.current) or ()) or None if was == now else None


def _numbered(columns: Sequence[Column]) -> Mapping[int, str] | None:
    """Return the columns by number, None if one is not known."""
    numbered = {column.attnum: column.name for column in columns if column.attnum is not None}
    return numbered if len(numbered) == len(columns) else None
