"""Layout of a buffer: the transactions and rows that its messages make, and their relations, found by numpy.

`Frames` is the buffer: many pgoutput payloads with vectorized reads. The gathers (`u8` … `i64`) take offsets into the
buffer and do not check them: the caller first checks with `require_fine` that the bytes belong to the message. A failed
check raises `BrokenMessage` with the number of the first malformed message, which `batch_decoder` turns into a
DecodeError; malformed bytes never raise IndexError. A buffer must be smaller than 2 GiB, because its offsets become
Arrow's 32-bit offsets.

`lay_out` then finds, in this order:

1. Transactions, numbered from 0. Number 0 is the one open at the start of the buffer and is reserved if there is none;
   each Begin starts the next. Checked: Begin and Commit alternate, every message other than a non-transactional logical
   message is between them, and a Commit repeats the commit LSN of its Begin.
2. Messages that are not row changes. They are rare; `decoder` reads them one by one.
3. Rows of `changes`: message, transaction, ordinal and table of each. An insert, update, delete or transactional
   logical message is one row, a truncate one row per table.
4. The relation of each row: the last Relation message for its OID before it. The server sends one before the
   first change of a table and again after anything that may have changed it, each time after a Type message for every
   type that is not built in. For a domain the Type message names the base type. The base type then replaces the domain
   in the relation (`values.types.base_type`), as in relations read from the catalog (`source.catalog`), because it
   determines the text of a value.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from auditlake.errors import DecodeError, InvariantBroken, Unsupported
from auditlake.lsn import Lsn
from auditlake.pgoutput.attribution import ContextInForce
from auditlake.pgoutput.ddl_message import PREFIX as DDL_PREFIX
from auditlake.pgoutput.ddl_message import DdlMessage, Prove, parse_ddl_message, with_rewrites
from auditlake.pgoutput.decoder import (
    EPOCH_UNIX_US,
    MAX_TIME_US,
    MIN_TIME_US,
    LogicalMessage,
    Message,
    Origin,
    Truncate,
    Type,
    decode,
)
from auditlake.pgoutput.table_shape import Shape
from auditlake.relation import Relation
from auditlake.values.types import base_type

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]

_MAX_BUFFER_BYTES = 2**31 - 1


class BrokenMessage(Exception):  # internal: becomes a DecodeError with the message's place
    """Message `number` breaks the protocol: in itself if `problem` is empty, else by its place."""

    def __init__(self, number: int, problem: str = "") -> None:
        super().__init__(number, problem)
        self.number = number
        self.problem = problem


class Frames:
    """Payload `i` is `buffer[starts[i]:ends[i]]`; payloads are in stream order and do not overlap."""

    def __init__(
        self, buffer: bytes | bytearray, starts: npt.NDArray[np.integer], ends: npt.NDArray[np.integer]
    ) -> None:
        self.buffer = buffer
        self.bytes: Bytes = np.frombuffer(buffer, np.uint8)
        self.starts: Ints = starts.astype(np.int64)
        self.ends: Ints = ends.astype(np.int64)
        self._check_bounds()
        require_fine(self.starts < self.ends, np.arange(self.count))
        self.tags = self.u8(self.starts)

    def _check_bounds(self) -> None:
        size = len(self.buffer)
        if size > _MAX_BUFFER_BYTES:
            raise InvariantBroken(f"buffer of {size} bytes, need at most {_MAX_BUFFER_BYTES}")
        edges = np.stack([self.starts, self.ends], axis=1).ravel()
        inside = edges.size == 0 or (edges[0] >= 0 and edges[-1] <= size)
        if not inside or (edges[1:] < edges[:-1]).any():
            raise InvariantBroken(f"payload bounds are not in order inside the buffer of {size} bytes")

    @property
    def count(self) -> int:
        """Return the number of messages."""
        return self.starts.size

    def payload(self, number: int) -> bytes:
        """Return one payload."""
        return bytes(self.buffer[self.starts[number] : self.ends[number]])

    def u8(self, at: Ints) -> Bytes:
        """Read one byte at each offset."""
        return self.bytes[at]

    def u16(self, at: Ints) -> Ints:
        """Read two bytes at each offset."""
        return self._gather(">u2", at)

    def u32(self, at: Ints) -> Ints:
        """Read four bytes at each offset."""
        return self._gather(">u4", at)

    def i64(self, at: Ints) -> Ints:
        """Read eight bytes at each offset; an LSN of 2^63 or more becomes negative."""
        return self._gather(">i8", at)

    def _gather(self, form: str, at: Ints) -> Ints:
        if at.size == 0:
            return np.empty(0, np.int64)
        # A view, not a copy, of the numbers that start at each byte of the buffer.
        places = self.bytes.size - np.dtype(form).itemsize + 1
        view = np.ndarray((places,), form, self.bytes, strides=(1,))
        return view[at].astype(np.int64)


def require_fine(fine: Bools, numbers: Ints, problem: str = "") -> None:
    """Raise Refused for the first of the messages `numbers` whose element of `fine` is false."""
    if not fine.all():
        raise BrokenMessage(int(numbers[int(np.argmin(fine))]), problem)


_BEGIN, _COMMIT = ord("B"), ord("C")
_BEGIN_BYTES, _COMMIT_BYTES = 21, 26


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """State carried from buffer to buffer for a transaction without Commit; `time` in microseconds since 1970."""

    lsn: Lsn
    xid: int
    time: int
    origin: str | None = None
    context: ContextInForce = field(default=ContextInForce())
    rows: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    tables: frozenset[str] = field(default=frozenset())


class Spans:
    """Transactions of one buffer: `lsn`, `xid` and `time` by transaction number, `of` and `inside` by message."""

    def __init__(self, frames: Frames, carried: OpenTransaction | None) -> None:
        begin = frames.tags == _BEGIN
        commit = frames.tags == _COMMIT
        self.carried = carried
        self.begins: Ints = np.flatnonzero(begin)
        self.commits: Ints = np.flatnonzero(commit)
        self.of: Ints = np.cumsum(begin)
        depth = np.cumsum(begin.astype(np.int64) - commit) + (carried is not None)
        numbers = np.arange(depth.size)
        require_fine(depth <= 1, numbers, "a transaction begins inside another")
        require_fine(depth >= 0, numbers, "a commit outside a transaction")
        self.inside: Bools = depth == 1
        self._read_begins(frames)
        self._read_commits(frames)

    @property
    def count(self) -> int:
        """Return the number of transactions, including number 0."""
        return self.lsn.size

    @property
    def is_open(self) -> bool:
        """Return whether the last transaction continues in the next buffer."""
        return (self.carried is not None) + self.begins.size > self.commits.size

    def _read_begins(self, frames: Frames) -> None:
        at = frames.starts[self.begins]
        require_fine(frames.ends[self.begins] - at == _BEGIN_BYTES, self.begins)
        lsn, time = frames.i64(at + 1), np.clip(frames.i64(at + 9), MIN_TIME_US, MAX_TIME_US)
        require_fine(lsn >= 0, self.begins)
        first = self.carried or OpenTransaction(lsn=Lsn(0), xid=0, time=0)
        self.lsn: Ints = np.concatenate([[first.lsn], lsn])
        self.time: Ints = np.concatenate([[first.time], time + EPOCH_UNIX_US])
        self.xid: Ints = np.concatenate([[first.xid], frames.u32(at + 17)])

    def _read_commits(self, frames: Frames) -> None:
        at = frames.starts[self.commits]
        require_fine(frames.ends[self.commits] - at == _COMMIT_BYTES, self.commits)
        lsn, self.end_lsn = frames.i64(at + 2), frames.i64(at + 10)
        require_fine((frames.u8(at + 1) == 0) & (lsn >= 0) & (self.end_lsn >= 0), self.commits)
        announced = self.lsn[self.of[self.commits]]
        require_fine(lsn == announced, self.commits, "its commit LSN differs from the one in its Begin")


NO_TABLE = -1
"""OID and slot of a row without a table: a logical message."""

_MAX_ORDINAL = 2**31 - 1
_MIN_CHANGE_BYTES = 8  # tag, oid, kind of tuple, number of columns


def _marks(tags: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    marks = np.zeros(256, np.bool_)
    marks[np.frombuffer(tags.encode(), np.uint8)] = True
    return marks


_LEGAL, _CHANGE, _RARE = _marks("BCORYIUDTM"), _marks("IUD"), _marks("ORYTM")


@dataclass(slots=True)
class Rare:
    """The messages that `decoder` read, each with its number in the buffer."""

    described: list[tuple[int, Relation | Type]] = field(default_factory=list)
    truncates: list[tuple[int, Truncate]] = field(default_factory=list)
    messages: list[tuple[int, LogicalMessage]] = field(default_factory=list)
    origins: list[tuple[int, Origin]] = field(default_factory=list)


def _read_rare(frames: Frames, spans: Spans) -> Rare:
    """Check that every message is allowed at its place, and read those that are not row changes."""
    numbers = np.arange(frames.count)
    require_fine(_LEGAL[frames.tags], numbers)
    changes = _CHANGE[frames.tags]
    require_fine(~changes | (frames.ends - frames.starts >= _MIN_CHANGE_BYTES), numbers)
    require_fine(~changes | spans.inside, numbers, "a change outside a transaction")
    rare = Rare()
    for number in np.flatnonzero(_RARE[frames.tags]).tolist():
        _place(rare, number, _decoded(frames, number), inside=bool(spans.inside[number]))
    return rare


def _decoded(frames: Frames, number: int) -> Message:
    try:
        return decode(frames.payload(number))
    except DecodeError:
        raise BrokenMessage(number) from None  # `batch_decoder` adds its place in the stream


def _place(rare: Rare, number: int, message: Message, *, inside: bool) -> None:
    if isinstance(message, LogicalMessage) and not message.transactional:
        if inside:
            raise BrokenMessage(number, "a non-transactional message inside a transaction")
        return
    if not inside:
        raise BrokenMessage(number, "outside a transaction")
    match message:
        case Relation() | Type():
            rare.described.append((number, message))
        case Truncate():
            rare.truncates.append((number, message))
        case LogicalMessage():
            rare.messages.append((number, message))
        case Origin():
            rare.origins.append((number, message))


@dataclass(slots=True)
class BufferRows:
    """Arrays with one element per row; `oid` is that of its table or NO_TABLE."""

    message: Ints
    transaction: Ints
    ordinal: Ints
    oid: Ints
    first: Ints
    """By message: its first row, or for a message without rows the next row."""

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return self.message.size


def _assign_rows(frames: Frames, spans: Spans, rare: Rare) -> BufferRows:
    """Assign rows to messages, with transaction and ordinal; raises Unsupported beyond 2^31 - 1."""
    rows_of = _CHANGE[frames.tags].astype(np.int64)
    for number, truncate in rare.truncates:
        rows_of[number] = len(truncate.oids)
    rows_of[[number for number, _ in rare.messages]] = 1
    first = np.cumsum(rows_of) - rows_of
    message = np.repeat(np.arange(frames.count), rows_of)
    transaction = spans.of[message]
    zero = _first_rows(spans, first)
    ordinal = np.arange(message.size) - zero[transaction]
    if ordinal.size and ordinal.max() > _MAX_ORDINAL:
        raise Unsupported(f"a transaction has more than {_MAX_ORDINAL} changes")
    require_fine(
        np.array([first[number] == zero[spans.of[number]] for number, _ in rare.origins], np.bool_),
        np.array([number for number, _ in rare.origins], np.int64),
        "an origin after a change of its transaction",
    )
    return BufferRows(message, transaction, ordinal, _oids(frames, rare, message, first), first)


def _first_rows(spans: Spans, first: Ints) -> Ints:
    carried = spans.carried.rows if spans.carried else 0
    return np.concatenate([[-carried], first[spans.begins]])


def _oids(frames: Frames, rare: Rare, message: Ints, first: Ints) -> Ints:
    oid = np.full(message.size, NO_TABLE, np.int64)
    changes = np.flatnonzero(_CHANGE[frames.tags[message]])
    oid[changes] = frames.u32(frames.starts[message[changes]] + 1)
    for number, truncate in rare.truncates:
        oid[first[number] : first[number] + len(truncate.oids)] = truncate.oids
    return oid


_NUMBER_BITS = 31
"""Bits of a message number: a buffer under 2 GiB has fewer than 2^31 messages. With an OID's 32 bits they make 63."""


