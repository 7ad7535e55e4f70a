"""Schema evolution: follow the columns of a table along its tail, and map each relation version to the history. Pure.

`relations` has the versions of the table's relation, each with the commit from which it is in force. From version to
version:

1. A column is the same if its attribute number is. It may have another name.
2. A column may be added, if its value in existing rows is decided (`schema.missing_values`). Its name may be that of an
   earlier column.
3. A column may be dropped. Its values stay in the history.
4. A column may get a wider type that keeps the text of every value (`values.types.is_widened`).
5. The table may get another name, and the key other columns; a table with a key may not lose it, and one without may
   not get one: equal rows are told apart by number there. A key that no row was changed with, because its own
   transaction replaced it, does not count.
6. Any other change of type is refused, at its LSN: it changes existing rows, and the stream does not contain them. So
   is a version whose columns are not identified. `reshaped` gives the columns with which a new snapshot continues.

Without attribute numbers columns are compared by name. A column that is missing may then have been renamed or dropped,
so it is refused.

A column exists *since* the commit of the first change that has it, and *until* the commit of the first that lacks it.
If one transaction changes the table in both shapes, all of it counts as after the change.

A tail is folded at once although its columns change inside it. The fold uses the union of the columns of all relation
versions (`Followed.folded`). A table without a key compares whole rows, so its fold uses the columns at the end of the
tail. In two cases rows before and after a change are not comparable, and the tail is cut there (`cut_at`): the key
changes, or a table without a key loses a column.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from auditlake.errors import Unsupported
from auditlake.lake.column_names import stored_beside
from auditlake.lake.history import HistoryTable, add_name, type_of
from auditlake.lake.parking import RENEWED_BY_FOLLOW
from auditlake.lake.relations import RelationVersion, RelationVersions
from auditlake.lsn import Lsn
from auditlake.relation import Column, Former, Relation, ReplicaIdentity, TableName, in_order
from auditlake.schema.missing_values import Added, Answers
from auditlake.values.input_syntax import type_name
from auditlake.values.types import has_padded_elements, is_built_in, is_padded, is_widened

_KEPT = "Everything before that LSN is in the history; all changes after it are kept in `changes`."
ANEW = f"{_KEPT} {RENEWED_BY_FOLLOW}"

NOT_ASKED = f"Run auditlake follow, or auditlake capture and then auditlake apply: capture asks. {_KEPT}"
"""Capture asks when it starts, and about each new version of a table whose history it knows."""


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that is added in a tail; `missing` is the text of its value in existing rows, None for NULL."""

    column: Column
    missing: str | None

    @property
    def since(self) -> Lsn:
        """Return the commit LSN since which the table has the column."""
        assert self.column.since is not None  # noqa: S101 - made with one
        return self.column.since


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of folded columns in a relation version, None if it lacks one; `whole_old`: REPLICA IDENTITY FULL."""

    places: tuple[int | None, ...]
    width: int
    whole_old: bool

    @property
    def is_plain(self) -> bool:
        """Whether its tuples have the folded columns in their order."""
        return self.places == tuple(range(self.width))

    @property
    def targets(self) -> dict[int, int]:
        """The folded column of each place; none of one that a table without a key has dropped."""
        return {place: target for target, place in enumerate(self.places) if place is not None}


@dataclass(frozen=True, slots=True)
class Followed:
    """The columns along a tail, and the layout of each relation version by its number.

    `folded` are the columns at the history's position, as they are at the tail's end, and those in `added`. `physical`
    are all physical columns of the history, and `names` the later names of the table, with the changes of the tail.
    After a refusal or a cut these describe the tail before `refused_at` or `cut_at`.
    """

    folded: tuple[Column, ...]
    added: tuple[AddedColumn, ...]
    layouts: Mapping[int, Layout]
    physical: tuple[Column, ...] = ()
    names: tuple[tuple[Lsn, TableName], ...] = ()
    refusal: Unsupported | None = None
    refused_at: Lsn | None = None
    cut_at: Lsn | None = None
    rekeyed_at: Lsn | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns at the end of the tail, in the order of the source's table."""
        return in_order([column for column in self.folded if column.until is None])

    @property
    def fills(self) -> bool:
        """Return whether older rows show a value in a column that was added."""
        return any(addition.missing is not None for addition in self.added)

    def last_lsn(self, upto: Lsn) -> Lsn:
        """Return the last commit up to `upto` whose changes can be folded together."""
        stops = [lsn for lsn in (self.refused_at, self.cut_at) if lsn is not None]
        return Lsn(min([upto, *(lsn - 1 for lsn in stops)]))


