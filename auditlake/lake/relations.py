"""The `relations` table: the versions of each relation, with the commits from which each is in force.

Every row of `changes` refers to a version by its number. A number stands for a content: name, replica identity, columns
and their attribute numbers. So a crash between the commits of this table and of `changes` needs no repair: the replay
gets the same number. A shape that returns gets its former number, in a row of its own.

A row is written once for every change of shape, in the order of the stream (`entry`):

    lsn         the version is in force from this commit on, at the latest
    after_lsn   the version before it is certainly in force up to this commit; NULL if the change is exactly at `lsn`
    source      what reported it: the stream's Relation message, the catalog, or the DDL event trigger
    command     the command tag of the DDL, if the trigger reported it
    attnums     the attribute number of each column, NULL if they are not known
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, overload

import pyarrow as pa

from auditlake.delta.append_table import AppendLog
from auditlake.delta.small_tables import read_small_table
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName

_COLUMN = pa.struct([("name", pa.string()), ("type_oid", pa.int64()), ("typmod", pa.int32()), ("key", pa.bool_())])
RELATIONS_SCHEMA = pa.schema(
    [
        ("relation", pa.int64()),
        ("lsn", pa.int64()),
        ("oid", pa.int64()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("replica_identity", pa.string()),
        ("columns", pa.list_(_COLUMN)),
        ("attnums", pa.list_(pa.int32())),
        ("after_lsn", pa.int64()),
        ("source", pa.string()),
        ("command", pa.string()),
        ("entry", pa.int64()),
    ]
)


class ShapeSource(StrEnum):
    """Source of a version of a relation."""

    STREAM = "stream"
    CATALOG = "catalog"
    DDL_TRIGGER = "ddl trigger"


@dataclass(frozen=True, slots=True)
class RelationVersion:
    """A version of a relation, in force from the commit at `lsn` on, at the latest; its columns have `attnum`.

    The version before it is certainly in force up to the commit at `after_lsn`; None if the change is exactly at `lsn`.
    """

    number: int
    lsn: Lsn
    relation: Relation
    after_lsn: Lsn | None = None
    source: ShapeSource = ShapeSource.STREAM
    command: str | None = None

    @property
    def attnums(self) -> tuple[int, ...] | None:
        """Return the attribute number of every column; None if one is not known."""
        return attnums_of(self.relation)

    def shows(self, relation: Relation) -> bool:
        """Return whether this is a version of exactly this shape: the numbers of the columns are equal, too."""
        return is_same_shape(self.relation, relation)


def is_same_shape(one: Relation, other: Relation) -> bool:
    """Return whether two relations are equal, and so are the attribute numbers of their columns."""
    return one == other and attnums_of(one) == attnums_of(other)


def attnums_of(relation: Relation) -> tuple[int, ...] | None:
    """Return the attribute number of every column; None if one is not known."""
    numbers = tuple(column.attnum for column in relation.columns if column.attnum is not None)
    return numbers if len(numbers) == len(relation.columns) else None


def with_attnums(relation: Relation, attnums: tuple[int, ...] | None) -> Relation:
    """Return the relation with these attribute numbers of its columns."""
    numbers = attnums or (None,) * len(relation.columns)
    columns = (replace(column, attnum=number) for column, number in zip(relation.columns, numbers, strict=True))
    return replace(relation, columns=tuple(columns))


Identify = Callable[[Relation, RelationVersion | None, int, Lsn], tuple[int, ...] | None]
"""Returns the attribute numbers of a relation in the commit at an LSN, None if they cannot be determined.

The second argument is the version in force before, if any, the third the highest number in any version before.
"""


def read_relations(lake: Lake) -> dict[int, Relation]:
    """Read the relation of every version by its number."""
    return {version.number: version.relation for version in read_versions(lake)}


class RelationVersions(Sequence[RelationVersion]):
    """Versions of relations, in the order in which they came into force; each is converted when it is asked for.

    A question about one table of ten thousand converts those of one.
    """

    def __init__(self, rows: pa.Table) -> None:
        keys = {name: rows[name].to_pylist() for name in ("lsn", "relation")}
        self._entries = rows["entry"].to_pylist()
        order = sorted(range(len(rows)), key=lambda at: (keys["lsn"][at], self._entries[at], keys["relation"][at]))
        self._entries = [self._entries[at] for at in order]
        self._rows = rows.take(pa.array(order, pa.int64())).combine_chunks()
        self._made: dict[int, RelationVersion] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> RelationVersion: ...

    @overload
    def __getitem__(self, index: slice) -> list[RelationVersion]: ...

    def __getitem__(self, index: int | slice) -> RelationVersion | list[RelationVersion]:
        places = range(len(self))[index]
        if isinstance(places, range):
            return [self[place] for place in places]
        if places not in self._made:
            (row,) = self._rows.slice(places, 1).to_pylist()
            self._made[places] = _version(row)
        return self._made[places]

    @property
    def entries(self) -> list[tuple[int, RelationVersion]]:
        """Every version, with the number of its row."""
        return list(zip(self._entries, map(_version, self._rows.to_pylist()), strict=True))

    @cached_property
    def _numbers(self) -> Mapping[int, int]:
        """The first place of each number."""
        return {number: place for place, number in reversed(list(enumerate(self._rows["relation"].to_pylist())))}

    @cached_property
    def lsns(self) -> list[tuple[int, int]]:
        """LSN and OID of every version, in order."""
        return list(zip(self._rows["lsn"].to_pylist(), self._rows["oid"].to_pylist(), strict=True))

    @cached_property
    def _by_oid(self) -> Mapping[int, list[int]]:
        """The places of each relation's versions."""
        found: dict[int, list[int]] = {}
        for place, oid in enumerate(self._rows["oid"].to_pylist()):
            found.setdefault(oid, []).append(place)
        return found

    def of_oid(self, oid: int) -> list[RelationVersion]:
        """Return the versions of one relation, in order."""
        return [self[place] for place in self._by_oid.get(oid, ())]

    def relation(self, number: int) -> Relation:
        """Return the relation of a version, by its number; raises KeyError."""
        return self[self._numbers[number]].relation


