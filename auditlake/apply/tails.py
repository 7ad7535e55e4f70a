"""Tails: find the tables with unapplied changes, and the statistics of these changes, without a JVM.

A table's tail is its changes above its position, up to a limit up to which `changes` has every commit. It ends before
the first transaction with a shape of the table that its history cannot follow (`schema.evolution`); `refusal` is the
reason, and the changes before can still be folded.

Only `op`, the presence of tuples and flags are read here, never values. The fold's plan depends on these statistics
(`TailShape`): a flag that is true without need makes the fold slower, never different.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from auditlake.apply.windows import WINDOW_BYTES, ChangeFile, Window, cut, held_within
from auditlake.delta.log_reader import file_path
from auditlake.delta.row_groups import ROW_BYTES
from auditlake.delta.sql import TableFiles, read_newest, select
from auditlake.errors import Unsupported
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, Lake
from auditlake.lake.positions import last_known, read_positions
from auditlake.lake.relations import RelationVersion, RelationVersions, read_versions
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity
from auditlake.schema.evolution import ANEW, AddedColumn, Followed, Shapes, find_shapes, follow_versions
from auditlake.schema.missing_values import Answers, read_added
from auditlake.sql_names import standard_literal

FOLDED_OPS = ("insert", "update", "delete", "truncate")
FOLDED_OPS_SQL = ", ".join(map(standard_literal, FOLDED_OPS))
_NO_LIMIT = Lsn(0)

_TAILS = """
select c.relation,
       count(*) as rows, min(c.lsn) as first_lsn, max(c.lsn) as last_lsn,
       bool_and(c.op = 'insert') as inserts_only,
       bool_or(c.op = 'truncate') as has_truncate,
       bool_or(c.op = 'update' and c.old is not null) as has_old,
       array_agg(distinct c.unchanged) filter (where c.unchanged is not null) as unchanged
from changes c
join (values {after}) as p(relation, position) on p.relation = c.relation
where c.lsn > {lowest} and c.lsn <= {upto} and c.lsn > p.position and c.op in ({ops})
group by c.relation
"""

_OF_TAIL = "from changes where relation in ({relations}) and lsn > {after} and lsn <= {upto} and op in ({ops})"
_COMMITS = f"select distinct lsn {_OF_TAIL} order by lsn"
_TEXTS = "coalesce(strlen(array_to_string(old, '')), 0) + coalesce(strlen(array_to_string(new, '')), 0)"
_OWN_BYTES = f"select coalesce(sum({ROW_BYTES} + {_TEXTS}), 0)::bigint as held {_OF_TAIL}"


@dataclass(frozen=True, slots=True)
class ChangesVersion:
    """`changes` at one Delta version; `watermark` is that version's."""

    changes: TableFiles
    watermark: Lsn

    @property
    def known_lsn(self) -> Lsn:
        """The highest LSN up to which it has every commit."""
        return last_known(self.watermark, self.changes.transactions.get(ACKNOWLEDGED_APP, 0))

    def files(self, first: int, last: int) -> tuple[ChangeFile, ...]:
        """Return the Parquet files that may have changes in [`first`, `last`], by their statistics."""
        found = self.changes.within(lsn=(first, last))
        # A file without statistics may have any LSN.
        bounds = (file.bounds("lsn") or (0, LAST_LSN) for file in found.files)
        paths = (file_path(found.place, file.add) for file in found.files)
        return tuple(ChangeFile(path, low, high) for path, (low, high) in zip(paths, bounds, strict=True))

    def window(self, after: Lsn) -> Window:
        """Return the changes above `after` up to the watermark, or the first part that fits into memory."""
        return cut(self.files(after + 1, self.watermark), after, self.watermark, WINDOW_BYTES)


@dataclass(frozen=True, slots=True)
class TailShape:
    """Possible contents of one table's tail; `unchanged` are the columns that an UPDATE omits as TOAST, by position.

    `has_key_change`: an UPDATE has an old tuple. `old_is_whole`: all old tuples are of REPLICA IDENTITY FULL.
    """

    rows: int
    inserts_only: bool
    has_truncate: bool
    has_key_change: bool
    old_is_whole: bool
    unchanged: frozenset[int]


