"""Batch decoder: a buffer of many pgoutput messages into Arrow, the fast path of capture.

`ChangeDecoder.decode()` returns the rows that `decoder.decode` would produce message by message, without a Python loop
over messages: `batch_layout` finds which rows, transactions and relations the buffer has, and numpy reads the tuples,
one table and message form at a time. It returns a `Decoded`, or raises DecodeError, or `Unsupported` for a transaction
of more than 2^31 changes. Every read is first checked against the end of its message.

State kept between buffers: relations and types by OID, and the open transaction with its next ordinal and counts. An
error leaves that state unchanged. A new connection needs a new decoder, because the server sends its relations again.

Non-transactional logical messages are skipped: they belong to no transaction and so have no place in the order of
changes. The caller checks that commit LSNs increase along a stream, because it has the stream's start.

1. `TRANSACTIONS_SCHEMA`: counts and tables per transaction, including those carried in from earlier buffers.
2. `CHANGES_SCHEMA`: a change is identified by (`lsn`, `ordinal`). `old` and `new` have one text per column of
   the row's relation. NULL means SQL NULL, or in `new` a value listed in `unchanged`. If the relation names a key, only
   the key columns of `old` are certain to be set. `relation` is a place in `Decoded.entries`. When the buffer is
   recorded, the number of the relation version takes its place, which depends on the versions recorded before.
3. Tuples: rows are recorded table by table, lists come out in stream order. Values in stream order are in buffer order
   too, so their bytes are copied in one pass at the end: given the bounds of every value, the buffer itself is a string
   array of value, gap, value, gap …, and a filter keeps every second element.
4. Errors: a check reports only the number of a malformed message. The messages up to it are then read again, one by
   one: `decoder.decode` describes a message that is malformed in itself, the check one that is out of place.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditlake.errors import DecodeError, InvariantBroken
from auditlake.lsn import Lsn
from auditlake.pgoutput.attribution import ContextInForce, codec_of, in_utf8
from auditlake.pgoutput.batch_layout import (
    NO_TABLE,
    Bools,
    BrokenMessage,
    BufferLayout,
    Descriptions,
    Entry,
    Frames,
    Ints,
    OpenTransaction,
    Spans,
    lay_out,
    require_fine,
)
from auditlake.pgoutput.ddl_message import Prove
from auditlake.pgoutput.decoder import Begin, Boundary, Commit, Message, decode
from auditlake.relation import Relation
from auditlake.values.escapes import escape_column

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.list_(pa.string())

CHANGES_SCHEMA: Final = pa.schema(
    [
        ("lsn", pa.int64()),
        ("ordinal", pa.int32()),
        ("xid", pa.int64()),
        ("time", _TIME),
        ("origin", pa.string()),
        ("op", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("relation", pa.int64()),
        ("old", _TEXTS),
        ("new", _TEXTS),
        ("unchanged", pa.list_(pa.int16())),
        ("prefix", pa.string()),
        ("content", pa.binary()),
    ]
)

TRANSACTIONS_SCHEMA: Final = pa.schema(
    [
        ("lsn", pa.int64()),
        ("end_lsn", pa.int64()),
        ("xid", pa.int64()),
        ("time", _TIME),
        ("origin", pa.string()),
        ("context", pa.string()),
        ("inserts", pa.int64()),
        ("updates", pa.int64()),
        ("deletes", pa.int64()),
        ("truncates", pa.int64()),
        ("tables", _TEXTS),
    ]
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows of one buffer, in stream order."""

    changes: pa.RecordBatch
    """Rows of CHANGES_SCHEMA; `relation` is a place in `entries`. The first and last transaction may be incomplete."""
    entries: Sequence[Entry]
    """The tables described in earlier buffers, then the messages about tables in this one, in their order."""
    transactions: pa.RecordBatch
    """Rows of TRANSACTIONS_SCHEMA: transactions that end in this buffer and have a change in this or an earlier one."""
    last_commit: Commit | None
    """The last Commit in the buffer, including that of an empty transaction."""


