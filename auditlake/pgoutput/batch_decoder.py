"""Rows of `transactions`: counts and tables per transaction, and the state carried for one that stays open.

Batch decoder: a buffer of many pgoutput messages into Arrow, the fast path of capture.

`ChangeDecoder.decode()` returns the rows that `wire.decode` would produce message by message, without a Python loop
over messages: numpy reads Begin, Commit, Insert, Update and Delete, one table and column at a time; `wire` reads the
rare messages one by one. It returns a `Decoded`, or raises DecodeError, or `Unsupported` for a transaction of more than
2^31 changes. Every read is first checked against the end of its message.

State kept between buffers: relations and types by OID, and the open transaction with its next ordinal and counts. An
error leaves that state unchanged. A new connection needs a new decoder, because the server sends its relations again.

Non-transactional logical messages are skipped: they belong to no transaction and so have no place in the order of
changes. The caller checks that commit LSNs increase along a stream, because it has the stream's start.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditlake.attribution import Scope
from auditlake.lsn import Lsn
from auditlake.pgoutput.arrow_schema import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA
from auditlake.pgoutput.batch_layout import (
    NO_TABLE,
    Frames,
    Ints,
    Layout,
    OpenTransaction,
    Refused,
    RelationVersion,
    RelationVersions,
    Spans,
    assign_rows,
    read_rare,
)
from auditlake.pgoutput.decode_errors import explain
from auditlake.pgoutput.decoder import decode
from auditlake.pgoutput.messages import Commit
from auditlake.pgoutput.tuple_columns import read_values
from auditlake.relation import Relation

_COUNTED = {"inserts": "I", "updates": "U", "deletes": "D", "truncates": "T"}


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums per transaction of the buffer, including those carried into it."""

    spans: Spans
    origins: dict[int, str | None]
    contexts: dict[int, Scope]
    rows: Ints
    counts: Mapping[str, Ints]
    names: Sequence[str]
    """Names of the tables changed in this buffer or carried into it, sorted."""
    tables: Ints
    """Pairs of transaction and table, as transaction * len(names) + index into `names`; sorted and unique."""

    def completed(self) -> pa.RecordBatch:
        """Return one row per transaction that ends in this buffer and has a change."""
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
        of_ended = np.isin(transaction, ended) if ended.size else np.zeros(transaction.size, np.bool_)
        sizes = np.bincount(transaction, minlength=self.spans.count)[ended]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        names = pa.array(self.names, pa.string()).take(pa.array(place[of_ended]))
        return pa.ListArray.from_arrays(pa.array(offsets), names)

    def still_open(self) -> OpenTransaction | None:
        """Return the state of the last transaction for the next buffer, None if it has ended."""
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


def add_up(layout: Layout) -> Totals:
    """Sum up the rows of each transaction."""
    spans, rows, rare = layout.spans, layout.rows, layout.rare
    carried = spans.carried or OpenTransaction(lsn=0, xid=0, time=0)
    origins: dict[int, str | None] = {0: carried.origin}
    contexts = {0: carried.context}
    for number, origin in rare.origins:
        origins[int(spans.of[number])] = origin.name
    for number, message in rare.messages:
        transaction, ordinal = int(spans.of[number]), int(rows.ordinal[rows.first[number]])
        contexts[transaction] = contexts.get(transaction, Scope()).after(message.prefix, message.content, ordinal)
    tags = layout.frames.tags[rows.message]
    counts = {name: _count(rows.transaction[tags == ord(tag)], spans) for name, tag in _COUNTED.items()}
    for name, count in counts.items():
        count[0] += getattr(carried, name)
    row_counts = _count(rows.transaction, spans)
    row_counts[0] += carried.rows
    names, tables = _tables(layout, carried.tables)
    return Totals(spans, origins, contexts, row_counts, counts, names, tables)


def _count(transactions: Ints, spans: Spans) -> Ints:
    return np.bincount(transactions, minlength=spans.count)


def _tables(layout: Layout, carried: frozenset[str]) -> tuple[list[str], Ints]:
    slots, versions = layout.slots, layout.versions
    with_table = np.flatnonzero(slots >= 0)
    used = np.flatnonzero(np.bincount(slots[with_table], minlength=len(versions)))
    name_of = {slot: str(versions[slot].relation.name) for slot in used.tolist()}
    names = sorted(carried.union(name_of.values()))
    place = {name: i for i, name in enumerate(names)}
    place_of_slot = np.zeros(len(versions), np.int64)
    for slot, name in name_of.items():
        place_of_slot[slot] = place[name]
    pairs = layout.rows.transaction[with_table] * len(names) + place_of_slot[slots[with_table]]
    pairs = np.sort(np.concatenate([pairs, np.array([place[name] for name in carried], np.int64)]))
    return names, pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique hashes: six times slower here


def spread(texts: Mapping[int, str | None], count: int, numbers: Ints) -> pa.StringArray:
    """Return `texts[number]` for each of `numbers`, NULL for a number without a text; numbers are below `count`."""
    present = [(number, text) for number, text in texts.items() if text is not None]
    if not present:
        return pa.nulls(numbers.size, pa.string())
    place = np.full(count, -1, np.int64)
    place[[number for number, _ in present]] = np.arange(len(present))
    place = place[numbers]
    return pa.array([text for _, text in present], pa.string()).take(pa.array(place, mask=place < 0))