@dataclass(frozen=True, slots=True)
class Tail:
    """The changes of `table` in (its position, `upto`], read from `files`: those of one version of `changes`.

    `relations` are the numbers of the table's relation versions. `shape` is None if there is nothing to fold: then it
    ends before a change of the table that cannot be followed, or only the table's columns or its name change. It was
    sought up to `limit`.
    """

    table: HistoryTable
    upto: Lsn
    files: tuple[ChangeFile, ...]
    shape: TailShape | None
    followed: Followed
    relations: frozenset[int] = frozenset()
    limit: Lsn = _NO_LIMIT

    @property
    def refusal(self) -> Unsupported | None:
        """The reason why the tail ends before the limit, if it does."""
        return self.followed.refusal

    @property
    def held_bytes(self) -> int:
        """Estimated size of its changes in memory; includes changes of other tables between them."""
        return sum(held_within(file, self.table.position, self.upto) for file in self.files)

    @property
    def inserts_only(self) -> bool:
        """Whether it has changes, and all are inserts."""
        return self.shape is not None and self.shape.inserts_only

    @property
    def is_cut(self) -> bool:
        """Whether changes up to the limit follow, which cannot be folded together with these."""
        return self.followed.cut_at is not None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of its changes: those of the history at its position, then added ones, as they are at its end.

        Columns that were dropped are among them: versions that were closed before have values in them.
        """
        return self.followed.folded

    @property
    def current(self) -> tuple[Column, ...]:
        """The columns of the table at its end."""
        return self.followed.columns

    @property
    def added(self) -> tuple[AddedColumn, ...]:
        """The columns added within the tail."""
        return self.followed.added

    @property
    def lacking(self) -> tuple[Column, ...]:
        """The columns that the history does not have yet."""
        present = {column.stored for column in self.table.columns}
        return tuple(column for column in self.followed.physical if column.stored not in present)

    @property
    def is_reshaped(self) -> bool:
        """Whether columns, their names or the name of the table change within it."""
        followed, table = self.followed, self.table
        return (followed.physical, followed.names) != (table.columns, table.names) or any(
            column.attnum != known.attnum for column, known in zip(followed.physical, table.columns, strict=False)
        )


@dataclass(frozen=True, slots=True)
class _Place:
    log: ChangesVersion
    upto: Lsn
    answers: Answers


def open_log(lake: Lake) -> ChangesVersion | None:
    """Open the current version of `changes`; None before capture has begun."""
    changes = read_newest(lake.changes)
    if changes is None or CHANGES_APP not in changes.transactions:
        return None
    return ChangesVersion(changes, Lsn(changes.transactions[CHANGES_APP]))


def read_watermark(lake: Lake) -> Lsn | None:
    """Read the watermark, from the last log entries if possible; None before capture has begun."""
    positions = read_positions(lake)
    if positions is not None:
        return positions.watermark
    log = open_log(lake)
    return None if log is None else log.watermark


@dataclass(frozen=True, slots=True)
class Schemas:
    """Shapes of all tables as a reader has read them: relation versions, and answers about added columns."""

    versions: RelationVersions
    answers: Answers


def find_tails(
    lake: Lake, log: ChangesVersion, after: Mapping[HistoryTable, int], upto: Lsn, schemas: Schemas | None = None
) -> list[Tail]:
    """Find the tails up to `upto`; up to its LSN in `after`, a table is known to have no unapplied changes.

    Without `schemas` they are read.
    """
    due = {table: lsn for table, lsn in after.items() if lsn < upto}
    if not due:
        return []
    versions = read_versions(lake) if schemas is None else schemas.versions
    shapes = find_shapes(due, versions, upto)
    groups = _query(log, {number: lsn for table, lsn in due.items() for number in shapes[table].numbers}, upto)
    found = [table for table in due if shapes[table].following or not groups.keys().isdisjoint(shapes[table].numbers)]
    if not found:
        return []
    place = _Place(log, upto, read_added(lake) if schemas is None else schemas.answers)
    relations = {number: versions.relation(number) for number in groups}
    tails = []
    for table in found:
        of_table = [groups[number] for number in shapes[table].numbers if number in groups]
        tail = _tail(table, of_table, shapes[table], relations, place)
        if tail.shape is not None or tail.refusal is not None or tail.is_reshaped or tail.is_cut:
            tails.append(tail)
    return tails


def find_commits(log: ChangesVersion, tail: Tail) -> list[Lsn]:
    """Return the commits of a tail, in order: those that change rows, or add a column with a value in older rows."""
    filling = {added.since for added in tail.added if added.missing is not None}
    return sorted({*filling, *map(Lsn, _of_tail(log, tail, _COMMITS)["lsn"].to_pylist())})


def own_bytes(log: ChangesVersion, tail: Tail) -> int:
    """Estimate the size in memory of a tail's own changes, whose texts are read: not as `Tail.held_bytes` does."""
    return int(_of_tail(log, tail, _OWN_BYTES)["held"][0].as_py())


def _of_tail(log: ChangesVersion, tail: Tail, query: str) -> pa.Table:
    sql = query.format(
        relations=", ".join(map(str, sorted(tail.relations))) or "null",
        after=f"{tail.table.position:d}",
        upto=f"{tail.upto:d}",
        ops=FOLDED_OPS_SQL,
    )
    return select(sql, changes=log.changes.within(lsn=(tail.table.position + 1, tail.upto)))


