"""Changes of one table as Python values, and the states they lead through. For few rows: one key, one transaction.

`States.apply` takes changes in the order of (lsn, ordinal) and says of each what it found and what it left. It must
have been given the state of every row that they touch; a table without a key needs none, since each of its changes
carries the whole old row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from auditlake.audit.keys import Key
from auditlake.audit.reading import Reader, Span, about
from auditlake.errors import InvariantBroken
from auditlake.relation import Relation, TableName

Values = Mapping[str, str | None]

_COLUMNS = 'lsn, ordinal, xid, arrow_cast("time", \'Int64\') as time_us, op, relation, "old", "new", "unchanged"'
ROW_OPS = "('insert', 'update', 'delete', 'truncate')"
_FULL = "f"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one row, or a truncate; texts by column name. `unchanged` columns are not in `after`."""

    lsn: int
    ordinal: int
    xid: int | None
    time_us: int
    op: str
    before: Values | None
    after: Values | None
    unchanged: frozenset[str] = frozenset()

    def key_before(self, names: tuple[str, ...]) -> Key:
        """The key of the row that it found."""
        return _key(names, self.before if self.before is not None else self.after or {})

    def key_after(self, names: tuple[str, ...]) -> Key:
        """The key of the row that it leaves; a key column that PostgreSQL did not send is the old one."""
        return _key(names, {**(self.before or {}), **(self.after or {})})


def _key(names: tuple[str, ...], values: Values) -> Key:
    return tuple(str(values[name]) for name in names)


def fetch(reader: Reader, table: TableName, span: Span, condition: str = "true") -> pa.Table:
    """Read the changes of a table in a span that fulfil `condition`, in their order, as Arrow."""
    sql = (
        f"select {_COLUMNS} from changes where {about(table)} and op in {ROW_OPS} and lsn > {span.after:d}"
        f" and lsn <= {min(span.upto, reader.watermark):d} and ({condition}) order by lsn, ordinal"
    )
    return reader.query(sql, changes=reader.changes)


def changes_of(reader: Reader, table: TableName, span: Span, condition: str = "true") -> Iterator[Change]:
    """Read the changes of a table in a span, in their order."""
    if reader.changes is None:
        return
    for row in fetch(reader, table, span, condition).to_pylist():
        yield change_of(row, reader)


def change_of(row: Mapping[str, Any], reader: Reader) -> Change:
    """Read one row of `changes`."""
    relation = reader.relations[row["relation"]]
    has = {column.name for column in relation.columns}
    missing = {name: each.missing for name, each in reader.later(relation.name).items() if name not in has}
    unchanged = frozenset(relation.columns[place].name for place in _list(row["unchanged"]))
    return Change(
        lsn=int(str(row["lsn"])),
        ordinal=int(str(row["ordinal"])),
        xid=None if row["xid"] is None else int(str(row["xid"])),
        time_us=int(str(row["time_us"])),
        op=str(row["op"]),
        before=_old(row["old"], relation, missing),
        after=_new(row["new"], relation, unchanged, missing),
        unchanged=unchanged,
    )


def _list(value: object) -> list[int]:
    return value if isinstance(value, list) else []


def _old(texts: object, relation: Relation, missing: Values) -> Values | None:
    if not isinstance(texts, list):
        return None
    pairs = zip(relation.columns, texts, strict=True)
    if relation.replica_identity == _FULL:
        return {**{column.name: value for column, value in pairs}, **missing}
    return {column.name: value for column, value in pairs if column.key}


def _new(texts: object, relation: Relation, unchanged: frozenset[str], missing: Values) -> Values | None:
    if not isinstance(texts, list):
        return None
    pairs = zip(relation.columns, texts, strict=True)
    return {**{column.name: value for column, value in pairs if column.name not in unchanged}, **missing}


@dataclass(frozen=True, slots=True)
class Step:
    """What a change found and left; `before` and `after` are whole rows, None where there is none."""

    change: Change
    key_before: Key | None
    before: Values | None
    key_after: Key | None
    after: Values | None
    removed: int | None = None
    """Of a truncate: how many rows it found."""


@dataclass
class States:
    """The rows of one table by key, going through changes. `known` is False where their past is not in the lake."""

    key: tuple[str, ...]
    rows: dict[Key, Values] = field(default_factory=dict)
    known: bool = True

    def apply(self, change: Change) -> Step:
        """Go through one change.

        Raises InvariantBroken where it touches a row that should be known and is not.
        """
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

    def _take(self, key: Key, change: Change) -> Values | None:
        found = self.rows.pop(key, None)
        if found is None and self.known:
            raise InvariantBroken(f"the {change.op} at ordinal {change.ordinal} touches a row that is not there")
        return change.before if found is None else {**found, **_given(change.before)}


def _given(old: Values | None) -> Values:
    # Of an out-of-line value the old row may not carry the text: NULL there says nothing.
    return {name: value for name, value in (old or {}).items() if value is not None}


def _filled(change: Change, before: Values | None) -> Values | None:
    if change.after is None:
        return None
    kept = {name: before[name] for name in change.unchanged if before is not None and name in before}
    return {**change.after, **kept}