@dataclass(slots=True)
class _LastRead:
    """Cache of a session: the rows of the table, which rarely change, and the versions made of them."""

    found: tuple[pa.Table, RelationVersions] | None = None


def read_versions(lake: Lake) -> RelationVersions:
    """Read every version of every relation, in the order in which they came into force."""
    rows, last = read_small_table(lake.session, lake.relations, RELATIONS_SCHEMA), lake.session.part(_LastRead)
    found = last.found
    if found is None or found[0] is not rows:
        found = last.found = rows, RelationVersions(rows)  # at once: threads share it
    return found[1]


def _version(row: Mapping[str, Any]) -> RelationVersion:
    after_lsn, attnums = row["after_lsn"], row["attnums"]
    return RelationVersion(
        row["relation"],
        Lsn(row["lsn"]),
        with_attnums(_relation(row), None if attnums is None else tuple(attnums)),
        None if after_lsn is None else Lsn(after_lsn),
        ShapeSource(row["source"]),
        row["command"],
    )


def _relation(row: Mapping[str, Any]) -> Relation:
    columns = tuple(Column(c["name"], c["type_oid"], c["typmod"], c["key"]) for c in row["columns"])
    name = TableName(row["schema"], row["table"])
    return Relation(row["oid"], name, ReplicaIdentity(row["replica_identity"]), columns)


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    version: RelationVersion


