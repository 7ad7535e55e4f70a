"""Rows of `changes` as transactions: in commit order, complete, in memory that does not grow with a transaction.

`ChangeReader.read` returns the changes of the transactions in a range of LSNs, of all of them together, because one
read of a file serves many small transactions. A transaction that is too large for this is a `StreamedChanges`, which
reads the row groups of its files, one at a time, whenever it is iterated; a row group has at most 16 MB or one row.

Every transaction's changes are counted and compared with the counts that capture recorded in `transactions`. If some
are missing, the transaction is refused: a feed never delivers part of one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.transactions import Transaction, lsns_of_table
from auditlake.errors import InvariantBroken, NotAnswerable
from auditlake.feed.change import Change, Texts
from auditlake.feed.log_tail import Group, LogTail, within
from auditlake.lake.history import list_histories
from auditlake.lake.layout import Lake
from auditlake.lake.relations import read_relations
from auditlake.lsn import Lsn
from auditlake.relation import Relation, ReplicaIdentity, TableName

_PLACE = ("lsn", "ordinal")
_COLUMNS = (*_PLACE, "op", "relation", "old", "new", "unchanged")
_ROW_OPS = pa.array(["insert", "update", "delete", "truncate"])
_DECODED_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Which changes are delivered; None is no filter. `key` are texts in the order of the table's key columns.

    `column` selects transactions that changed its value in some row of the one table, as in `auditlake log --column`.
    """

    tables: frozenset[TableName] | None = None
    ops: frozenset[str] | None = None
    key: tuple[str, ...] | None = None
    column: str | None = None

    @property
    def is_everything(self) -> bool:
        return self == Selection()

    def may_match(self, transaction: Transaction) -> bool:
        """Return whether some change of a transaction may be selected."""
        counts = {
            "insert": transaction.inserts,
            "update": transaction.updates,
            "delete": transaction.deletes,
            "truncate": transaction.truncates,
        }
        if self.ops is not None and not any(counts[op] for op in self.ops):
            return False
        return self.tables is None or not {str(table) for table in self.tables}.isdisjoint(transaction.tables)

    def with_column(self, lake: Lake, transactions: Sequence[Transaction]) -> Sequence[Transaction]:
        """Return the transactions that changed the column; PostgreSQL sends no old value, so the lake is asked.

        Raises BadUsage if the table has no such column, NotAnswerable if its earlier state is not known.
        """
        if self.column is None or self.tables is None or not transactions:
            return transactions
        reader = Reader(lake, datetime.now(UTC))
        (name,) = self.tables
        span = Span(Lsn(transactions[0].lsn - 1), Lsn(transactions[-1].lsn))
        table = reader.known.tables[name]
        reader.check(table, span.upto)
        lsns = lsns_of_table(reader, table, span, None, self.column) or frozenset()
        return [each for each in transactions if each.lsn in lsns]

    def takes_key(self, change: Change) -> bool:
        """Return whether a change passes the filter by key; a TRUNCATE concerns every key.

        Raises NotAnswerable if the table had another key at that moment.
        """
        if self.key is None or change.op == "truncate":
            return True
        if len(change.key_texts) != len(self.key):
            raise NotAnswerable(
                f"the columns of the key of {change.table} had other names at the moment of a change",
                "Receive all changes of the table, without a key.",
            )
        return self.key in {tuple(change.key_texts.values()), tuple(change.key_texts_before.values())}


class Shapes:
    """Relation versions by number, and the key of each table; read again when an unknown number appears."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._relations: dict[int, Relation] = {}
        self._keys: dict[TableName, tuple[str, ...]] = {}

    def relation(self, number: int) -> Relation:
        """Return a relation version."""
        if number not in self._relations:
            self._relations = read_relations(self._lake)
            histories = list_histories(self._lake)
            self._keys = {table.name: tuple(column.name for column in table.key) for table in histories}
        return self._relations[number]

    def key(self, relation: Relation) -> tuple[str, ...]:
        """Return the names of the key's columns; a table that is not copied yet has its replica identity."""
        names = {column.name for column in relation.columns}
        flagged = tuple(column.name for column in relation.columns if column.key)
        default = () if relation.replica_identity == ReplicaIdentity.FULL else flagged
        return tuple(name for name in self._keys.get(relation.name, default) if name in names)

    def of_tables(self, tables: frozenset[TableName]) -> list[int]:
        """Return the numbers of all relation versions known of these tables."""
        return [number for number, relation in self._relations.items() if relation.name in tables]