def _query(log: ChangesVersion, after: Mapping[int, int], upto: Lsn) -> dict[int, dict[str, Any]]:
    if not after:
        return {}
    values = ", ".join(f"({number:d}, {lsn:d})" for number, lsn in after.items())
    sql = _TAILS.format(after=values, lowest=f"{min(after.values()):d}", upto=f"{upto:d}", ops=FOLDED_OPS_SQL)
    changes = log.changes.within(lsn=(min(after.values()) + 1, upto))
    return {row["relation"]: row for row in select(sql, changes=changes).to_pylist()}


def _tail(
    table: HistoryTable, groups: list[dict[str, Any]], shapes: Shapes, relations: Mapping[int, Relation], at: _Place
) -> Tail:
    followed = follow_changes(table, groups, shapes, relations, at.answers)
    end = followed.last_lsn(at.upto)
    foldable = [row for row in groups if row["first_lsn"] <= end and row["relation"] in followed.layouts]
    shape = _shape(foldable, relations, followed) if foldable or followed.fills else None
    files = at.log.files(min(row["first_lsn"] for row in foldable), end) if foldable else ()
    return Tail(table, end, files, shape, followed, shapes.numbers, at.upto)


def follow_changes(
    table: HistoryTable,
    groups: Sequence[Mapping[str, Any]],
    shapes: Shapes,
    relations: Mapping[int, Relation],
    answers: Answers,
) -> Followed:
    """Follow the columns of a table along its changes after its position.

    A group is `relation`, a number in `relations`, and `first_lsn` and `last_lsn` of its changes.
    """
    versions = _with_first(table, groups, shapes, relations)
    first_change = min((Lsn(row["first_lsn"]) for row in groups), default=None)
    used = {row["relation"] for row in groups}
    followed = follow_versions(table, versions, answers, first_change, used=used)
    return _without_mixed(table, followed, groups, relations)


def _with_first(
    table: HistoryTable, groups: Iterable[Mapping[str, Any]], shapes: Shapes, relations: Mapping[int, Relation]
) -> list[RelationVersion]:
    """Return the versions after the table's position, and before them those that its first changes refer to.

    These have the name that the table had: changes of a partition refer to the former one after its root was renamed.
    """
    named = [(table.position, table.name_at(table.position))]
    named += [(version.lsn, version.relation.name) for version in shapes.following]
    later = {version.number for version in shapes.following}
    first = []
    for lsn, number in sorted((row["first_lsn"], row["relation"]) for row in groups if row["relation"] not in later):
        name = next(name for since, name in reversed(named) if since <= lsn)
        first.append(RelationVersion(number, Lsn(lsn), replace(relations[number], name=name)))
    return sorted([*first, *shapes.following], key=lambda version: version.lsn)


def _without_mixed(
    table: HistoryTable, followed: Followed, groups: Iterable[Mapping[str, Any]], relations: Mapping[int, Relation]
) -> Followed:
    """Refuse a transaction that changes rows before it changes the key: its old rows do not have the key at its end.

    An UPDATE of a column that becomes part of the key has no old row at all, so it would seem to be of another row.
    """
    lsn = followed.rekeyed_at
    if lsn is None:
        return followed
    numbers = {row["relation"] for row in groups if row["first_lsn"] <= lsn <= row["last_lsn"]}
    keys = {_stored_key(followed, number, relations[number]) for number in numbers & followed.layouts.keys()}
    if keys <= {frozenset(column.stored for column in followed.columns if column.key)}:
        return followed
    refusal = Unsupported(f"the key of {table.name} changed at {lsn}, in a transaction that changed rows before", ANEW)
    return replace(follow_versions(table, [], {}), refusal=refusal, refused_at=lsn)


def _stored_key(followed: Followed, number: int, relation: Relation) -> frozenset[str]:
    """Return the key of a relation version as columns of the history; names of columns may be exchanged."""
    places = zip(followed.folded, followed.layouts[number].places, strict=True)
    return frozenset(c.stored for c, place in places if place is not None and relation.columns[place].key)


def _shape(groups: Iterable[dict[str, Any]], relations: Mapping[int, Relation], followed: Followed) -> TailShape:
    rows = list(groups)
    return TailShape(
        rows=sum(row["rows"] for row in rows),
        inserts_only=all(row["inserts_only"] for row in rows),
        has_truncate=any(row["has_truncate"] for row in rows),
        has_key_change=any(row["has_old"] for row in rows),
        old_is_whole=all(relations[row["relation"]].replica_identity == ReplicaIdentity.FULL for row in rows),
        unchanged=frozenset(
            followed.layouts[row["relation"]].places.index(place)
            for row in rows
            for places in row["unchanged"] or ()
            for place in places
            if place in followed.layouts[row["relation"]].places  # not of a column dropped since, without a key
        ),
    )