class RelationsLog:
    """Registry of relation versions: numbers them, and appends new ones to the table."""

    def __init__(
        self, lake: Lake, identify: Identify | None = None, note: Callable[[Relation], object] = lambda _: None
    ) -> None:
        """Read the versions so far; without `identify` attribute numbers of the stream's relations are not known.

        `note` gets each version that is recorded, before what follows it in the stream is identified.
        """
        self._log = AppendLog(lake.relations, RELATIONS_SCHEMA)
        self._identify = identify
        self._note = note
        self._numbers: dict[tuple[Relation, tuple[int, ...] | None], int] = {}
        self._of_table: dict[int, list[_Entry]] = {}
        self._at: dict[int, _Entry] = {}
        self._pending: list[_Entry] = []
        self._last = 0
        self._relations: dict[int, Relation] = {}
        for entry, version in RelationVersions(
            read_small_table(lake.session, lake.relations, RELATIONS_SCHEMA)
        ).entries:
            self._numbers.setdefault((version.relation, version.attnums), version.number)
            self._relations[version.number] = version.relation
            self._of_table.setdefault(version.relation.oid, []).append(_Entry(entry, version))
            self._last = max(self._last, entry)

    @property
    def delta_version(self) -> int:
        """The version of the table after this process's last commit."""
        return self._log.version

    def register(self, relation: Relation, commit_lsn: Lsn) -> int:
        """Return the number of a Relation message's version; if it was not in force, record it from `commit_lsn` on.

        After a restart the stream repeats messages: a version recorded for them at the same commit is found again.
        """
        before = self._before(relation.oid, commit_lsn)
        repeated = next((e for e in self._later_at(relation.oid, commit_lsn) if e.version.relation == relation), None)
        if repeated is not None and (before is None or before.version.relation != relation):
            self._at[relation.oid] = repeated
            return repeated.version.number
        numbered = with_attnums(relation, self._attnums(relation, before.version if before else None, commit_lsn))
        if before is not None and before.version.shows(numbered):
            self._at[relation.oid] = before
            return before.version.number
        return self.record(numbered, commit_lsn)

    def record(
        self,
        relation: Relation,
        lsn: Lsn,
        *,
        after_lsn: Lsn | None = None,
        source: ShapeSource = ShapeSource.STREAM,
        command: str | None = None,
    ) -> int:
        """Record a version, with the attribute numbers of its columns, as in force from `lsn` on; return its number."""
        number = self._numbers.setdefault((relation, attnums_of(relation)), len(self._numbers) + 1)
        self._relations[number] = relation
        self._last += 1
        entry = _Entry(self._last, RelationVersion(number, lsn, relation, after_lsn, source, command))
        of_table = self._of_table.setdefault(relation.oid, [])
        of_table.append(entry)
        of_table.sort(key=_order)
        self._at[relation.oid] = entry
        self._pending.append(entry)
        self._note(relation)
        return number

    def relation(self, number: int) -> Relation:
        """Return the relation of a version by its number, with the attribute numbers of its columns."""
        return self._relations[number]

    def is_recorded(self, relation: Relation, lsn: Lsn, source: ShapeSource) -> bool:
        """Return whether a source has already reported this version at this commit."""
        versions = (entry.version for entry in self._of_table.get(relation.oid, []))
        return any((each.lsn, each.source) == (lsn, source) and each.shows(relation) for each in versions)

    def after(self, oid: int, lsn: Lsn) -> list[RelationVersion]:
        """Return the versions of a relation that came into force after an LSN, in order."""
        return [entry.version for entry in self._of_table.get(oid, []) if entry.version.lsn > lsn]

    @property
    def last_lsn(self) -> Lsn:
        """Return the highest commit LSN of a version."""
        return max((entries[-1].version.lsn for entries in self._of_table.values()), default=Lsn(0))

    def in_force(self, oid: int, lsn: Lsn) -> RelationVersion | None:
        """Return the version of a relation that is in force after the commit at `lsn`, as far as it is recorded."""
        entry = self._last_up_to(oid, lsn)
        return entry.version if entry else None

    def _before(self, oid: int, lsn: Lsn) -> _Entry | None:
        """Return the version in force at this place of the stream."""
        at = self._at.get(oid)
        if at is not None and at.version.lsn == lsn:
            return at
        return self._last_up_to(oid, Lsn(lsn - 1))

    def _last_up_to(self, oid: int, lsn: Lsn) -> _Entry | None:
        return next((e for e in reversed(self._of_table.get(oid, [])) if e.version.lsn <= lsn), None)

    def _later_at(self, oid: int, lsn: Lsn) -> Iterator[_Entry]:
        """Yield the versions recorded at this commit, after the place of the stream."""
        at = self._at.get(oid)
        after = at.number if at is not None and at.version.lsn == lsn else -1
        return (e for e in self._of_table.get(oid, []) if e.version.lsn == lsn and e.number > after)

    def _attnums(self, relation: Relation, before: RelationVersion | None, lsn: Lsn) -> tuple[int, ...] | None:
        if before is not None and before.source is ShapeSource.DDL_TRIGGER and before.relation == relation:
            return before.attnums  # the trigger reports every change
        if self._identify is None:
            return before.attnums if before is not None and before.relation == relation else None
        numbers = (entry.version.attnums or () for entry in self._of_table.get(relation.oid, []))
        return self._identify(relation, before, max((number for each in numbers for number in each), default=0), lsn)

    @property
    def versions(self) -> list[tuple[Lsn, Relation]]:
        """Return every version with the commit LSN from which it is in force, in that order, flushed or not."""
        entries = sorted((entry for entries in self._of_table.values() for entry in entries), key=_order)
        return [(entry.version.lsn, entry.version.relation) for entry in entries]

    @property
    def fresh(self) -> frozenset[int]:
        """Return the OIDs of the tables of versions that are not flushed yet."""
        return frozenset(entry.version.relation.oid for entry in self._pending)

    def flush(self) -> None:
        """Append the versions recorded since the last flush; call it before appending changes that refer to them."""
        if self._pending:
            self._log.append(version_rows((entry.number, entry.version) for entry in self._pending), {})
            self._pending.clear()


def _order(entry: _Entry) -> tuple[Lsn, int, int]:
    return entry.version.lsn, entry.number, entry.version.number


def version_rows(entries: Iterable[tuple[int, RelationVersion]]) -> pa.RecordBatch:
    """Return the rows of versions, each given with the number of its row."""
    return pa.RecordBatch.from_pylist([_row(*entry) for entry in entries], schema=RELATIONS_SCHEMA)


def _row(number: int, version: RelationVersion) -> dict[str, object]:
    relation = version.relation
    return {
        "relation": version.number,
        "lsn": version.lsn,
        "oid": relation.oid,
        "schema": relation.name.schema,
        "table": relation.name.table,
        "replica_identity": relation.replica_identity.value,
        "columns": [
            {"name": c.name, "type_oid": c.type_oid, "typmod": c.typmod, "key": c.key} for c in relation.columns
        ],
        "attnums": version.attnums,
        "after_lsn": version.after_lsn,
        "source": version.source.value,
        "command": version.command,
        "entry": number,
    }
