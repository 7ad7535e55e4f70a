"""The columns of a table over time, for the audit commands: one name for each column, and the names of every moment.

Audit rows have every column the table ever had. A column has one *own name* at all moments: its current or last name.
If a dropped column and another one share a name, one gets a number. So a row is the same whether it is read from before
or after a change of the table, from the history or from the tail. A column that was added later shows its missing value
in older rows. Output as of a moment has the columns of that moment, under their names of that moment
(`TableShapes.columns_at`).

A column whose type was rewritten has several physical columns (`lake.column_identity`). They share one own name, so
that values from before and after are compared: `versions.history_texts` reads each row from the one of its moment.

`inner` is the history with columns of their own names, and `relations` are the relation versions, with the same.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count

from auditlake.lake.column_identity import possible, source_columns
from auditlake.lake.history import HistoryTable
from auditlake.lake.relations import RelationVersion, ShapeSource
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.relation import Column, Relation, TableName
from auditlake.schema.evolution import Followed, Shapes, follow_versions
from auditlake.schema.missing_values import Added, Answers, Existing
from auditlake.values.types import is_widened


@dataclass(frozen=True, slots=True)
class Later:
    """A column added in the commit at `since`, if that is `exact`, else by then; older rows show `missing` in it."""

    since: Lsn
    missing: str | None
    exact: bool


@dataclass(frozen=True)
class TableShapes:
    """The shapes of one table."""

    table: HistoryTable
    shapes: Shapes
    answers: Answers

    @cached_property
    def followed(self) -> Followed:
        """The columns up to the last version that the history can follow, applied yet or not."""
        return follow_versions(self.table, self.shapes.following, self.answers)

    @cached_property
    def _source_columns(self) -> Sequence[tuple[Column, ...]]:
        """The physical columns of each column of the source, oldest first."""
        return source_columns(self.followed.physical, self.table.former_oids)

    @cached_property
    def own_names(self) -> Mapping[str, str]:
        """The own name of every column, by the names under which the history stores it."""
        live = {column.stored: column.name for column in self.followed.columns}
        taken, names = set(live.values()), dict[str, str]()
        for types in self._source_columns:
            name = next((live[column.stored] for column in types if column.stored in live), None)
            if name is None:
                numbered = (f"{types[-1].name}~{n}" for n in count(2))
                name = next(each for each in chain([types[-1].name], numbered) if each not in taken)
                taken.add(name)
            names |= dict.fromkeys((column.stored for column in types), name)
        return {column.stored: names[column.stored] for column in self.followed.physical}

    @cached_property
    def begins(self) -> Mapping[str, Lsn]:
        """The commit since which the table has each physical column, by stored name; 0 if the snapshot had it."""
        return {column.stored: column.since or Lsn(0) for column in self.followed.physical}

    @cached_property
    def inner(self) -> HistoryTable:
        """The history with the columns that it has, under their own names; a type may be wider than it is there yet."""
        return replace(self.table, columns=tuple(self._own(column) for column in self.table.columns))

    def _own(self, column: Column) -> Column:
        own, key = self.own_names[column.stored], column.at(self.table.position).key
        stored_as = None if column.stored == own else column.stored
        return replace(self.widened(column), name=own, stored_as=stored_as, former=(), key=key)

    def widened(self, column: Column) -> Column:
        """Return a column with its type after the tail, which may be wider than in the history."""
        now = self._types.get(column.stored, column)
        return replace(column, type_oid=now.type_oid, typmod=now.typmod)

    @cached_property
    def _types(self) -> Mapping[str, Column]:
        """The columns with the widest type that each gets in the tail, by the names in which the history has them.

        A type that is not wider than the one before ends what the history can follow.
        """
        widest = {column.stored: column for column in self.followed.physical}
        for now in (column for each in self.shapes.following for column in self.columns_at(each.lsn)):
            if now.stored in widest and is_widened(widest[now.stored].type, now.type):
                widest[now.stored] = now
        return widest

    def keyed_at(self, lsn: Lsn) -> HistoryTable:
        """Return `inner` with the key that the table had at `lsn`."""
        keys = {column.stored for column in self.table.columns if column.exists_at(lsn) and column.at(lsn).key}
        if keys == {column.stored for column in self.inner.key}:
            return self.inner
        return replace(self.inner, columns=with_key(self.inner.columns, keys))

    def advanced(self, followed: Followed, position: Lsn, key: Collection[str]) -> HistoryTable:
        """Return `inner` at a later position, in the columns there, with these as its key, by stored name."""
        columns = with_key([self._own(column) for column in followed.physical], key)
        return replace(self.table, columns=columns, names=followed.names, position=position)

    @cached_property
    def rekeyed(self) -> tuple[Lsn, ...]:
        """The commits that changed which columns identify a row, in order."""
        columns = self.followed.physical
        moments = {m for c in columns for m in (c.since, c.until, *(f.until for f in c.former)) if m}
        return tuple(m for m in sorted(moments) if self._key_at(Lsn(m - 1)) != self._key_at(m))

    def rekeyed_at(self, lsn: Lsn) -> Lsn | None:
        """Return the last commit up to `lsn` from which on other columns identify a row; None if there is none."""
        return next((moment for moment in reversed(self.rekeyed) if moment <= lsn), None)

    def of_one_key(self, lsn: Lsn) -> tuple[Lsn, Lsn]:
        """Return the first and the last LSN around `lsn` at which the same columns identify a row."""
        ends = (Lsn(moment - 1) for moment in self.rekeyed if moment > lsn)
        return self.rekeyed_at(lsn) or Lsn(0), next(ends, LAST_LSN)

    def key_of(self, number: int, lsn: Lsn) -> list[tuple[Column, str]]:
        """Return the columns of a relation version that identify a row at `lsn`, each with its own name."""
        key = self._key_at(lsn)
        version = next(version for version in self.shapes.versions if version.number == number)
        names = (self.own_names.get(stored, stored) for stored in self._stored(version, lsn))
        return [(column, own) for column, own in zip(version.relation.columns, names, strict=True) if own in key]

    def _key_at(self, lsn: Lsn) -> frozenset[str]:
        key = (c.stored for c in self.followed.physical if c.exists_at(lsn) and c.at(lsn).key)
        return frozenset(self.own_names[stored] for stored in key)

    @cached_property
    def names(self) -> frozenset[TableName]:
        """Every name that the table had."""
        return frozenset((*self.table.all_names, *(name for _, name in self.followed.names)))

    @property
    def every_name(self) -> frozenset[TableName]:
        """Every name that the table had, also after a change that its history cannot follow."""
        return self.names | {version.relation.name for version in self.shapes.versions}

    @cached_property
    def names_of_columns(self) -> Mapping[frozenset[str], Collection[str]]:
        """Every name of each column: at any moment, its own, and in the history, under each of its types.

        A column is the set of its stored names. Names after a change that the history cannot follow are among them.
        """
        found: dict[frozenset[str], set[str]] = {}
        for column in self.followed.physical:
            names = found.setdefault(self.same_column(column.stored), set())
            names |= {column.name, column.stored, self.own_names[column.stored], *(each.name for each in column.former)}
        for version in self.shapes.versions:
            for described, stored in zip(version.relation.columns, self._stored(version, version.lsn), strict=True):
                found.setdefault(self.same_column(stored), {stored}).add(described.name)
        return found

    def which_may_be(self, version: RelationVersion) -> Sequence[Collection[str]]:
        """Return the stored names of the columns that each column of a version may be, if that is not known.

        They follow from order and existence, as for capture (`lake.column_identity`), else it may be any. Columns
        without numbers are compared by name, and none may be another.
        """
        names = [column.name for column in version.relation.columns]
        if version.attnums is not None:
            return [()] * len(names)
        had = [column for column in self.followed.physical if column.exists_at(Lsn(version.lsn - 1))]
        if any(column.attnum is None for column in had):
            return [()] * len(names)
        numbers = {column.stored: column.attnum for column in self.followed.physical}
        live = {column.attnum or 0 for column in self.followed.physical if column.until is None}
        later = range(1, max(live, default=0) + len(names) + 1)  # others may have been added and dropped since
        now = {number: "" if number in live else None for number in later}
        ways = possible(names, {column.attnum or 0 for column in had}, now)
        if not ways or self.table.former_oids:
            return [list(numbers)] * len(names)
        return [[stored for stored, number in numbers.items() if number in way] for way in ways]

    def stored_as(self, name: str, lsn: Lsn) -> str | None:
        """Return the physical column that has a name at `lsn`, or this own name; None if none has."""
        found = next((c.stored for c in self.columns_at(lsn) if c.name == name), None)
        return found or next((stored for stored, own in self.own_names.items() if own == name), None)

    def same_column(self, stored: str) -> frozenset[str]:
        """Return the physical columns of the source's column that one of them belongs to: one for each type."""
        own = self.own_names.get(stored)
        return frozenset({stored, *(each for each, name in self.own_names.items() if name == own)})

    def stored_under(self, name: str) -> frozenset[str]:
        """Return the physical columns of all columns that have or had a name."""
        had = (c for c in self.followed.physical if name in {c.name, *(former.name for former in c.former)})
        return frozenset(stored for column in had for stored in self.same_column(column.stored))

    @cached_property
    def relations(self) -> Mapping[int, Relation]:
        """The relation versions of the table by number, with the own names of their columns."""
        return {version.number: self._owned(version) for version in self.shapes.versions}

    def _owned(self, version: RelationVersion) -> Relation:
        later = (each.lsn for each in self.shapes.versions if each.lsn > version.lsn)
        end = Lsn(min(later, default=max(version.lsn, self.table.position) + 1) - 1)
        columns = zip(version.relation.columns, self._stored(version, end), strict=True)
        owned = (replace(column, name=self.own_names.get(stored, stored)) for column, stored in columns)
        return replace(version.relation, columns=tuple(owned))

    def _stored(self, version: RelationVersion, lsn: Lsn) -> Iterator[str]:
        """Yield the stored name of each column of a version at an LSN; its name if the history cannot follow it.

        A column with a number is no other one of its name, which it may have had before in the same transaction.
        """
        is_earlier = version.lsn <= self._source_since
        lsn = max(min(lsn, Lsn(self._source_since)) if is_earlier else lsn, self.table.first_snapshot_lsn)
        had = [column.at(lsn) for column in self.followed.physical if column.exists_at(lsn)]
        by_name = {column.name: column.stored for column in had}
        by_number: dict[int, str] = {}
        if version.attnums is not None and not is_earlier:  # an earlier source had other numbers
            by_number = self._numbered_before(lsn)
            by_number |= {column.attnum: column.stored for column in had if column.attnum is not None}
            by_name = {c.name: self._apart(c.name) for c in version.relation.columns if c.name in self._taken}
            by_name |= {column.name: column.stored for column in had if column.attnum is None}
        for column, may_be in zip(version.relation.columns, self.which_may_be(version), strict=True):
            numbered = None if column.attnum is None else by_number.get(column.attnum)
            yield numbered or self._only(may_be, had) or by_name.get(column.name) or column.name

    def _only(self, may_be: Collection[str], had: Iterable[Column]) -> str | None:
        """Return the stored name of a column that can be no other; None if that is not known."""
        if len({self.own_names[stored] for stored in may_be}) != 1:
            return None
        return next((column.stored for column in had if column.stored in may_be), next(reversed([*may_be])))

    @cached_property
    def _source_since(self) -> int:
        """The LSN up to which the table was of an earlier source; -1 if it never was."""
        return max((upto for upto, _ in self.table.former_oids), default=-1)

    def _numbered_before(self, lsn: Lsn) -> dict[int, str]:
        """Return the last physical column up to an LSN that had each number in this source, whether it exists then."""
        begun = [c for c in self.followed.physical if (c.since or 0) <= lsn and (c.until or lsn) > self._source_since]
        return {c.attnum: c.stored for c in sorted(begun, key=lambda c: c.since or 0) if c.attnum is not None}

    @cached_property
    def _taken(self) -> frozenset[str]:
        """The own names and the stored names of the columns that the history can follow."""
        return frozenset((*self.own_names, *self.own_names.values()))

    def _apart(self, name: str) -> str:
        """Return a name for a column that the history cannot follow, beside another one of its name."""
        return next(each for each in (f"{name}~{number}" for number in count(2)) if each not in self._taken)

    def columns_at(self, lsn: Lsn) -> tuple[Column, ...]:
        """Return the columns that the table had at `lsn`: of the relation version in force, else of the snapshot."""
        known = (v for v in reversed(self.shapes.versions) if self.table.first_snapshot_lsn < v.lsn <= lsn)
        version = next(known, None)
        if version is None:
            return self.table.columns_at(Lsn(max(self.table.first_snapshot_lsn, min(lsn, self.table.position))))
        columns = zip(version.relation.columns, self._stored(version, lsn), strict=True)
        return tuple(replace(c, stored_as=None if stored == c.name else stored) for c, stored in columns)

    def described_by(self, lsn: Lsn) -> Mapping[str, Column]:
        """Return each column as the last relation version up to `lsn` that has it, by the name in the history."""
        versions = (version for version in self.shapes.versions if version.lsn <= lsn)
        pairs = (zip(self._stored(each, each.lsn), each.relation.columns, strict=True) for each in versions)
        return dict(chain.from_iterable(pairs))

    def shown_at(self, lsn: Lsn, values: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return a row of own names in the columns of a moment."""
        columns = ((column.name, self.own_names.get(column.stored, column.stored)) for column in self.columns_at(lsn))
        return {name: values[own] for name, own in columns if own in values}

    @cached_property
    def later(self) -> Mapping[str, Later]:
        """The columns added since the snapshot by own name, in the history yet or not."""
        found = {}
        exact = {version.lsn for version in self.shapes.versions if version.source is ShapeSource.DDL_TRIGGER}
        for column, *_ in self._source_columns:
            if column.since is not None and column.since > self.table.first_snapshot_lsn:
                since = column.since
                answer = self._answer(self._name_as_added(column, since), since)
                if answer is not None and answer.problem is None:
                    found[self.own_names[column.stored]] = Later(since, answer.value, since in exact)
        return found

    def _name_as_added(self, column: Column, since: Lsn) -> str:
        """Return the name under which a column was added; it may have got another one in the same transaction."""
        shown = (c for each in self.shapes.versions if each.lsn == since for c in each.relation.columns)
        same = (c.name for c in shown if c.attnum is not None and c.attnum == column.attnum)
        return next(same, column.at(since).name)

    def _answer(self, name: str, lsn: Lsn) -> Existing | None:
        oids = {version.relation.oid for version in self.shapes.versions}
        return next((self.answers[added] for oid in oids if (added := Added(oid, name, lsn)) in self.answers), None)


def with_key(columns: Iterable[Column], key: Collection[str]) -> tuple[Column, ...]:
    """Return the columns with another key, at every moment: those with these stored names."""
    return tuple(
        replace(c, key=True, since=None, until=None) if c.stored in key else replace(c, key=False) for c in columns
    )
