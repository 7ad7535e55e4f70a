"""Changes of one table as Python values, and their replay on rows. For few rows: one key or one transaction.

`States.apply` takes changes in the order of (lsn, ordinal) and returns for each the row before and after it. It must
start with the state of every row that the changes touch; a table without a key needs none, because each of its changes
carries the whole old row.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.apply.tails import FOLDED_OPS_SQL
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.row_key import Key
from auditlake.delta.sql import select
from auditlake.errors import InvariantBroken
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.relation import Relation, ReplicaIdentity, TableName
from auditlake.sql_names import duckdb_literal

UNKNOWN = "\0"
"""Text of a key column that a change does not have; no value contains it."""
Values = Mapping[str, str | None]

_COLUMNS = 'lsn, ordinal, xid, "time", epoch_us("time") as time_us, op, relation, "old", "new", "unchanged"'


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change of one row, or a TRUNCATE; texts by column name. `after` has no `unchanged` columns."""

    lsn: Lsn
    ordinal: int
    xid: int | None
    time_us: int
    op: str
    before: Values | None
    after: Values | None
    unchanged: frozenset[str] = frozenset()

    def key_before(self, names: tuple[str, ...]) -> Key:
        """Return the row's key before the change."""
        return _key(names, self.before if self.before is not None else self.after or {})

    def key_after(self, names: tuple[str, ...]) -> Key:
        """Return the row's key after the change; a key column that PostgreSQL did not send is unchanged."""
        return _key(names, {**(self.before or {}), **(self.after or {})})


def _key(names: tuple[str, ...], values: Values) -> Key:
    # Before a change of the key, an old row has the columns of the former one only.
    return tuple(UNKNOWN if (text := values.get(name)) is None else text for name in names)


def changes_of(
    reader: Reader, table: TableName, span: Span, condition: str = "true", limit: int | None = None
) -> Iterator[RowChange]:
    """Read the changes of a table in a span that match `condition`, at most `limit`, ordered by (lsn, ordinal)."""
    if reader.changes is None:
        return
    found = read_changes(reader, table, span, condition, "order by lsn, ordinal", limit).drop_columns("time")
    yield from (change_of(row, reader) for row in found.to_pylist())


def read_changes(  # noqa: PLR0913, PLR0917 - the parts of a query
    reader: Reader, table: TableName, span: Span, condition: str, order: str = "", limit: int | None = None
) -> pa.Table:
    """Read the same as rows, in no order unless one is given."""
    sql = (
        f"select {_COLUMNS} from changes where {reader.about(table)} and op in ({FOLDED_OPS_SQL})"
        f" and {span.until(reader.watermark).sql()} and ({condition}) {order}"
        f"{'' if limit is None else f' limit {limit:d}'}"
    )
    return select(sql, changes=reader.changes_in(span))


def linked_changes(
    reader: Reader, table: HistoryTable, span: Span, keys: Collection[Key], most_keys: float = float("inf")
) -> tuple[list[Key], pa.Table]:
    """Return all keys that the rows of some keys had in a span, and their changes in it, with every TRUNCATE.

    Once there are more than `most_keys`, others may be missing.
    """
    names, known = tuple(column.name for column in table.key), set(keys)
    while True:
        condition = f"op = 'truncate' or {in_changes(table, reader.relations_of(table), sorted(known))}"
        changes = read_changes(reader, table.name, span, condition)
        is_move = pc.and_(pc.equal(changes["op"], "update"), pc.is_valid(changes["old"]))
        moves = [change_of(row, reader) for row in changes.filter(is_move).to_pylist()]
        linked = {key for change in moves for key in (change.key_before(names), change.key_after(names))}
        if linked <= known or len(known) > most_keys:
            return sorted(known), changes
        known |= linked


def change_of(row: Mapping[str, Any], reader: Reader) -> RowChange:
    """Convert one row of `changes`."""
    relation = reader.relation(row["relation"])
    names = {column.name for column in relation.columns}
    missing = {name: later.missing for name, later in reader.later_of(relation).items() if name not in names}
    unchanged = frozenset(relation.columns[place].name for place in row["unchanged"] or ())
    before, after = old_texts(row["old"], relation), new_texts(row["new"], relation, unchanged)
    if before is not None and relation.replica_identity == ReplicaIdentity.FULL:
        before |= missing
    return RowChange(
        lsn=Lsn(row["lsn"]),
        ordinal=row["ordinal"],
        xid=row["xid"],
        time_us=row["time_us"],
        op=row["op"],
        before=before,
        after=None if after is None else after | missing,
        unchanged=unchanged,
    )