class ChangeDecoder:
    """Decoder for the messages of one replication stream."""

    def __init__(self, prove: Prove = lambda messages: [False] * len(messages), encoding: str | None = None) -> None:
        """Start without relations; `prove` decides which messages are the DDL trigger's, by default none.

        `encoding` is the database's, by PostgreSQL's name; None is UTF8.
        """
        self._prove = prove
        self._codec = codec_of(encoding) if encoding is not None else None
        self._relations: dict[int, Relation] = {}
        self._base_types: dict[int, int] = {}
        self._open: OpenTransaction | None = None

    @property
    def open_lsn(self) -> Lsn | None:
        """Return the commit LSN of the transaction whose Commit has not been received."""
        return self._open.lsn if self._open else None

    def decode(
        self, buffer: bytes | bytearray, starts: npt.NDArray[np.integer], ends: npt.NDArray[np.integer]
    ) -> Decoded:
        """Decode the next payloads of the stream, `buffer[starts[i]:ends[i]]`; raises DecodeError."""
        try:
            return self._decode(Frames(buffer, starts, ends))
        except BrokenMessage as refused:
            until = refused.number + 1
            payloads = [bytes(buffer[start:end]) for start, end in zip(starts[:until], ends[:until], strict=True)]
            raise _explain(payloads, refused.problem, self._relations, self.open_lsn) from None

    def _decode(self, frames: Frames) -> Decoded:
        descriptions = Descriptions(self._relations, self._base_types, self._prove)
        layout = lay_out(frames, self._open, descriptions)
        if self._codec is not None:
            layout.rare.messages[:] = [
                (number, replace(each, content=in_utf8(each.prefix, each.content, self._codec)))
                for number, each in layout.rare.messages
            ]
        totals = _add_up(layout)
        commit = _last_commit(frames, layout.spans)
        decoded = Decoded(_changes(layout, totals), layout.entries, totals.completed(), commit)
        self._relations, self._open = descriptions.latest, totals.still_open()
        self._base_types = descriptions.base_types
        return decoded


_OPS = {"I": "insert", "U": "update", "D": "delete", "T": "truncate", "M": "message"}
_OP_NAMES = pa.array(_OPS.values())
_OP_OF_TAG = np.zeros(256, np.int64)
_OP_OF_TAG[[ord(tag) for tag in _OPS]] = np.arange(len(_OPS))


def _changes(layout: BufferLayout, totals: "_Totals") -> pa.RecordBatch:
    spans, rows = layout.spans, layout.rows
    names = [relation.name for relation in layout.relations]
    slot = pa.array(layout.slots, mask=layout.slots == NO_TABLE)
    values = _read_values(layout)
    columns = {
        "lsn": spans.lsn[rows.transaction],
        "ordinal": rows.ordinal,
        "xid": spans.xid[rows.transaction],
        "time": spans.time[rows.transaction],
        "origin": _spread(totals.origins, spans.count, rows.transaction),
        "op": _OP_NAMES.take(pa.array(_OP_OF_TAG[layout.frames.tags[rows.message]])),
        "schema": pa.array([name.schema for name in names], pa.string()).take(slot),
        "table": pa.array([name.table for name in names], pa.string()).take(slot),
        "relation": pa.array(layout.described, mask=layout.described == NO_TABLE),
        "old": values.old,
        "new": values.new,
        "unchanged": values.unchanged,
        "prefix": _of_messages(layout, [message.prefix for _, message in layout.rare.messages], pa.string()),
        "content": _of_messages(layout, [message.content for _, message in layout.rare.messages], pa.binary()),
    }
    return _record_batch(columns, CHANGES_SCHEMA)


def _of_messages(layout: BufferLayout, values: list[str] | list[bytes], of_type: pa.DataType) -> pa.Array:
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


_COUNTED = {"inserts": "I", "updates": "U", "deletes": "D", "truncates": "T"}


@dataclass(frozen=True, slots=True)
class _Totals:
    """Sums per transaction of the buffer, including those carried into it."""

    spans: Spans
    origins: dict[int, str | None]
    contexts: dict[int, ContextInForce]
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
            "origin": _spread(self.origins, self.spans.count, ended),
            "context": _spread({t: scope.text for t, scope in self.contexts.items()}, self.spans.count, ended),
            **{name: count[ended] for name, count in self.counts.items()},
            "tables": self._table_lists(ended),
        }
        return _record_batch(columns, TRANSACTIONS_SCHEMA)

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
            lsn=Lsn(self.spans.lsn[last]),
            xid=int(self.spans.xid[last]),
            time=int(self.spans.time[last]),
            origin=self.origins.get(last),
            context=self.contexts.get(last, ContextInForce()),
            rows=int(self.rows[last]),
            tables=frozenset(self.names[i] for i in place[transaction == last].tolist()),
            **{name: int(count[last]) for name, count in self.counts.items()},
        )