class ChangeReader:
    """Reads the selected changes of transactions from the files of `changes`."""

    def __init__(self, lake: Lake, tail: LogTail, selection: Selection) -> None:
        self._tail = tail
        self._shapes = Shapes(lake)
        self._selection = selection

    def held_bytes(self, after: Lsn, upto: Lsn) -> int:
        """Return about how much memory a read of these LSNs takes."""
        return sum(group.held_bytes for group in self._tail.groups(after, upto))

    def read(self, transactions: Sequence[Transaction]) -> Iterator[tuple[Transaction, list[Change]]]:
        """Yield transactions, in commit order, each with its selected changes.

        Raises NotAnswerable if changes of one are missing.
        """
        if not transactions:
            return
        rows = self._tail.rows(Lsn(transactions[0].lsn - 1), transactions[-1].lsn, _COLUMNS)
        changes: dict[int, list[Change]] = {}
        counts: Mapping[int, int] = {}
        if rows is not None:
            lsns = pa.array([transaction.lsn for transaction in transactions], pa.int64())
            rows = _of_rows(rows.filter(pc.is_in(rows["lsn"], lsns)))
            rows = rows.sort_by([(name, "ascending") for name in _PLACE])
            counts = {each["values"]: each["counts"] for each in pc.value_counts(rows["lsn"]).to_pylist()}
            for lsn, change in self._decoded(rows):
                changes.setdefault(lsn, []).append(change)
        for transaction in transactions:
            _check_complete(transaction, counts.get(transaction.lsn, 0))
            yield transaction, changes.get(transaction.lsn, [])

    def streamed(self, transaction: Transaction) -> "StreamedChanges":
        """Return the selected changes of one large transaction, which are read when they are iterated."""
        return StreamedChanges(transaction, self._tail, self._decoded)

    def _decoded(self, rows: pa.Table) -> Iterator[tuple[int, Change]]:
        for number in pc.unique(rows["relation"]).to_pylist():
            self._shapes.relation(number)
        for batch in self._selected(rows).to_batches(max_chunksize=_DECODED_ROWS):
            for row in batch.to_pylist():
                change = self._change(row)
                if self._selection.takes_key(change):
                    yield row["lsn"], change

    def _selected(self, rows: pa.Table) -> pa.Table:
        if self._selection.tables is not None:
            numbers = pa.array(self._shapes.of_tables(self._selection.tables), pa.int64())
            rows = rows.filter(pc.is_in(rows["relation"], numbers))
        if self._selection.ops is not None:
            rows = rows.filter(pc.is_in(rows["op"], pa.array(sorted(self._selection.ops))))
        return rows

    def _change(self, row: Mapping[str, Any]) -> Change:
        relation = self._shapes.relation(row["relation"])
        unchanged = frozenset(row["unchanged"] or ())
        return Change(
            relation.name,
            row["op"],
            row["ordinal"],
            relation.columns,
            self._shapes.key(relation),
            _old(row["old"], relation),
            _new(row["new"], relation, unchanged),
            tuple(relation.columns[place].name for place in sorted(unchanged)),
        )


def _of_rows(rows: pa.Table) -> pa.Table:
    """Return the changes of rows: `changes` has logical messages too."""
    return rows.filter(pc.is_in(rows["op"], _ROW_OPS))


def _old(texts: Sequence[str | None] | None, relation: Relation) -> Texts | None:
    if texts is None:
        return None
    whole = relation.replica_identity == ReplicaIdentity.FULL
    pairs = zip(relation.columns, texts, strict=True)
    return {column.name: text for column, text in pairs if whole or column.key}


def _new(texts: Sequence[str | None] | None, relation: Relation, unchanged: frozenset[int]) -> Texts | None:
    if texts is None:
        return None
    pairs = enumerate(zip(relation.columns, texts, strict=True))
    return {column.name: text for place, (column, text) in pairs if place not in unchanged}


@dataclass(frozen=True, slots=True)
class StreamedChanges:
    """Selected changes of a large transaction; each iteration reads them from the lake, a row group at a time."""

    _transaction: Transaction
    _tail: LogTail = field(repr=False)
    _decode: Callable[[pa.Table], Iterator[tuple[int, Change]]] = field(repr=False)

    def __iter__(self) -> Iterator[Change]:
        """Yield the changes in order.

        Raises NotAnswerable if some are missing.
        """
        count, last = 0, -1
        for rows in self._in_order():
            first, end = rows["ordinal"][0].as_py(), rows["ordinal"][-1].as_py()
            if first <= last:
                raise InvariantBroken(f"parts of transaction {self._transaction.lsn} overlap at ordinal {first}")
            count, last = count + rows.num_rows, end
            for _, change in self._decode(rows):
                yield change
        _check_complete(self._transaction, count)

    def _in_order(self) -> Iterator[pa.Table]:
        """Yield the rows of each row group, in the order of their ordinals."""
        starts = []
        for group in self._groups():
            ordinals = self._rows(group, _PLACE)["ordinal"]
            if len(ordinals):
                starts.append((pc.min(ordinals).as_py(), group))
        for _, group in sorted(starts, key=lambda start: start[0]):
            rows = _of_rows(self._rows(group, _COLUMNS)).sort_by("ordinal")
            if rows.num_rows:
                yield rows

    def _groups(self) -> list[Group]:
        return self._tail.groups(Lsn(self._transaction.lsn - 1), self._transaction.lsn)

    def _rows(self, group: Group, columns: Sequence[str]) -> pa.Table:
        try:
            return within(group.read(columns), Lsn(self._transaction.lsn - 1), self._transaction.lsn)
        except FileNotFoundError as exc:
            raise NotAnswerable(
                f"the files of transaction {self._transaction.lsn} were replaced more than six hours ago",
                "Start again from the last cursor.",
            ) from exc


def _check_complete(transaction: Transaction, found: int) -> None:
    """Check that every change that capture recorded is in the lake.

    Raises NotAnswerable.
    """
    if found != transaction.count:
        raise NotAnswerable(
            f"transaction {Lsn(transaction.lsn)} has {transaction.count} changes, and {found} of them are in the lake",
            "Older changes were deleted from the lake: start from a later moment.",
        )
