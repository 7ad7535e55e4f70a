"""Rows of `changes` as transactions: in commit order, complete, in memory that does not grow with a transaction.

`ChangeReader.read` returns the changes of the transactions in a range of LSNs, of all of them together, because one
read of a file serves many small transactions. A transaction that does not fit in memory is a `StreamedChanges`:
iterating it reads its files again, one row group at a time; a row group has at most 16 MB or one row.

Every transaction's changes are counted and compared with the counts that capture recorded in `transactions`. If some
are missing, the transaction is refused: a feed never delivers part of one. Changes of rows that were erased for good
are counted and left out, which is reported once for each transaction.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.apply.tails import FOLDED_OPS
from auditlake.audit.changes import new_texts, old_texts
from auditlake.audit.transactions import Transaction
from auditlake.errors import InvariantBroken, NotAnswerable
from auditlake.feed.change import Change
from auditlake.feed.log_tail import Group, LogTail, in_span
from auditlake.feed.selection import KeyShape, Selected
from auditlake.lake.erasures import ERASED_OP
from auditlake.lsn import Lsn
from auditlake.messages import say

_PLACE = ("lsn", "ordinal")
_COLUMNS = (*_PLACE, "op", "relation", "old", "new", "unchanged")
_ROW_OPS = pa.array([*FOLDED_OPS, ERASED_OP])
_DECODED_ROWS = 2_000


class ChangeReader:
    """Reads the selected changes of transactions from the files of `changes`."""

    def __init__(self, tail: LogTail, selected: Selected) -> None:
        self._tail = tail
        self._selected = selected
        self._with_erased = set[int]()

    def held_bytes(self, after: Lsn, upto: Lsn) -> int:
        """Return about how much memory a read of these LSNs takes."""
        return sum(group.held_bytes for group in self._tail.groups(after, upto))

    def read(self, transactions: Sequence[Transaction]) -> Iterator[tuple[Transaction, list[Change]]]:
        """Yield transactions with their selected changes, in commit order; raises NotAnswerable."""
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

    def _decoded(self, rows: pa.Table) -> Iterator[tuple[Lsn, Change]]:
        rows = self._without_erased(rows)
        for number in pc.unique(rows["relation"]).to_pylist():
            self._selected.relation(number)
        for batch in self._chosen(rows).to_batches(max_chunksize=_DECODED_ROWS):
            for row in batch.to_pylist():
                lsn = Lsn(row["lsn"])
                shape = self._selected.key_shape(row["relation"], lsn)
                change = self._change(row, shape)
                if self._is_shown(change) and self._selected.takes_key(change, shape, lsn):
                    yield lsn, change

    def _is_shown(self, change: Change) -> bool:
        only = self._selected.selection.only
        return only is None or str(change.table) in only

    def _without_erased(self, rows: pa.Table) -> pa.Table:
        """Return the changes that a feed delivers; report each transaction of the others once."""
        is_erased = pc.equal(rows["op"], ERASED_OP)
        for lsn in pc.unique(rows.filter(is_erased)["lsn"]).to_pylist():
            if lsn not in self._with_erased:
                self._with_erased.add(lsn)
                say(f"erased: changes of transaction {Lsn(lsn)}, which are left out; erasures/ has why")
        return rows.filter(pc.invert(is_erased))

    def _chosen(self, rows: pa.Table) -> pa.Table:
        numbers, ops = self._selected.numbers, self._selected.selection.ops
        if numbers is not None:
            rows = rows.filter(pc.is_in(rows["relation"], pa.array(sorted(numbers), pa.int64())))
        if ops is not None:
            rows = rows.filter(pc.is_in(rows["op"], pa.array(sorted(ops))))
        return rows

    def _change(self, row: Mapping[str, Any], shape: KeyShape) -> Change:
        relation = self._selected.relation(row["relation"])
        unchanged = tuple(relation.columns[place].name for place in sorted(row["unchanged"] or ()))
        return Change(
            relation.name,
            row["op"],
            row["ordinal"],
            relation.columns,
            shape.names,
            old_texts(row["old"], relation),
            new_texts(row["new"], relation, unchanged),
            unchanged,
        )


def _of_rows(rows: pa.Table) -> pa.Table:
    """Return the changes of rows: `changes` has logical messages too."""
    return rows.filter(pc.is_in(rows["op"], _ROW_OPS))


@dataclass(frozen=True, slots=True)
class StreamedChanges:
    """Selected changes of a large transaction; each iteration reads them from the lake, a row group at a time."""

    _transaction: Transaction
    _tail: LogTail = field(repr=False)
    _decode: Callable[[pa.Table], Iterator[tuple[Lsn, Change]]] = field(repr=False)

    def __iter__(self) -> Iterator[Change]:
        """Yield the changes in order; raises NotAnswerable if some are missing."""
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
        for group in self._tail.groups(Lsn(self._transaction.lsn - 1), self._transaction.lsn):
            ordinals = self._rows(group, _PLACE)["ordinal"]
            if len(ordinals):
                starts.append((pc.min(ordinals).as_py(), group))
        for _, group in sorted(starts, key=lambda start: start[0]):
            rows = _of_rows(self._rows(group, _COLUMNS)).sort_by("ordinal")
            if rows.num_rows:
                yield rows

    def _rows(self, group: Group, columns: Sequence[str]) -> pa.Table:
        try:
            return in_span(group.read(columns), Lsn(self._transaction.lsn - 1), self._transaction.lsn)
        except FileNotFoundError as exc:
            raise NotAnswerable(
                f"the files of transaction {self._transaction.lsn} were replaced more than six hours ago",
                "Start again from the last cursor.",
            ) from exc


def _check_complete(transaction: Transaction, found: int) -> None:
    """Check that every change that capture recorded is in the lake; raises NotAnswerable."""
    if found != transaction.count:
        counted = (
            f"{transaction.count} changes, and {found} of them are" if transaction.is_whole else "changes that are not"
        )
        raise NotAnswerable(
            f"transaction {Lsn(transaction.lsn)} has {counted} in the lake",
            "Older changes were deleted from the lake: start from a later moment.",
        )
