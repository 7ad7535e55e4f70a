"""Reader of one state of a lake. No JVM, no pyspark.

`Reader` pins every table to the Delta version that it had when the reader was created, so all parts of an answer
describe the same lake while capture and apply continue. Rows above the watermark are never returned: `changes` and
`transactions` are read up to a limit that is at most the watermark.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from operator import attrgetter

from auditlake.audit.columns_over_time import Later, TableShapes
from auditlake.delta.sql import Bound, TableFiles, read_log_at, select
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.expiries import expired_upto
from auditlake.lake.gaps import Gap
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.records import read_recorded, read_shape
from auditlake.lsn import Lsn
from auditlake.messages import say
from auditlake.pgoutput.table_shape import Shape
from auditlake.relation import Column, Relation, TableName
from auditlake.schema.evolution import Followed, find_shapes, follow_versions
from auditlake.sql_names import standard_literal
from auditlake.store.place import Place
from auditlake.temporal.knowledge import not_followed, require_kept
from auditlake.temporal.moments import Known, begins_at, has_commits, just_before, read_known, resolve
from auditlake.temporal.table_lookup import find_table, split_name
from auditlake.temporal.when import AtLsn, AtTime, When, format_us, parse_when


@dataclass(frozen=True, slots=True)
class Span:
    """Commits after `after` (exclusive) up to `upto` (inclusive).

    `is_open`: no beginning was asked for, so an answer may begin later, and say so.
    """

    after: Lsn
    upto: Lsn
    is_open: bool = field(default=False, compare=False)

    def __contains__(self, lsn: Lsn) -> bool:
        return self.after < lsn <= self.upto

    def until(self, lsn: Lsn) -> "Span":
        """Return the part of the span up to an LSN."""
        return replace(self, upto=Lsn(min(self.upto, lsn)))

    @property
    def bounds(self) -> Bound:
        """The least and the greatest LSN of a commit in the span."""
        return self.after + 1, self.upto

    def sql(self, lsn: str = "lsn") -> str:
        """Return the condition that an LSN is in the span."""
        return f"({lsn} > {self.after:d} and {lsn} <= {self.upto:d})"


class _ShapesOfTables(Mapping[TableName, TableShapes]):
    """The shapes of every table, found when they are first asked for: a question needs those of few."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._found: dict[TableName, TableShapes] = {}
        self.versions = known.versions

    def __getitem__(self, name: TableName) -> TableShapes:
        if name not in self._found:
            table, upto = self._known.tables[name], self._known.positions.known_lsn
            shapes = find_shapes([table], self.versions, upto)[table]
            self._found[name] = TableShapes(table, shapes, self._known.answers)
        return self._found[name]

    def __iter__(self) -> Iterator[TableName]:
        return iter(self._known.tables)

    def __len__(self) -> int:
        return len(self._known.tables)

    @cached_property
    def _by_oid(self) -> Mapping[int, list[TableName]]:
        """The tables by each OID that they had."""
        found: dict[int, list[TableName]] = {}
        for table in self._known.tables.values():
            for oid in {table.oid, *(former for _, former in table.former_oids)}:
                found.setdefault(oid, []).append(table.name)
        return found

    def _candidates(self, oid: int) -> Iterator[TableShapes]:
        return (self[name] for name in self._by_oid.get(oid, ()))

    def table_with(self, oid: int, lsn: Lsn) -> HistoryTable | None:
        """Return the table that had an OID at `lsn`, as it is stored; None if it has no history."""
        tables = (self._known.tables[name] for name in self._by_oid.get(oid, ()))
        return next((table for table in tables if table.oid_at(lsn) == oid), None)

    def relation(self, number: int) -> Relation:
        """Return a relation version by its number; of a table with a history, with the own names of its columns."""
        relation = self.versions.relation(number)
        owned = (each.relations[number] for each in self._candidates(relation.oid) if number in each.relations)
        return next(owned, relation)

    def of_relation(self, oid: int, name: TableName) -> TableShapes | None:
        """Return the shapes of the table that had an OID and a name at once: an OID may be another table's today."""
        for found in self._candidates(oid):
            if any((v.relation.oid, v.relation.name) == (oid, name) for v in found.shapes.versions):
                return found
        return None


class _InnerTables(Mapping[TableName, HistoryTable]):
    """The tables of a lake, with columns of their own names."""

    def __init__(self, shapes: _ShapesOfTables) -> None:
        self._shapes = shapes

    def __getitem__(self, name: TableName) -> HistoryTable:
        return self._shapes[name].inner

    def __iter__(self) -> Iterator[TableName]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


