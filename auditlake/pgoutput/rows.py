"""The rows of `changes` in one buffer: which message each comes from, its transaction, table and place.

An insert, update, delete and transactional logical message is one row, a truncate one row per table. The messages that
are not plain row changes are few and are read one by one by `wire`.
"""

from dataclasses import dataclass, field

import numpy as np

from auditlake.errors import DecodeError, Unsupported
from auditlake.pgoutput.frames import Frames, Ints, Refused, require
from auditlake.pgoutput.messages import LogicalMessage, Message, Origin, Truncate, Type
from auditlake.pgoutput.spans import Spans
from auditlake.pgoutput.wire import decode
from auditlake.relation import Relation

NO_TABLE = -1
"""Slot of a row that is about no table."""

_MAX_ORDINAL = 2**31 - 1
_MIN_CHANGE_BYTES = 8  # tag, oid, kind of tuple, number of columns


def _marks(tags: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    marks = np.zeros(256, np.bool_)
    marks[np.frombuffer(tags.encode(), np.uint8)] = True
    return marks


_LEGAL, _CHANGE, _RARE = _marks("BCORYIUDTM"), _marks("IUD"), _marks("ORYTM")


@dataclass(slots=True)
class Rare:
    """The messages read one by one, by their number."""

    described: list[tuple[int, Relation | Type]] = field(default_factory=list)
    truncates: list[tuple[int, Truncate]] = field(default_factory=list)
    messages: list[tuple[int, LogicalMessage]] = field(default_factory=list)
    origins: list[tuple[int, Origin]] = field(default_factory=list)


def read_rare(frames: Frames, spans: Spans) -> Rare:
    """Check that every message may stand where it stands, and read those that are not plain row changes."""
    numbers = np.arange(frames.count)
    require(_LEGAL[frames.tags], numbers)
    changes = _CHANGE[frames.tags]
    require(~changes | (frames.ends - frames.starts >= _MIN_CHANGE_BYTES), numbers)
    require(~changes | spans.inside, numbers, "a change outside a transaction")
    rare = Rare()
    for number in np.flatnonzero(_RARE[frames.tags]).tolist():
        _place(rare, number, _decoded(frames, number), inside=bool(spans.inside[number]))
    return rare


def _decoded(frames: Frames, number: int) -> Message:
    try:
        return decode(frames.payload(number))
    except DecodeError:
        raise Refused(number) from None  # comes back with its place in the stream


def _place(rare: Rare, number: int, message: Message, *, inside: bool) -> None:
    if isinstance(message, LogicalMessage) and not message.transactional:
        if inside:
            raise Refused(number, "a non-transactional message inside a transaction")
        return
    if not inside:
        raise Refused(number, "outside a transaction")
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
class Rows:
    """One element per row: `message`, `transaction` and `ordinal`, and `oid` of its table or NO_TABLE."""

    message: Ints
    transaction: Ints
    ordinal: Ints
    oid: Ints
    first: Ints
    """The first row of each message, or where it would be."""

    @property
    def count(self) -> int:
        """How many rows."""
        return self.message.size


def lay_out(frames: Frames, spans: Spans, rare: Rare) -> Rows:
    """Give every change its row."""
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
    require(
        np.array([first[number] == zero[spans.of[number]] for number, _ in rare.origins], np.bool_),
        np.array([number for number, _ in rare.origins], np.int64),
        "an origin after a change of its transaction",
    )
    return Rows(message, transaction, ordinal, _oids(frames, rare, message, first), first)


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