def _add_up(layout: BufferLayout) -> _Totals:
    """Sum up the rows of each transaction."""
    spans, rows, rare = layout.spans, layout.rows, layout.rare
    carried = spans.carried or OpenTransaction(lsn=Lsn(0), xid=0, time=0)
    origins: dict[int, str | None] = {0: carried.origin}
    contexts = {0: carried.context}
    for number, origin in rare.origins:
        origins[int(spans.of[number])] = origin.name
    for number, message in rare.messages:
        transaction, ordinal = int(spans.of[number]), int(rows.ordinal[rows.first[number]])
        contexts[transaction] = contexts.get(transaction, ContextInForce()).after(
            message.prefix, message.content, ordinal
        )
    tags = layout.frames.tags[rows.message]
    counts = {name: _count(rows.transaction[tags == ord(tag)], spans) for name, tag in _COUNTED.items()}
    for name, count in counts.items():
        count[0] += getattr(carried, name)
    row_counts = _count(rows.transaction, spans)
    row_counts[0] += carried.rows
    names, tables = _tables(layout, carried.tables)
    return _Totals(spans, origins, contexts, row_counts, counts, names, tables)


def _count(transactions: Ints, spans: Spans) -> Ints:
    return np.bincount(transactions, minlength=spans.count)


def _tables(layout: BufferLayout, carried: frozenset[str]) -> tuple[list[str], Ints]:
    slots, relations = layout.slots, layout.relations
    with_table = np.flatnonzero(slots >= 0)
    used = np.flatnonzero(np.bincount(slots[with_table], minlength=len(relations)))
    name_of = {slot: str(relations[slot].name) for slot in used.tolist()}
    names = sorted(carried.union(name_of.values()))
    place = {name: i for i, name in enumerate(names)}
    place_of_slot = np.zeros(len(relations), np.int64)
    for slot, name in name_of.items():
        place_of_slot[slot] = place[name]
    pairs = layout.rows.transaction[with_table] * len(names) + place_of_slot[slots[with_table]]
    pairs = np.sort(np.concatenate([pairs, np.array([place[name] for name in carried], np.int64)]))
    return names, pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique hashes: six times slower here


def _spread(texts: Mapping[int, str | None], count: int, numbers: Ints) -> pa.StringArray:
    """Return `texts[number]` for each of `numbers`, NULL for a number without a text; numbers are below `count`."""
    present = [(number, text) for number, text in texts.items() if text is not None]
    if not present:
        return pa.nulls(numbers.size, pa.string())
    place = np.full(count, -1, np.int64)
    place[[number for number, _ in present]] = np.arange(len(present))
    place = place[numbers]
    return pa.array([text for _, text in present], pa.string()).take(pa.array(place, mask=place < 0))


def _record_batch(columns: Mapping[str, object], schema: pa.Schema) -> pa.RecordBatch:
    """Build a record batch of named columns, with numbers cast to the schema's integer and timestamp types."""
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column).cast(schema.field(name).type)
        for name, column in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_TEXT, _NULL, _UNCHANGED = ord("t"), ord("n"), ord("u")
_COUNT_BYTES, _HEADER_BYTES = 2, 5
_FIRST_NOT_ASCII = 128