@dataclass(frozen=True, slots=True)
class Shapes:
    """The relation versions of one table in order, and those that follow its position."""

    versions: tuple[RelationVersion, ...]
    following: tuple[RelationVersion, ...]

    @property
    def numbers(self) -> frozenset[int]:
        """Return the numbers of its versions."""
        return frozenset(version.number for version in self.versions)


def find_shapes(tables: Iterable[HistoryTable], versions: RelationVersions, upto: Lsn) -> dict[HistoryTable, Shapes]:
    """Find the relation versions of tables up to an LSN, by the OID that each had in its source."""
    return {table: _shapes_of(table, versions, upto) for table in tables}


def _shapes_of(table: HistoryTable, versions: RelationVersions, upto: Lsn) -> Shapes:
    own = tuple(version for version in _own(table, versions) if version.lsn <= upto)
    return Shapes(own, tuple(version for version in own if version.lsn > table.position))


def _own(table: HistoryTable, versions: RelationVersions) -> list[RelationVersion]:
    """Return the versions of a table in order, each with the OID that it had then."""
    own, since = [], -1
    for upto, former in table.former_oids:
        own += [version for version in versions.of_oid(former) if since < version.lsn <= upto]
        since = upto
    return own + [version for version in versions.of_oid(table.oid) if version.lsn > since]


def follow_versions(
    table: HistoryTable,
    versions: Iterable[RelationVersion],
    answers: Answers,
    first_change: Lsn | None = None,
    *,
    used: Collection[int] = (),
) -> Followed:
    """Follow the versions after a table's position in order, up to the first one that is refused, or needs a cut.

    `first_change` is the LSN of the first change after the position, if there is one; `used` are the numbers of the
    versions that changes have.
    """
    walk, every = _Walk(table, answers), list(versions)
    last = {version.lsn: version.number for version in every}
    for version in every:
        passes = version.number != last[version.lsn] and version.number not in used
        try:
            step = walk.step(version, passes=passes)
        except Unsupported as refusal:
            return replace(walk.followed(), refusal=refusal, refused_at=version.lsn)
        if walk.is_apart(step) and first_change is not None and first_change < version.lsn:
            return replace(walk.followed(), cut_at=version.lsn)
        walk.take(step)
    return walk.followed()


@dataclass(frozen=True, slots=True)
class _Step:
    """One relation version mapped to the history.

    `stored[i]` is the stored name of the relation's column i; `added` are columns that first appear here; `key` are the
    stored names of the key.
    """

    version: RelationVersion
    stored: tuple[str, ...]
    added: tuple[AddedColumn, ...]
    key: frozenset[str]

    @property
    def now(self) -> dict[str, Column]:
        return dict(zip(self.stored, self.version.relation.columns, strict=True))