def record_batch(columns: Mapping[str, object], schema: pa.Schema) -> pa.RecordBatch:
    """Build a record batch of named columns, with numbers cast to the schema's integer and timestamp types."""
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column).cast(schema.field(name).type)
        for name, column in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_OPS = {"I": "insert", "U": "update", "D": "delete", "T": "truncate", "M": "message"}
_OP_NAMES = pa.array(_OPS.values())
_OP_OF_TAG = np.zeros(256, np.int64)
_OP_OF_TAG[[ord(tag) for tag in _OPS]] = np.arange(len(_OPS))


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows of one buffer, in stream order."""

    changes: pa.RecordBatch
    """Rows of CHANGES_SCHEMA; the first and the last transaction may be incomplete."""
    transactions: pa.RecordBatch
    """Rows of TRANSACTIONS_SCHEMA: transactions that end in this buffer and have a change in this or an earlier one."""
    last_commit: Commit | None
    """The last Commit in the buffer, including that of an empty transaction."""


class ChangeDecoder:
    """Decoder for the messages of one replication stream."""

    def __init__(self, register: Callable[[Relation, int], int]) -> None:
        """Start without relations; `register` maps each new relation version and its commit LSN to a number."""
        self._register = register
        self._relations: dict[int, RelationVersion] = {}
        self._base_types: dict[int, int] = {}
        self._open: OpenTransaction | None = None

    @property
    def open_lsn(self) -> Lsn | None:
        """Return the commit LSN of the transaction whose Commit has not been received."""
        return Lsn(self._open.lsn) if self._open else None

    def decode(
        self, buffer: bytes | bytearray, starts: npt.NDArray[np.integer], ends: npt.NDArray[np.integer]
    ) -> Decoded:
        """Decode the payloads `buffer[starts[i]:ends[i]]`, the next ones of the stream, in order.

        Raises DecodeError.
        """
        try:
            return self._decode(Frames(buffer, starts, ends))
        except Refused as refused:
            until = refused.number + 1
            payloads = [bytes(buffer[start:end]) for start, end in zip(starts[:until], ends[:until], strict=True)]
            raise explain(payloads, refused.problem, self._relations, self.open_lsn) from None

    def _decode(self, frames: Frames) -> Decoded:
        spans = Spans(frames, self._open)
        rare = read_rare(frames, spans)
        rows = assign_rows(frames, spans, rare)
        relations = RelationVersions(self._relations, self._base_types)
        relations.follow(rare, spans, self._register)
        layout = Layout(frames, spans, rare, rows, relations.slots(rows), relations.versions)
        totals = add_up(layout)
        decoded = Decoded(_changes(layout, totals), totals.completed(), _last_commit(frames, spans))
        self._relations, self._open = relations.latest, totals.still_open()
        self._base_types = relations.base_types
        return decoded


def _changes(layout: Layout, totals: Totals) -> pa.RecordBatch:
    spans, rows = layout.spans, layout.rows
    names = [version.relation.name for version in layout.versions]
    slot = pa.array(layout.slots, mask=layout.slots == NO_TABLE)
    values = read_values(layout)
    columns = {
        "lsn": spans.lsn[rows.transaction],
        "ordinal": rows.ordinal,
        "xid": spans.xid[rows.transaction],
        "time": spans.time[rows.transaction],
        "origin": spread(totals.origins, spans.count, rows.transaction),
        "op": _OP_NAMES.take(pa.array(_OP_OF_TAG[layout.frames.tags[rows.message]])),
        "schema": pa.array([name.schema for name in names], pa.string()).take(slot),
        "table": pa.array([name.table for name in names], pa.string()).take(slot),
        "relation": pa.array([version.number for version in layout.versions], pa.int64()).take(slot),
        "old": values.old,
        "new": values.new,
        "unchanged": values.unchanged,
        "prefix": _of_messages(layout, [message.prefix for _, message in layout.rare.messages], pa.string()),
        "content": _of_messages(layout, [message.content for _, message in layout.rare.messages], pa.binary()),
    }
    return record_batch(columns, CHANGES_SCHEMA)


def _of_messages(layout: Layout, values: list[str] | list[bytes], of_type: pa.DataType) -> pa.Array:
    """Return a column with the value of each logical message in its row, and NULL in all others."""
    if not values:
        return pa.nulls(layout.rows.count, of_type)
    place = np.full(layout.rows.count, -1, np.int64)
    place[layout.rows.first[[number for number, _ in layout.rare.messages]]] = np.arange(len(values))
    return pa.array(values, of_type).take(pa.array(place, mask=place < 0))


def _last_commit(frames: Frames, spans: Spans) -> Commit | None:
    if not spans.commits.size:
        return None
    commit = decode(frames.payload(int(spans.commits[-1])))
    assert isinstance(commit, Commit)  # noqa: S101  # its tag is C
    return commit
