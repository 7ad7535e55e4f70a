"""Missing values: the value of an added column in existing rows, derived from two catalog snapshots.

ADD COLUMN has no trace in the stream except a Relation message before the next change of the table. The value of the
new column in existing rows is not in the stream:

    nullable, no default        NULL
    a constant as default       the constant: not stored in the rows, but in `pg_attribute.attmissingval`
    anything else               the table is rewritten (volatile default, identity, serial, stored generated column,
                                domain with constraints), each row with a value of its own

So the catalog is read when the stream first shows the column, possibly long after that commit. An earlier catalog
snapshot of the table (`CatalogSnapshot`) proves that the result is valid for the commit:

1. Every ADD COLUMN takes a new attribute number. If the column's number is above all numbers of the earlier snapshot,
   and no other number above those has been dropped since, the column was added once since that snapshot: the column in
   the stream is the one in the catalog. A commit before the earlier snapshot may have shown a column that was dropped
   before it, so that case is undecided.
2. Only ADD COLUMN sets `atthasmissing`. The missing value never changes, and a rewrite of the table clears it. If it is
   set, it is the value of existing rows.
3. If it is not set, the value is NULL, unless the table has been rewritten since the earlier snapshot. A rewrite
   changes the table's file (`pg_class.relfilenode`). Same file: NULL. Another file: undecided, because TRUNCATE and
   VACUUM FULL change the file too.

For a partitioned table every partition in the earlier snapshot is examined, and all must agree; later partitions have
no older rows.

The DDL trigger's message about ADD COLUMN has the missing value and the files at that command. With the table's shape
before it, the same rules decide without asking the source, which may have dropped or rewritten the column since.

The value of a masked column is masked before it is recorded (`lake.masks`).

The table `added` has one row for each time the source was asked. A decided value is final; of an undecided one the
newest row has the reason. A row belongs to the column first seen in the commit at `lsn`: a column that is dropped and
added again is another column, with rows of its own.

Authority: postgresql.org/docs/current/catalog-pg-attribute.html; src/backend/commands/tablecmds.c, ATExecAddColumn
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from auditlake.delta.append_table import AppendLog
from auditlake.delta.log_reader import list_newest
from auditlake.delta.small_tables import read_small_table
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable, history_of, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.masks import Masks
from auditlake.lake.records import read_recorded
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, TableName
from auditlake.values.masks import WITHHELD

ADDED_SCHEMA = pa.schema(
    [
        ("lsn", pa.int64()),
        ("oid", pa.int64()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("column", pa.string()),
        ("value", pa.string()),
        ("problem", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
    ]
)

_MANY_TABLES = 20  # to open one takes 3 ms, to list one that has not changed 0.02 ms (bench/many_tables.py, 2026-11)


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """Catalog snapshot of a table: its highest attribute number, and the file of each table that stores its rows.

    Every commit visible to the snapshot is before `lsn`. The keys of `files` are OIDs.
    """

    relation: int
    lsn: Lsn
    attributes: int
    files: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class StoringTable:
    """A table that stores rows: its file, and the text of the column's missing value, None if it has none."""

    file: int
    missing: str | None


@dataclass(frozen=True, slots=True)
class ColumnEntry:
    """The column's current catalog entry: its attribute number, and the highest number of a dropped column."""

    number: int
    last_dropped: int
    parts: Mapping[int, StoringTable]


@dataclass(frozen=True, slots=True)
class Existing:
    """Value of existing rows: a text, or None for NULL; undecided if there is a `problem`."""

    value: str | None = None
    problem: str | None = None


def decide(
    snapshot: CatalogSnapshot | None, found: ColumnEntry | None, seen: Lsn, number: int | None = None
) -> Existing:
    """Decide an added column's value in rows before `seen`, which first shows it; `number` is None if not known."""
    if found is None or (number is not None and found.number != number):
        return Existing(problem="the source no longer has the column")
    if snapshot is None or seen <= snapshot.lsn:
        return Existing(problem="the catalog was not read before the column was added")
    if found.number <= snapshot.attributes:
        return Existing(problem="the table already had it, under another name or unpublished")
    if number is None and found.last_dropped > snapshot.attributes:
        return Existing(problem="a column was added and dropped in between, perhaps the same one")
    values = {_of_part(found.parts[oid], file) for oid, file in snapshot.files.items() if oid in found.parts}
    if len(values) > 1:
        return Existing(problem="its partitions have different values")
    return next(iter(values), Existing())


def _of_part(part: StoringTable, file: int) -> Existing:
    if part.missing is not None or part.file == file:
        return Existing(part.missing)
    return Existing(problem="the table was rewritten, so each row may have a different value")


@dataclass(frozen=True, slots=True)
class Added:
    """A column of the relation with this OID that was first seen in the commit at `lsn`."""

    relation: int
    column: str
    lsn: Lsn


@dataclass(frozen=True, slots=True)
class Question:
    """The question for the missing value of a column added to a history's `table`; `number` is None if not known."""

    table: TableName
    added: Added
    number: int | None = None


Answers = Mapping[Added, Existing]
Ask = Callable[[Sequence[Question]], Sequence[Existing]]
"""Function that asks the source; it returns one answer per question, in order."""