class _Walk:
    """The columns along the versions of a tail."""

    def __init__(self, table: HistoryTable, answers: Answers) -> None:
        self._table = table
        self._answers = answers
        self._folded = [_rewound(c, table.position) for c in table.columns if c.exists_at(table.position)]
        self._names = [name for name in table.names if name[0] <= table.position]
        self._added: list[AddedColumn] = []
        self._steps: dict[int, _Step] = {}
        self._rekeyed_at: Lsn | None = None

    @property
    def _live(self) -> list[Column]:
        return [column for column in self._folded if column.until is None]

    def step(self, version: RelationVersion, *, passes: bool) -> _Step:
        """Identify the columns of a version; raises Unsupported.

        A version `passes` if its own transaction replaces it before any row is changed. Its key is then in force at no
        moment: DROP CONSTRAINT and ADD PRIMARY KEY in one transaction are one change.
        """
        live, relation = self._live, version.relation
        found = _identified(self._table, live, version)
        _check_types(self._table, version, found)
        added = self._new_columns(version, [c for c, was in zip(relation.columns, found, strict=True) if was is None])
        new = iter(added)
        stored = tuple((next(new).column if was is None else was).stored for was in found)
        key = _key(live, stored, relation, passes=passes)
        if not key and any(column.key for column in live):
            raise Unsupported(f"{self._table.label} has no key any more from {version.lsn} on", ANEW)
        if key and live and not any(column.key for column in live):
            raise Unsupported(f"{self._table.label} has its first key from {version.lsn} on", ANEW)
        return _Step(version, stored, tuple(added), key)

    def _new_columns(self, version: RelationVersion, columns: Iterable[Column]) -> list[AddedColumn]:
        added: list[AddedColumn] = []
        for column in columns:
            missing = _missing(self._table, version, column, self._answers)
            beside = [*self._table.columns, *self._folded, *(other.column for other in added)]
            made = next((c for c in self._table.columns if self._was_made_for(c, column, version.lsn)), None)
            stored_as = made.stored_as if made else stored_beside(column.name, beside)
            new = replace(column, key=False, stored_as=stored_as, since=version.lsn)
            added.append(AddedColumn(new, missing))
        return added

    def _was_made_for(self, recorded: Column, column: Column, lsn: Lsn) -> bool:
        """Return whether a killed run recorded a physical column for one that is added at `lsn`."""
        if recorded.since != lsn or lsn <= self._table.position:
            return False
        if recorded.attnum is not None and column.attnum is not None:
            return recorded.attnum == column.attnum
        return recorded.at(lsn).name == column.name

    def is_apart(self, step: _Step) -> bool:
        """Return whether changes before a version cannot be folded together with those after it."""
        key = {column.stored for column in self._live if column.key}
        before = self._steps.get(step.version.number)
        recurs = before is not None and before.stored != step.stored
        is_dropped = not {column.stored for column in self._live}.issubset(step.stored)
        return recurs or step.key != key or (is_dropped and not key)

    def take(self, step: _Step) -> None:
        """Continue with the columns of a version."""
        if step.key != {column.stored for column in self._live if column.key}:
            self._rekeyed_at = step.version.lsn
        now, lsn = step.now, step.version.lsn
        fresh = [replace(new.column, key=new.column.stored in step.key) for new in step.added]
        changed = (_continued(c, now.get(c.stored), lsn, key=c.stored in step.key) for c in self._folded)
        self._folded = [*changed, *fresh]
        self._added += step.added
        self._steps[step.version.number] = step
        add_name(self._names, self._table, lsn, step.version.relation.name)

    def followed(self) -> Followed:
        """Return the columns so far."""
        by_stored = {column.stored: column for column in self._folded}
        known = {column.stored for column in self._table.columns}
        kept = (by_stored.get(column.stored, column) for column in self._table.columns)
        physical = (*kept, *(column for column in self._folded if column.stored not in known))
        # Whole rows without a key are compared in the columns that they have in the end. No change of the tail has a
        # column that was dropped together with the key that it was in.
        keyed = any(column.key for column in self._live)
        folded = tuple(replace(c, key=c.key and c.until is None) for c in (self._folded if keyed else self._live))
        added = tuple(
            AddedColumn(by_stored[new.column.stored], new.missing)
            for new in self._added
            if by_stored[new.column.stored] in folded
        )
        layouts = {number: _layout(folded, step) for number, step in self._steps.items()}
        return Followed(folded, added, layouts, physical, tuple(self._names), rekeyed_at=self._rekeyed_at)


