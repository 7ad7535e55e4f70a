"""The row of `transactions` that each Commit of a buffer completes, and what is carried of one that stays open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from auditlake.pgoutput.context import Scope
from auditlake.pgoutput.frames import Ints
from auditlake.pgoutput.schema import TRANSACTIONS_SCHEMA
from auditlake.pgoutput.spans import OpenTransaction, Spans
from auditlake.pgoutput.tables import Placed

_COUNTED = {"inserts": "I", "updates": "U", "deletes": "D", "truncates": "T"}


@dataclass(frozen=True, slots=True)
class Totals:
    """What the rows of each transaction of the buffer add up to, with what was carried into it."""

    spans: Spans
    origins: dict[int, str | None]
    contexts: dict[int, Scope]
    rows: Ints
    counts: Mapping[str, Ints]
    names: Sequence[str]
    """Tables changed in this buffer or carried into it, sorted."""
    tables: Ints
    """Sorted and unique: the transaction times how many names, plus the place in `names`."""

    def completed(self) -> pa.RecordBatch:
        """One row for each transaction that ends here and has a change."""
        ended = self.spans.of[self.spans.commits]
        some = self.rows[ended] > 0
        ended = ended[some]
        columns = {
            "lsn": self.spans.lsn[ended],
            "end_lsn": self.spans.end_lsn[some],
            "xid": self.spans.xid[ended],
            "time": self.spans.time[ended],
            "origin": spread(self.origins, self.spans.count, ended),
            "context": spread({t: scope.text for t, scope in self.contexts.items()}, self.spans.count, ended),
            **{name: count[ended] for name, count in self.counts.items()},
            "tables": self._table_lists(ended),
        }
        return record_batch(columns, TRANSACTIONS_SCHEMA)

    def _table_lists(self, ended: Ints) -> pa.ListArray:
        transaction, place = np.divmod(self.tables, max(len(self.names), 1))
        mine = np.isin(transaction, ended) if ended.size else np.zeros(transaction.size, np.bool_)
        sizes = np.bincount(transaction, minlength=self.spans.count)[ended]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        names = pa.array(self.names, pa.string()).take(pa.array(place[mine]))
        return pa.ListArray.from_arrays(pa.array(offsets), names)

    def still_open(self) -> OpenTransaction | None:
        """Give what the next buffer must know of the last transaction."""
        if not self.spans.is_open:
            return None
        last = self.spans.count - 1
        transaction, place = np.divmod(self.tables, max(len(self.names), 1))
        return OpenTransaction(
            lsn=int(self.spans.lsn[last]),
            xid=int(self.spans.xid[last]),
            time=int(self.spans.time[last]),
            origin=self.origins.get(last),
            context=self.contexts.get(last, Scope()),
            rows=int(self.rows[last]),
            tables=frozenset(self.names[i] for i in place[transaction == last].tolist()),
            **{name: int(count[last]) for name, count in self.counts.items()},
        )


def add_up(placed: Placed) -> Totals:
    """Add up the rows of each transaction."""
    spans, rows, rare = placed.spans, placed.rows, placed.rare
    carried = spans.carried or OpenTransaction(lsn=0, xid=0, time=0)
    origins: dict[int, str | None] = {0: carried.origin}
    contexts = {0: carried.context}
    for number, origin in rare.origins:
        origins[int(spans.of[number])] = origin.name
    for number, message in rare.messages:
        transaction, ordinal = int(spans.of[number]), int(rows.ordinal[rows.first[number]])
        contexts[transaction] = contexts.get(transaction, Scope()).after(message.prefix, message.content, ordinal)
    tags = placed.frames.tags[rows.message]
    counts = {name: _count(rows.transaction[tags == ord(tag)], spans) for name, tag in _COUNTED.items()}
    for name, count in counts.items():
        count[0] += getattr(carried, name)
    of_all = _count(rows.transaction, spans)
    of_all[0] += carried.rows
    names, tables = _tables(placed, carried.tables)
    return Totals(spans, origins, contexts, of_all, counts, names, tables)


def _count(transactions: Ints, spans: Spans) -> Ints:
    return np.bincount(transactions, minlength=spans.count)


def _tables(placed: Placed, carried: frozenset[str]) -> tuple[list[str], Ints]:
    slots, known = placed.slots, placed.known
    about_table = np.flatnonzero(slots >= 0)
    used = np.flatnonzero(np.bincount(slots[about_table], minlength=len(known)))
    name_of = {slot: str(known[slot].relation.name) for slot in used.tolist()}
    names = sorted(carried.union(name_of.values()))
    place = {name: i for i, name in enumerate(names)}
    place_of_slot = np.zeros(len(known), np.int64)
    for slot, name in name_of.items():
        place_of_slot[slot] = place[name]
    pairs = placed.rows.transaction[about_table] * len(names) + place_of_slot[slots[about_table]]
    pairs = np.sort(np.concatenate([pairs, np.array([place[name] for name in carried], np.int64)]))
    return names, pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique hashes, six times slower here


def spread(texts: Mapping[int, str | None], count: int, wanted: Ints) -> pa.StringArray:
    """One text for each of `wanted`, NULL for those that `texts` does not hold; `count` is their upper bound."""
    present = [(number, text) for number, text in texts.items() if text is not None]
    if not present:
        return pa.nulls(wanted.size, pa.string())
    place = np.full(count, -1, np.int64)
    place[[number for number, _ in present]] = np.arange(len(present))
    place = place[wanted]
    return pa.array([text for _, text in present], pa.string()).take(pa.array(place, mask=place < 0))


def record_batch(columns: Mapping[str, object], schema: pa.Schema) -> pa.RecordBatch:
    """Put named columns under a schema; numbers become its integers and times."""
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column).cast(schema.field(name).type)
        for name, column in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