def read_added(lake: Lake) -> dict[Added, Existing]:
    """Read the answers about added columns."""
    return _answers(read_small_table(lake.session, lake.added, ADDED_SCHEMA).sort_by("time").to_pylist())


def _answers(rows: Iterable[Mapping[str, Any]]) -> dict[Added, Existing]:
    found: dict[Added, Existing] = {}
    for row in rows:
        added = Added(row["oid"], row["column"], Lsn(row["lsn"]))
        if added not in found or found[added].problem is not None:
            found[added] = Existing(row["value"], row["problem"])
    return found


class AddedLog:
    """Asks the source for the missing values of added columns, and appends the answers to `added`."""

    def __init__(self, lake: Lake, ask: Ask | None, masks: Masks | None = None) -> None:
        """Read the answers so far; without `ask` open questions stay open, without `masks` nothing is masked."""
        self._lake = lake
        self._ask = ask
        self._masks = masks
        self._log: AppendLog | None = None
        self._told: dict[tuple[int, int | None], Existing] = {}
        self._found = list_newest(lake.added).newest
        self._answers = read_added(lake)

    @property
    def delta_version(self) -> int:
        """The version of the table after this process's last commit; -1 if it was not there when that began."""
        return self._found if self._log is None else self._log.version

    def tell(self, oid: int, number: int, existing: Existing) -> None:
        """Give the value of a table's column with this attribute number, so that the source is not asked for it."""
        self._told[oid, number] = existing

    def resolve(self, versions: Sequence[tuple[Lsn, Relation]], oids: frozenset[int]) -> None:
        """Ask the open questions about these tables; `versions` are all (LSN, relation) so far, in order."""
        if self._ask is None:
            return
        own: dict[int, list[tuple[Lsn, Relation]]] = {oid: [] for oid in sorted(oids)}
        for version in versions:
            if version[1].oid in own:
                own[version[1].oid].append(version)
        tables = self._histories([shapes[0][1] for shapes in own.values() if shapes])
        opened = [question for oid, table in tables.items() for question in self._open(table, own[oid])]
        if not opened:
            return
        told = {each.added: self._told.get((each.added.relation, each.number)) for each in opened}
        answers = {added: existing for added, existing in told.items() if existing is not None}
        if asked := [each for each in opened if each.added not in answers]:
            answers |= dict(zip((each.added for each in asked), self._ask(asked), strict=True))
        answers = {added: self._masked(added, answer, own[added.relation]) for added, answer in answers.items()}
        self._append([_row(question, answers[question.added]) for question in opened])
        self._answers |= answers

    def _masked(self, added: Added, answer: Existing, versions: Iterable[tuple[Lsn, Relation]]) -> Existing:
        """Return an answer as it may be recorded."""
        if not self._masks or answer.value is None:
            return answer
        relation = next(relation for lsn, relation in versions if lsn == added.lsn and _has(relation, added.column))
        mask = self._masks.of(relation).columns.get(added.column)
        if mask is WITHHELD:
            return Existing(problem="no rule of [mask] can be applied to the column")
        return answer if mask is None else Existing(mask.text(answer.value))

    def _histories(self, relations: Sequence[Relation]) -> dict[int, HistoryTable]:
        """Return the histories of tables by OID: of many tables, those that this process knows are not opened."""
        recorded = read_recorded(self._lake)
        names = {relation.oid: history_of(recorded, relation) for relation in relations}
        if len(names) > _MANY_TABLES:
            listed = {table.name: table for table in list_histories(self._lake)}
            found = {oid: listed.get(name) for oid, name in names.items()}
        else:
            found = {oid: open_history(self._lake, name) for oid, name in names.items()}
        return {oid: table for oid, table in found.items() if table is not None and table.oid == oid}

    def _open(self, history: HistoryTable, versions: Iterable[tuple[Lsn, Relation]]) -> Iterator[Question]:
        """Yield a question for each added column of a table that is neither in the history nor decided."""
        before: Sequence[Column] = history.columns
        for lsn, relation in versions:
            if lsn <= history.first_snapshot_lsn:
                continue
            for column in sorted(relation.columns, key=lambda column: column.name):
                if _is_among(column, before) or _is_among(column, history.columns):
                    continue
                added = Added(relation.oid, column.name, lsn)
                if self._answers.get(added, Existing(problem="")).problem is not None:
                    yield Question(history.name, added, column.attnum)
            before = relation.columns

    def _append(self, rows: list[dict[str, object]]) -> None:
        self._log = self._log or AppendLog(self._lake.added, ADDED_SCHEMA)
        self._log.append(pa.RecordBatch.from_pylist(rows, schema=ADDED_SCHEMA), {})


def _has(relation: Relation, column: str) -> bool:
    return any(each.name == column for each in relation.columns)


def _is_among(column: Column, others: Iterable[Column]) -> bool:
    """Return whether the same column is among others: by its number, or by name if one is not known."""
    return any(
        column.name == other.name if column.attnum is None or other.attnum is None else column.attnum == other.attnum
        for other in others
    )


def _row(question: Question, answer: Existing) -> dict[str, object]:
    added = question.added
    return {
        "lsn": added.lsn,
        "oid": added.relation,
        "schema": question.table.schema,
        "table": question.table.table,
        "column": added.column,
        "value": answer.value,
        "problem": answer.problem,
        "time": datetime.now(UTC),
    }