def _rewound(column: Column, lsn: Lsn) -> Column:
    """Return a column as it was at `lsn`, with its names until then, if a killed run recorded more."""
    then = column.at(lsn)
    until = None if column.until is None or column.until > lsn else column.until
    former = tuple(each for each in column.former if each.until <= lsn)
    stored_as = None if column.stored == then.name else column.stored
    return replace(then, stored_as=stored_as, until=until, former=former)


def _continued(column: Column, now: Column | None, lsn: Lsn, *, key: bool) -> Column:
    """Return a column with its name and key from `lsn` on; `now` is None if the table does not have it any more."""
    if column.until is not None:
        return column
    if now is None:
        return replace(column, until=lsn)
    attnum = column.attnum if now.attnum is None else now.attnum
    if (now.name, key) == (column.name, column.key):
        return replace(column, attnum=attnum)
    former = (*column.former, Former(lsn, column.name, column.key))
    stored_as = None if column.stored == now.name else column.stored
    return replace(column, name=now.name, key=key, stored_as=stored_as, attnum=attnum, former=former)


def _retyped(column: Column, now: Column, lsn: Lsn) -> Column:
    """Return a column with the type that it has from `lsn` on; own types have other OIDs on another server."""
    former = column.former
    if column.type != now.type and is_built_in(column.type_oid):
        renamed = former[-1] if former and former[-1].until == lsn else None
        last = renamed or Former(lsn, column.name, column.key)
        former = (*(each for each in former if each is not renamed), replace(last, type=column.type))
    return replace(column, type_oid=now.type_oid, typmod=now.typmod, former=former)


def _layout(folded: Sequence[Column], step: _Step) -> Layout:
    places = {stored: place for place, stored in enumerate(step.stored)}
    here = tuple(places.get(column.stored) for column in folded)
    return Layout(here, len(step.stored), step.version.relation.replica_identity == ReplicaIdentity.FULL)


def _identified(table: HistoryTable, live: Sequence[Column], version: RelationVersion) -> list[Column | None]:
    """Return the history's column of each of a relation, None for an added one; raises Unsupported."""
    relation = version.relation
    if any(column.attnum is None for column in live):
        by_name = {column.name: column for column in live}
        if by_name.keys() - {column.name for column in relation.columns}:
            raise _changed(table, live, version)
        return [by_name.get(column.name) for column in relation.columns]
    if version.attnums is None:
        raise Unsupported(
            f"columns of {table.label} changed at {version.lsn}: the catalog has changed since, so that it does"
            f" not show which columns {', '.join(column.name for column in relation.columns)} are",
            ANEW,
        )
    by_number = {column.attnum: column for column in live}
    return [by_number.get(column.attnum) for column in relation.columns]


def _check_types(table: HistoryTable, version: RelationVersion, found: Sequence[Column | None]) -> None:
    for now, was in zip(version.relation.columns, found, strict=True):
        if was is not None and not _holds(was, now):
            raise Unsupported(
                f"columns of {table.label} changed at {version.lsn}: the history has {_described(was)}; the stream"
                f" has {_described(now)}: existing rows were rewritten, which the stream does not contain",
                ANEW,
            )


def _missing(table: HistoryTable, version: RelationVersion, column: Column, answers: Answers) -> str | None:
    answer = answers.get(Added(version.relation.oid, column.name, version.lsn))
    what = f"column {column.name} was added to {table.label} by {version.lsn}"
    if answer is None:
        raise Unsupported(
            f"{what}, and the source was not asked what older rows show in it",
            NOT_ASKED,
        )
    if answer.problem is not None:
        raise Unsupported(f"{what}, and what older rows show in it is not known: {answer.problem}", ANEW)
    return answer.value