class _TupleColumn:
    """The tuples of one kind, old or new: a list of text per row, NULL for a row without one."""

    def __init__(self, width: Ints, present: Bools) -> None:
        """Allocate `width` values per row; a row without a tuple has width 0 and is not present."""
        self._present = present
        self._first: Ints = np.zeros(width.size + 1, np.int64)
        np.cumsum(width, out=self._first[1:])
        size = int(self._first[-1])
        self._bounds = np.empty((size, 2), np.int32)
        self._missing = np.zeros(size, np.bool_)
        self._unchanged: list[tuple[Ints, Ints]] = []

    def put(self, rows: Ints, column: int, start: Ints, end: Ints) -> None:
        """Record the bounds of one column's values in `rows`."""
        at = self._first[rows] + column
        self._bounds[at, 0] = start
        self._bounds[at, 1] = end

    def put_missing(self, rows: Ints, column: int, unchanged: Bools) -> None:
        """Record `rows` as having no value in this column, because of unchanged TOAST where `unchanged` is true."""
        self._missing[self._first[rows] + column] = True
        toasted = rows[unchanged]
        self._unchanged.append((toasted, np.full(toasted.size, column)))

    def lists(self, buffer: bytes | bytearray) -> pa.ListArray:
        """Return a list of text per row, NULL for a row without a tuple."""
        offsets = pa.array(self._first.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, self._values(buffer), mask=pa.array(~self._present))

    def _values(self, buffer: bytes | bytearray) -> pa.StringArray:
        size = len(self._bounds)
        if size == 0:
            return pa.array([], pa.string())
        sliced = pa.StringArray.from_buffers(2 * size - 1, pa.py_buffer(self._bounds), pa.py_buffer(buffer))
        every_second = np.zeros(2 * size - 1, np.bool_)
        every_second[::2] = True
        _, offsets, values = sliced.filter(pa.array(every_second)).buffers()
        valid = pa.py_buffer(np.packbits(~self._missing, bitorder="little"))
        texts = pa.StringArray.from_buffers(size, offsets, values, valid)
        raw = np.frombuffer(texts.buffers()[2], np.uint8)
        return texts if raw.size == 0 or raw.max() < _FIRST_NOT_ASCII else escape_column(texts)

    def unchanged(self) -> pa.ListArray:
        """Return the positions of unchanged TOAST values per row, NULL for a row without any."""
        rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in self._unchanged)])
        columns = np.concatenate([np.empty(0, np.int64), *(columns for _, columns in self._unchanged)])
        order = np.lexsort((columns, rows))
        counts = np.bincount(rows, minlength=self._present.size)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        positions = pa.array(columns[order].astype(np.int16))
        return pa.ListArray.from_arrays(pa.array(offsets), positions, mask=pa.array(counts == 0))


class _Walk:
    """Vectorized reader for rows of one table and form; `at` is the read offset in each of their messages."""

    def __init__(self, frames: Frames, rows: Ints, messages: Ints, at: Ints) -> None:
        self.frames = frames
        self.rows = rows
        self.messages = messages
        self.at = at
        self._end = frames.ends[messages]

    def tuples(self, width: int, into: _TupleColumn, *, may_be_unchanged: bool) -> None:
        """Read one tuple of `width` values from every row."""
        self._fits(self.at + _COUNT_BYTES <= self._end)
        count = self.frames.u16(self.at)
        self._fits(count == width, f"the relation has {width} columns, the tuple a different number")
        self.at = self.at + _COUNT_BYTES
        for column in range(width):
            self._column(column, into, may_be_unchanged=may_be_unchanged)

    def new_tuple_follows(self) -> None:
        """Read the `N` between an old tuple and a new one."""
        self._fits(self.at < self._end)
        self._fits(self.frames.u8(self.at) == ord("N"))
        self.at = self.at + 1

    def finish(self) -> None:
        """Check that no message has bytes after its last value."""
        self._fits(self.at == self._end)

    def _column(self, column: int, into: _TupleColumn, *, may_be_unchanged: bool) -> None:
        self._fits(self.at < self._end)
        kind = self.frames.u8(self.at)
        text = kind == _TEXT
        if not text.all():
            unchanged = kind == _UNCHANGED
            self._fits(text | (kind == _NULL) | (unchanged & may_be_unchanged))
            into.put_missing(self.rows[~text], column, unchanged[~text])
        start = self.at + np.where(text, _HEADER_BYTES, 1)
        self._fits(start <= self._end)
        # A value that is not text has no size: read four bytes at the message's tag instead, and multiply by 0.
        size = self.frames.u32(np.where(text, self.at + 1, self.frames.starts[self.messages])) * text
        self.at = start + size  # may exceed the end: the next read or `finish` checks that
        into.put(self.rows, column, start, self.at)

    def _fits(self, fine: Bools, problem: str = "") -> None:
        require_fine(fine, self.messages, problem)


_NONE, _NEW, _OLD_NEW, _OLD = range(4)
"""Forms of a message, by the tuples it has. An old tuple comes first."""
_HAS_OLD = np.array([False, False, True, True])
_HAS_NEW = np.array([False, True, True, False])
_FORM = np.full((256, 256), _NONE, np.int64)
_FORM[list(b"IU"), ord("N")] = _NEW
_FORM[ord("U"), list(b"KO")] = _OLD_NEW
_FORM[ord("D"), list(b"KO")] = _OLD

_KIND_AT, _TUPLE_AT = 5, 6  # after the tag and the OID; after the kind of the first tuple