@dataclass(frozen=True, slots=True)
class Described:
    """A Relation message, with base types in the place of domains; LSN and time of its commit as in `DdlReport`.

    The server describes a table directly before a change of it. If that is sent under the name of another table, the
    table is a partition of that one, its `root`; `row` is that change's place among the buffer's.
    """

    relation: Relation
    lsn: Lsn
    time_us: int
    root: int | None = None
    row: int = 0


@dataclass(frozen=True, slots=True)
class DdlReport:
    """The trigger's message, None if it failed or is of another release; LSN and time_us of its commit."""

    message: DdlMessage | None
    lsn: Lsn
    time_us: int


Entry: TypeAlias = int | Described | DdlReport
"""A message about a table; for one that was described in an earlier buffer, its OID."""


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """The layout of a buffer: rows, each with a transaction, `relations[slots[row]]` and `entries[described[row]]`."""

    frames: Frames
    spans: Spans
    rare: Rare
    rows: BufferRows
    slots: Ints
    described: Ints
    relations: list[Relation]
    entries: list[Entry]


class Descriptions:
    """Relations that rows of a buffer may refer to, and its messages about tables, in their order.

    A row's *slot* is an index into `relations`. A repeated message keeps the slot of its relation, because the tuples
    of one slot are read together.
    """

    def __init__(self, latest: Mapping[int, Relation], base_types: Mapping[int, int], prove: Prove) -> None:
        self._prove = prove
        self.latest = dict(latest)
        self.base_types = dict(base_types)
        self.relations: list[Relation] = list(latest.values())
        self.entries: list[Entry] = list(latest)
        # (OID, number of the first message it applies to), slot and entry of every relation message. The greatest pair
        # not above a row's is the row's.
        self._from: list[tuple[int, int]] = [(oid, 0) for oid in latest]
        self._slots = list(range(len(latest)))
        self._entries = list(range(len(latest)))
        self._slot_of = {oid: slot for slot, oid in enumerate(latest)}

    def follow(self, frames: Frames, spans: Spans, rare: Rare, rows: BufferRows) -> None:
        """Take in the buffer's Relation and Type messages, and those of the DDL trigger, in their order.

        An unchanged relation gets a new entry: another column may have the name of a dropped one. If the root of
        partitions gets another name, the server sends no Relation message for partitions that it has described.
        """
        for number, message in sorted([*rare.described, *self._reports(rare, spans)], key=lambda each: each[0]):
            lsn, time_us = Lsn(spans.lsn[spans.of[number]]), int(spans.time[spans.of[number]])
            if isinstance(message, Type):
                self.base_types[message.oid] = base_type(message.oid, message.schema, message.name)
            elif isinstance(message, DdlReport):
                self.entries.append(message)
                for relation in self._renamed(message.message.shapes if message.message is not None else ()):
                    self._describe(number, Described(relation, lsn, time_us))
            else:
                root = _find_root(number, message.oid, frames, rows)
                described = Described(self._resolved(message), lsn, time_us, root, int(rows.first[number]))
                self._describe(number, described)

    def _reports(self, rare: Rare, spans: Spans) -> list[tuple[int, DdlReport]]:
        """Return the messages that the DDL trigger has sent; any role may send others with its prefix."""
        found = [(number, message.content) for number, message in rare.messages if message.prefix == DDL_PREFIX]
        if not found:
            return []
        proved = self._prove([(int(spans.xid[spans.of[number]]), content) for number, content in found])
        ours = [
            (number, int(spans.of[number]), parse_ddl_message(content))
            for (number, content), is_ours in zip(found, proved, strict=True)
            if is_ours
        ]
        return [
            (number, DdlReport(message, Lsn(spans.lsn[transaction]), int(spans.time[transaction])))
            for number, transaction, message in with_rewrites(ours)
        ]

    def _renamed(self, shapes: Iterable[Shape]) -> Iterator[Relation]:
        """Yield the relations that a DDL message shows under another name than the last, and else the same."""
        for shape in shapes:
            latest, now = self.latest.get(shape.relation.oid), shape.relation
            if latest is None or latest.name == now.name:
                continue
            plain = tuple(column for column in now.columns if column.attnum not in shape.generated)
            renamed = replace(latest, name=now.name)
            if renamed in (now, replace(now, columns=plain)):
                yield renamed

    def _describe(self, number: int, described: Described) -> None:
        oid = described.relation.oid
        if self.latest.get(oid) != described.relation:
            self.latest[oid] = described.relation
            self._slot_of[oid] = len(self.relations)
            self.relations.append(described.relation)
        self._from.append((oid, number))
        self._slots.append(self._slot_of[oid])
        self._entries.append(len(self.entries))
        self.entries.append(described)

    def _resolved(self, relation: Relation) -> Relation:
        if self.base_types.keys().isdisjoint(column.type_oid for column in relation.columns):
            return relation
        columns = (replace(c, type_oid=self.base_types.get(c.type_oid, c.type_oid)) for c in relation.columns)
        return replace(relation, columns=tuple(columns))

    def places(self, rows: BufferRows) -> tuple[Ints, Ints]:
        """Return slot and entry of each row, NO_TABLE for one without a table."""
        with_table = np.flatnonzero(rows.oid != NO_TABLE)
        slots = np.full(rows.count, NO_TABLE, np.int64)
        described = slots.copy()
        if with_table.size:
            found = self._find(rows.oid[with_table], rows.message[with_table])
            slots[with_table] = np.array(self._slots, np.int64)[found]
            described[with_table] = np.array(self._entries, np.int64)[found]
        return slots, described

    def _find(self, oids: Ints, messages: Ints) -> Ints:
        keys = np.array([(oid << _NUMBER_BITS) | number for oid, number in self._from], np.int64)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        place = np.searchsorted(keys, (oids << _NUMBER_BITS) | messages, side="right") - 1
        described = place >= 0
        described[described] = keys[place[described]] >> _NUMBER_BITS == oids[described]
        require_fine(described, messages, "a change without a Relation message for its table")
        return order[place]


def _find_root(number: int, oid: int, frames: Frames, rows: BufferRows) -> int | None:
    """Return the table under whose name the change after a Relation message is sent, if that is not the table's."""
    row, after = rows.first[number], number + 1
    if row == rows.count or rows.message[row] != after or not _CHANGE[frames.tags[after]] or rows.oid[row] == oid:
        return None
    return int(rows.oid[row])


def lay_out(frames: Frames, carried: OpenTransaction | None, descriptions: Descriptions) -> BufferLayout:
    """Find transactions, rows and relations of a buffer; `descriptions` takes in its Relation messages.

    Raises Refused for a message that is malformed or out of place, Unsupported for an ordinal beyond 2^31 - 1.
    """
    spans = Spans(frames, carried)
    rare = _read_rare(frames, spans)
    rows = _assign_rows(frames, spans, rare)
    descriptions.follow(frames, spans, rare, rows)
    return BufferLayout(
        frames, spans, rare, rows, *descriptions.places(rows), descriptions.relations, descriptions.entries
    )