def _holds(column: Column, now: Column) -> bool:
    """Whether the source's column still has the history's type, or a wider one.

    The history keeps its type. A value that is too large for it fails the fold, and the table is parked there.
    """
    return is_widened(column.type, now.type)


def _key(live: Sequence[Column], stored: Sequence[str], relation: Relation, *, passes: bool) -> frozenset[str]:
    """Return the key of the history under a relation version, by stored names.

    FULL sends all columns, and NOTHING none: the key stays, unless one of its columns is dropped, and with it every
    constraint that contains it.
    """
    before = frozenset(column.stored for column in live if column.key)
    if passes:
        return before.intersection(stored)
    if relation.replica_identity in {ReplicaIdentity.FULL, ReplicaIdentity.NOTHING}:
        return before if before.issubset(stored) else frozenset()
    return frozenset(name for name, column in zip(stored, relation.columns, strict=True) if column.key)


def _changed(table: HistoryTable, columns: Sequence[Column], version: RelationVersion) -> Unsupported:
    was, now = ({column.name: column for column in shape} for shape in (columns, version.relation.columns))
    kept = {name for name, column in was.items() if name in now and _holds(column, now[name])}
    gone = [_described(column) for name, column in was.items() if name not in kept]
    new = [_described(column) for name, column in now.items() if name not in kept]
    parts = [f"the history has {', '.join(gone)}", *([f"the stream has {', '.join(new)}"] if new else [])]
    return Unsupported(f"columns of {table.label} changed at {version.lsn}: {'; '.join(parts)}", ANEW)


def _described(column: Column) -> str:
    return f"{column.name} {type_name(*column.type)}"


def _is_same_type(was: Column, now: Column, *, same_server: bool) -> bool:
    """Return whether values of both columns are stored, shown and compared in the same way.

    A `char(n)` is padded by its length, which is not stored. Own types have other OIDs on another server.
    """
    if was.type == now.type:
        return True
    if type_of(was) != type_of(now) or is_padded(was.type_oid) or has_padded_elements(was.type_oid):
        return False
    if not same_server and not is_built_in(was.type_oid) and not is_built_in(now.type_oid):
        return True
    return was.type_oid == now.type_oid or is_widened(was.type, now.type) or is_widened(now.type, was.type)


def reshaped(table: HistoryTable, relation: Relation, lsn: Lsn) -> tuple[Column, ...]:
    """Return all physical columns of a history that continues with a new snapshot of this relation, taken at `lsn`.

    A column continues if its number is the same (its name, if one is not known), and its values are stored and compared
    in the same way: a `numeric` that became `text` is another column, because its past is still one of numbers.
    Every other column of the relation gets a new physical column, and those that do not continue end. Columns have the
    key flags of `relation`.
    """
    live = [_rewound(c, table.position) for c in table.columns if c.exists_at(table.position)]
    # Another relation, of another server or restored by name, has numbers of its own.
    numbered = table.oid == relation.oid and all(column.attnum is not None for column in (*live, *relation.columns))
    now_of = {column.attnum if numbered else column.name: column for column in relation.columns}
    physical, taken = list[Column](), set[int | str | None]()
    for column in table.columns:
        was = next((each for each in live if each.stored == column.stored), None)
        identity = None if was is None else was.attnum if numbered else was.name
        now = now_of.get(identity)
        if was is None:
            physical.append(column)
        elif now is not None and _is_same_type(was, now, same_server=numbered):
            taken.add(identity)
            physical.append(_retyped(_continued(was, now, lsn, key=now.key), now, lsn))
        else:
            physical.append(replace(was, until=lsn))
    for identity, column in now_of.items():
        if identity not in taken:
            stored_as = stored_beside(column.name, physical)
            physical.append(replace(column, stored_as=stored_as, since=lsn))
    return tuple(physical)