@dataclass(frozen=True, slots=True)
class _Values:
    """The columns `old`, `new` and `unchanged` of `changes`."""

    old: pa.ListArray
    new: pa.ListArray
    unchanged: pa.ListArray


def _read_values(layout: BufferLayout) -> _Values:
    """Read every old and new tuple of the buffer."""
    frames, rows = layout.frames, layout.rows
    form = _forms(layout)
    widths = np.array([len(relation.columns) for relation in layout.relations] + [0], np.int64)  # last: NO_TABLE
    width = widths[layout.slots]
    old = _TupleColumn(width * _HAS_OLD[form], _HAS_OLD[form])
    new = _TupleColumn(width * _HAS_NEW[form], _HAS_NEW[form])
    for group in _groups(layout.slots, form):
        of = int(form[group[0]])
        messages = rows.message[group]
        walk = _Walk(frames, group, messages, frames.starts[messages] + _TUPLE_AT)
        columns = int(width[group[0]])
        if _HAS_OLD[of]:
            walk.tuples(columns, old, may_be_unchanged=False)
        if of == _OLD_NEW:
            walk.new_tuple_follows()
        if _HAS_NEW[of]:
            walk.tuples(columns, new, may_be_unchanged=True)
        walk.finish()
    return _Values(old.lists(frames.buffer), new.lists(frames.buffer), new.unchanged())


def _forms(layout: BufferLayout) -> Ints:
    """Return each row's form; truncates and logical messages have no tuples."""
    frames, rows = layout.frames, layout.rows
    form = np.full(rows.count, _NONE, np.int64)
    tags = frames.tags[rows.message]
    with_tuples = np.flatnonzero((tags == ord("I")) | (tags == ord("U")) | (tags == ord("D")))
    messages = rows.message[with_tuples]
    kind = frames.u8(frames.starts[messages] + _KIND_AT)
    form[with_tuples] = _FORM[tags[with_tuples], kind]
    require_fine(form[with_tuples] != _NONE, messages)
    # Whether `K` or `O` says nothing: it is the present replica identity of the root of the row's partition, of whose
    # changes the server sends no Relation message for partitions that it has described. What the partition logs has
    # not changed.
    return form


def _groups(slots: Ints, form: Ints) -> Iterator[Ints]:
    """Group the rows by relation and form, each group in stream order."""
    key = slots * len(_HAS_OLD) + form
    rows = np.flatnonzero(form != _NONE)
    if rows.size == 0:
        return
    key = key[rows]
    if key.max() <= np.iinfo(np.uint16).max:
        key = key.astype(np.uint16)  # numpy radix-sorts 16-bit integers, ten times faster
    order = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.diff(key[order])) + 1
    yield from np.split(rows[order], edges)


_OID_END = 5  # after the tag


def _explain(
    payloads: Sequence[bytes], problem: str, described: Mapping[int, Relation], open_lsn: Lsn | None
) -> DecodeError | InvariantBroken:
    """Build the error for the last of `payloads`; `described` and `open_lsn` are the state before the first."""
    *before, bad = payloads
    relations = dict(described)
    for payload in before:
        match _known_state(payload):
            case Begin(final_lsn=lsn):
                open_lsn = lsn
            case Commit():
                open_lsn = None
            case Relation() as relation:
                relations[relation.oid] = relation
            case _:
                pass
    where = f"{_relation(bad, relations)}{'outside transactions' if open_lsn is None else f'in transaction {open_lsn}'}"
    try:
        message = decode(bad)
    except DecodeError as error:
        return DecodeError(f"{error.message}; {where}")
    if not problem and isinstance(message, Boundary):
        problem = "bounds a streamed or prepared transaction, need plain ones"
    if not problem:
        return InvariantBroken(f"the two decoders disagree on a {type(message).__name__} message; {where}")
    return DecodeError(f"pgoutput message {chr(bad[0])!a}: {problem}; {where}")


def _known_state(payload: bytes) -> Message | None:
    if payload[:1] not in (b"B", b"C", b"R"):
        return None
    try:
        return decode(payload)
    except DecodeError:  # malformed too, but the checks refused the last one first
        return None


def _relation(payload: bytes, relations: Mapping[int, Relation]) -> str:
    if payload[:1] not in (b"I", b"U", b"D") or len(payload) < _OID_END:
        return ""
    oid = int.from_bytes(payload[1:_OID_END])
    relation = relations.get(oid)
    return f"relation {relation.name if relation else 'unknown'} (oid {oid}) "