def old_texts(texts: Sequence[str | None] | None, relation: Relation) -> dict[str, str | None] | None:
    """Return the columns of an old row that are known: all under REPLICA IDENTITY FULL, else those of the key."""
    if texts is None:
        return None
    whole = relation.replica_identity == ReplicaIdentity.FULL
    pairs = zip(relation.columns, texts, strict=True)
    return {column.name: text for column, text in pairs if whole or column.key}


def new_texts(
    texts: Sequence[str | None] | None, relation: Relation, unchanged: Container[str]
) -> dict[str, str | None] | None:
    """Return the columns of a new row without the unchanged ones, which the server did not send."""
    if texts is None:
        return None
    pairs = zip(relation.columns, texts, strict=True)
    return {column.name: text for column, text in pairs if column.name not in unchanged}


def in_changes(table: HistoryTable, relations: Mapping[int, Relation], keys: Iterable[Key]) -> str:
    """Return the condition that a change, of one of `relations`, has one of these keys before or after it."""
    wanted = list(keys)
    names = [column.name for column in table.key]
    conditions = []
    for number, places in key_places(relations, names).items():
        for side in ("new", "old"):
            any_key = " or ".join(
                "("
                + " and ".join(f"{side}[{p + 1}] = {duckdb_literal(v)}" for p, v in zip(places, key, strict=True))
                + ")"
                for key in wanted
            )
            conditions.append(f"(relation = {number:d} and ({any_key}))")
    return f"({' or '.join(conditions)})" if conditions else "false"


def key_places(relations: Mapping[int, Relation], key: list[str]) -> dict[int, tuple[int, ...]]:
    """Return the positions of the key's columns in each relation version of a table that has them, from 0."""
    places = {}
    for number, relation in relations.items():
        names = [column.name for column in relation.columns]
        if all(column in names for column in key):
            places[number] = tuple(names.index(column) for column in key)
    return places


@dataclass(frozen=True, slots=True)
class Step:
    """The row before and after a change, whole; None if the row does not exist."""

    change: RowChange
    key_before: Key | None
    before: Values | None
    key_after: Key | None
    after: Values | None
    removed: int | None = None
    """Number of rows that a TRUNCATE removed, None if not known."""


@dataclass
class States:
    """Rows of one table by key, to which changes are applied; `known` is False if their earlier states are unknown."""

    key: tuple[str, ...]
    rows: dict[Key, Values] = field(default_factory=dict)
    known: bool = True

    def apply(self, change: RowChange) -> Step:
        """Apply one change; raises InvariantBroken if it touches a row that does not exist, although `known`."""
        if change.op == "truncate":
            removed = len(self.rows) if self.known and self.key else None
            self.rows.clear()
            return Step(change, None, None, None, None, removed)
        if not self.key:
            return Step(change, None, change.before, None, _filled(change, change.before))
        old_key = None if change.op == "insert" else change.key_before(self.key)
        new_key = None if change.op == "delete" else change.key_after(self.key)
        before = None if old_key is None else self._take(old_key, change)
        after = _filled(change, before)
        if new_key is not None and after is not None:
            self.rows[new_key] = after
        return Step(change, old_key, before, new_key, after)

    def _take(self, key: Key, change: RowChange) -> Values | None:
        row = self.rows.pop(key, None)
        if row is None and self.known:
            raise InvariantBroken(f"the {change.op} at ordinal {change.ordinal} touches a row that does not exist")
        if row is None:  # without an old row, the key is the same
            return change.before or (None if UNKNOWN in key else dict(zip(self.key, key, strict=True)))
        return {**row, **_sent(change.before)}


def _sent(old: Values | None) -> Values:
    # NULL in an old row may stand for a TOAST value that PostgreSQL did not send.
    return {name: value for name, value in (old or {}).items() if value is not None}


def _filled(change: RowChange, before: Values | None) -> Values | None:
    if change.after is None:
        return None
    kept = {name: before[name] for name in change.unchanged if before is not None and name in before}
    return {**change.after, **kept}