class Reader:
    """One state of a lake; relative times are relative to `now`, whose zone is used for times without one."""

    def __init__(self, lake: Lake, now: datetime, known: Known | None = None) -> None:
        """Read the state of the lake, unless it is given."""
        self.lake = lake
        self.now = now
        known = known or read_known(lake, by_commits=True)
        self._shapes = _ShapesOfTables(known)
        self.known = replace(known, tables=_InnerTables(self._shapes), as_read=known.tables)
        self._tables: dict[Place, TableFiles] = {}
        self._recorded: dict[TableName, Shape | None] = {}

    def with_clock(self, now: datetime) -> "Reader":
        """Return the same state of the lake with another clock."""
        found = copy(self)
        found.now = now
        return found

    @property
    def zone(self) -> tzinfo:
        """The time zone of `now`."""
        return self.now.tzinfo or UTC

    @property
    def watermark(self) -> Lsn:
        return self.known.positions.watermark

    def relation(self, number: int) -> Relation:
        """Return a relation version by its number, with the own names of columns (`columns_over_time`)."""
        return self._shapes.relation(number)

    def relations_of(self, table: HistoryTable) -> Mapping[int, Relation]:
        """Return the relation versions of a table by number, with the same."""
        return self._shapes[table.name].relations

    def numbers_of(self, oid: int) -> frozenset[int]:
        """Return the numbers of all versions with this OID."""
        return frozenset(version.number for version in self._shapes.versions.of_oid(oid))

    @property
    def changes(self) -> TableFiles | None:
        """`changes` at the pinned version; None if capture has never started."""
        if not self.watermark:
            return None
        positions = self.known.positions
        return self._open(self.lake.changes, positions.delta_version, positions.etag)

    @cached_property
    def expired(self) -> Lsn:
        """The LSN up to which the rows of `changes` have expired; 0 if none has."""
        return expired_upto(self.changes)

    def with_changes(self, span: Span, asked: str) -> Span:
        """Return the part of a span whose changes have not expired; report it if a span without a beginning is longer.

        Raises NotAnswerable if a span begins, or ends, before it.
        """
        return _kept("changes", self.expired, span, asked)

    def with_versions(self, table: HistoryTable, span: Span, asked: str) -> Span:
        """Return the same for a table's versions: before a commit up to the horizon, its rows are not known."""
        rows = f"versions of {table.label} that ended"
        return _kept(rows, table.horizon, span, asked) if table.has_expired else span

    def say_expired(self, table: HistoryTable, span: Span, unknown: str) -> None:
        """Report what is not known of a span if it begins before the horizon of a table whose versions expire."""
        if table.has_expired and span.after < table.horizon:
            say(f"the versions of {table.label} that ended up to {table.horizon} have expired: {unknown}")

    def with_transactions(self, span: Span) -> Span:
        """Return the same for transactions."""
        return _kept("transactions", self.known.expired_transactions, span, "transactions")

    def say_missing(self, span: Span, tables: Collection[HistoryTable] = ()) -> None:
        """Report where changes of a span are missing: of some tables, or of all if none is named."""
        for each in self.known.missing(span.after, span.upto, tables):
            say(each)

    @cached_property
    def transactions(self) -> TableFiles | None:
        """`transactions` at its latest version: a query must limit it to the watermark."""
        return self.known.open_transactions() if self.watermark else None

    def changes_in(self, span: Span) -> TableFiles | None:
        """Return the files of `changes` that may have rows of a span."""
        return None if self.changes is None else self.changes.within(lsn=span.bounds)

    def history(self, table: HistoryTable) -> TableFiles:
        """Return the files of a table's history at the pinned version."""
        return replace(self._open(table.path, table.delta_version, table.etag), gains_columns=True)

    def _open(self, path: Place, version: int, etag: str | None) -> TableFiles:
        if path not in self._tables:
            self._tables[path] = read_log_at(path, version, etag)
        return self._tables[path]

    def table(self, name: str, upto: Lsn | None = None) -> HistoryTable:
        """Find a table by its name on the command line, which it has at `upto`, by default now, or had before.

        Raises BadUsage if there is none, NotAnswerable if it has not been completely copied yet.
        """
        parts = split_name(name)
        for started in (TableName(*parts),) if len(parts) == len(TableName._fields) else ():
            if started in self.known.copying:
                raise NotAnswerable(f"{started} has not been completely copied yet", "Ask again after bootstrap.")
        name_found = self.named(name)
        had = self.known.had(name_found)
        lsn = self.known.last_lsn if upto is None else upto
        called = [(since, each) for each in had if (since := each.called_since(name_found, lsn)) is not None]
        return max(called, key=lambda pair: pair[0])[1] if called else self._nearest(had, lsn)

    def keyed_table(self, name: str, upto: Lsn) -> HistoryTable:
        """Find a table as `table` does, with the key that it had at `upto`."""
        return self.keyed_at(self.table(name, upto), upto)

    def named(self, name: str) -> TableName:
        """Find the name, of one or several tables, that a text on the command line means; raises BadUsage."""
        found = find_table(split_name(name), self.known.names, self.known.in_doubt)
        if found not in self.known.names:
            raise BadUsage(f"{found} is the lake's own table, which has no history", "Name one that is.")
        return found

    def table_at(self, name: str, lsn: Lsn) -> HistoryTable:
        """Find the table with a name at `lsn`, to show its state then; raises BadUsage, NotAnswerable."""
        self.table(name, lsn)
        return self.known.named(find_table(split_name(name), self.known.names), lsn)

    def _nearest(self, had: Sequence[HistoryTable], lsn: Lsn) -> HistoryTable:
        """Return, of tables that do not have their common name at `lsn`, the youngest one that existed then."""
        begun = [table for table in had if table.first_snapshot_lsn <= lsn]
        first = attrgetter("first_snapshot_lsn")
        return max(begun, key=first) if begun else min(had, key=first)

    def moment(self, when: str | None) -> Lsn:
        """Resolve a WHEN; None is now, the latest moment that the lake knows."""
        return resolve(self.known, None if when is None else parse_when(when, self.now))

    def span(self, since: str | None, until: str | None) -> Span:
        """Resolve `--since` and `--until`, both inclusive; None leaves that end open.

        Raises BadUsage, also for a period that begins with a commit after its end; NotAnswerable.
        """
        upto = self.moment(until)
        if since is None:
            return Span(Lsn(0), upto, is_open=True)
        when = parse_when(since, self.now)
        if (begins := self._begins_after(when)) is not None:
            say(f"--since {since} is before this lake begins: the answer starts at {begins}")
            return Span(Lsn(0), upto, is_open=True)
        first, after = resolve(self.known, when), just_before(self.known, when)
        if after > upto and has_commits(self.known, upto, first):
            raise BadUsage(f"the period begins at {since}, after its end at {until}", "Exchange the two moments.")
        return Span(after, upto)

    def _begins_after(self, when: When) -> str | None:
        """Return when the lake begins if that is later than a time or an LSN, else None."""
        if isinstance(when, AtTime):
            begin_us = begins_at(self.known)
            return None if begin_us is None or when.time_us >= begin_us else format_us(begin_us, self.zone)
        first = Lsn(min(table.first_snapshot_lsn for table in self.known.listed))
        return str(first) if isinstance(when, AtLsn) and when.lsn < first else None

    def check(self, table: HistoryTable, lsn: Lsn, when: str | None = None) -> None:
        """Check that the state of `table` at `lsn` is known; raises NotAnswerable."""
        moment = None if when is None else parse_when(when, self.now)
        self.known.timeline(table).require((lsn, moment))
        self.check_followed(table, lsn)

    def followed_to(self, table: HistoryTable, lsn: Lsn) -> Followed:
        """Return what follows from the schema changes of a table up to `lsn` that are not applied yet.

        It ends before a change of the key (`cut_at`), unless no row was changed meanwhile.
        """
        found = self._shapes[table.name]
        following = [version for version in found.shapes.following if version.lsn <= lsn]
        followed = follow_versions(found.table, following, found.answers, table.position)
        if followed.cut_at is not None and not self._is_changed(table, lsn):
            return follow_versions(found.table, following, found.answers)
        return followed

    def _is_changed(self, table: HistoryTable, lsn: Lsn) -> bool:
        """Return whether a row was changed after a table's position and up to `lsn`."""
        span = Span(table.position, lsn).until(self.watermark)
        if span.upto <= span.after:
            return False
        condition = f"{self.about(table.name)} and {span.sql()}"
        found = select(f"select lsn from changes where {condition} limit 1", changes=self.changes_in(span))
        return bool(found.num_rows)

    def check_followed(self, table: HistoryTable, lsn: Lsn) -> None:
        """Check that each schema change up to `lsn` can be followed, applied or not; raises NotAnswerable."""
        followed = self.followed_to(table, lsn)
        if followed.cut_at is not None:
            raise not_followed(table, lsn, Lsn(followed.cut_at - 1), None)
        if followed.refusal is not None and followed.refused_at is not None:
            raise not_followed(table, lsn, Lsn(followed.refused_at - 1), followed.refusal)

    def gaps_of(self, table: HistoryTable) -> list[Gap]:
        """Return the gaps of a table."""
        return [gap for gap in self.known.gaps if gap.is_of(table.name)]

    def columns_at(self, table: HistoryTable, lsn: Lsn) -> tuple[Column, ...]:
        """Return the columns that `table` had at `lsn`, under the names that they had then."""
        return self._shapes[table.name].columns_at(lsn)

    def keyed_at(self, table: HistoryTable, lsn: Lsn) -> HistoryTable:
        """Return a table with the key that it had at `lsn`."""
        return self._shapes[table.name].keyed_at(min(lsn, table.position))

    def rekeyed_at(self, table: HistoryTable, lsn: Lsn) -> Lsn | None:
        """Return the last commit up to `lsn` from which on other columns identify a row; None if there is none."""
        return self._shapes[table.name].rekeyed_at(lsn)

    def recorded_shape(self, name: TableName) -> Shape | None:
        """Return the last shape of a table that capture recorded; None if there is none."""
        if name not in self._recorded:
            self._recorded[name] = read_shape(self.lake, name)
        return self._recorded[name]

    def shapes_of(self, table: HistoryTable) -> TableShapes:
        """Return the shapes of a table."""
        return self._shapes[table.name]

    @property
    def shapes(self) -> Collection[TableShapes]:
        """The shapes of every table."""
        return self._shapes.values()

    def physical_columns(self, table: HistoryTable, name: str, lsn: Lsn) -> frozenset[str]:
        """Return the stored names, under all types, of the column with a name at `lsn`; raises BadUsage."""
        shapes = self._shapes[table.name]
        stored = shapes.stored_as(name, lsn)
        if stored is None:
            names = dict.fromkeys((*(c.name for c in self.columns_at(table, lsn)), *shapes.own_names.values()))
            raise BadUsage(f"{table.last_name} has no column {name}", f"It has {', '.join(names)}.")
        return shapes.same_column(stored)

    def listed_tables(self) -> frozenset[TableName]:
        """Return the histories of tables that the publication lists one by one, or that it is not known of."""
        recorded = read_recorded(self.lake)
        members = {} if recorded is None else recorded.tables
        return frozenset(n for n in self.known.tables if (m := members.get(n)) is None or m.entry is not None)

    def own_names(self, table: HistoryTable) -> Mapping[str, str]:
        """Return the own name of every column of a table, by the name under which its history stores it."""
        return self._shapes[table.name].own_names

    def shown_at(self, table: HistoryTable, lsn: Lsn, values: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return a row of own names in the columns that the table had at `lsn`, under the names that they had then."""
        return self._shapes[table.name].shown_at(lsn, values)

    def later(self, name: TableName) -> Mapping[str, Later]:
        """Return the columns added to the table of a history since its snapshot, applied yet or not, by own name."""
        return self._shapes[name].later

    def later_of(self, relation: Relation) -> Mapping[str, Later]:
        """Return the same for the table of a relation version; nothing if it has no history."""
        found = self._shapes.of_relation(relation.oid, relation.name)
        return {} if found is None else found.later

    def table_of(self, relation: Relation) -> HistoryTable | None:
        """Return the table of a relation version; None if it has no history."""
        found = self._shapes.of_relation(relation.oid, relation.name)
        return None if found is None else found.inner

    def table_with(self, oid: int, lsn: Lsn) -> HistoryTable | None:
        """Return the table that had an OID at `lsn`, as it is stored; None if it has no history."""
        return self._shapes.table_with(oid, lsn)

    def about(self, name: TableName) -> str:
        """Return the condition that a row of `changes` belongs to the table of a history, under whatever name then.

        Of a table without a history, `name` is its own.
        """
        found = self._shapes.get(name)
        if found is None or (found.names == {name} and len(self.known.had(name)) == 1):
            return about(name)
        numbers = ", ".join(map(str, sorted(found.shapes.numbers)))
        return f"relation in ({numbers})" if numbers else "false"


def _kept(rows: str, expired: Lsn, span: Span, asked: str) -> Span:
    if span.after >= expired:
        return span
    is_open = span.is_open or not span.after
    require_kept(rows, expired, Lsn(span.upto if is_open else span.after + 1), asked)
    say(f"the {rows} up to {expired} have expired: the answer starts there")
    return Span(expired, span.upto, is_open=is_open)


def about(table: TableName) -> str:
    """Return the condition that a row of `changes` belongs to this table."""
    return f'"schema" = {standard_literal(table.schema)} and "table" = {standard_literal(table.table)}'


_MOST_IN_LIST = 20


def in_lsns(lsns: Iterable[int], most: int = _MOST_IN_LIST) -> str:
    """Return a condition that `lsn` is one of these: a range if they are more, so that files are skipped."""
    wanted = sorted(set(lsns))
    if not wanted:
        return "false"
    if len(wanted) <= most:
        return f"lsn in ({', '.join(f'{lsn:d}' for lsn in wanted)})"
    return f"lsn between {wanted[0]:d} and {wanted[-1]:d}"
