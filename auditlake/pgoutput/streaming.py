"""Relation messages of one streamed transaction: those still in force, and their order of arrival.

Relation messages for one OID form a stack, because the rollback of a subtransaction removes the newest ones. The
*epoch* of a message increases whenever another transaction has sent a Relation message in between. So of two messages
in different transactions the one with the greater epoch arrived later.

Blocks of a streamed transaction, converted to plain messages with the subtransaction of each.

In a block every message except an Origin has an xid after its tag. `read_block` removes the xids, by numpy and in
place: it moves the tag four bytes ahead, over the end of the xid. The rest is the plain message, which `columnar` and
`wire` read like any other.

A subtransaction's number is its xid minus the top transaction's xid (0 is the top transaction itself), modulo 2^32. So
numbers increase in the order in which xids are assigned, across xid wraparound too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from auditlake.errors import DecodeError, InvariantBroken
from auditlake.pgoutput.batch_layout import Bools, Frames, Ints, Refused, require
from auditlake.pgoutput.decoder import IN_BLOCKS, decode_streamed


@dataclass(frozen=True, slots=True)
class Description:
    """A plain Relation message with its OID, its number among the transaction's messages, and its epoch of arrival."""

    number: int
    epoch: int
    oid: int
    payload: bytes


class Descriptions:
    """Stacks of Relation messages of one transaction, by OID."""

    def __init__(self) -> None:
        self._in_order: list[Description] = []
        self._of: dict[int, list[Description]] = {}

    def add(self, described: Description) -> None:
        """Push the next message, unless it repeats the last: the server repeats itself after every rollback."""
        stack = self._of.setdefault(described.oid, [])
        if stack and (stack[-1].epoch, stack[-1].payload) == (described.epoch, described.payload):
            return
        stack.append(described)
        self._in_order.append(described)

    def cut(self, number: int) -> None:
        """Remove the messages from number `number` on."""
        while self._in_order and self._in_order[-1].number >= number:
            self._of[self._in_order.pop().oid].pop()

    def latest(self) -> Iterator[Description]:
        """Return the newest message of each relation."""
        return (stack[-1] for stack in self._of.values() if stack)


_XID_BYTES = 4
_XIDS = 2**32
_ORIGIN, _RELATION = ord("O"), ord("R")
_ALLOWED: Bools = np.isin(np.arange(256), list(IN_BLOCKS.encode()))


@dataclass(frozen=True, slots=True)
class Segment:
    """Plain payloads `data[starts[i]:ends[i]]` in stream order; `subs[i]` is the subtransaction of payload i."""

    data: bytes | bytearray
    starts: Ints
    ends: Ints
    subs: Ints

    @property
    def count(self) -> int:
        """Return the number of payloads."""
        return self.starts.size

    def head(self, count: int) -> "Segment":
        """Return the first `count` payloads."""
        end = int(self.ends[count - 1]) if count else 0
        return Segment(self.data[:end], self.starts[:count], self.ends[:count], self.subs[:count])

    def relations(self) -> list[tuple[int, bytes]]:
        """Return every Relation message: its number in this segment, and its payload."""
        tags = np.frombuffer(self.data, np.uint8)[self.starts]
        numbers = np.flatnonzero(tags == _RELATION).tolist()
        return [(number, bytes(self.data[self.starts[number] : self.ends[number]])) for number in numbers]


def plain_bounds(stream_commit: bytes) -> tuple[bytes, bytes]:
    """Build the Begin and Commit that the server would send without streaming, from a valid Stream Commit."""
    xid, flags, lsn, end_lsn, time = (stream_commit[a:b] for a, b in pairwise((1, 5, 6, 14, 22, 30)))
    return b"B" + lsn + time + xid, b"C" + flags + lsn + end_lsn + time


def segment_of(payloads: Sequence[bytes]) -> Segment:
    """Concatenate plain payloads of the top transaction."""
    sizes = np.array([len(payload) for payload in payloads], np.int64)
    ends = np.cumsum(sizes)
    return Segment(b"".join(payloads), ends - sizes, ends, np.zeros(sizes.size, np.int64))


def relation_oid(payload: bytes) -> int:
    """Return the OID in a plain Relation message; the rest of the message is not checked."""
    return int.from_bytes(payload[1:5])


def read_block(data: bytearray, starts: Ints, ends: Ints, xid: int) -> Segment:
    """Convert the payloads of a block of transaction `xid`, or of part of one, in place: `data` becomes the segment's.

    Raises DecodeError for a message that is not allowed in a block or lacks an xid.
    """
    frames = Frames(data, starts, ends)
    try:
        return _read(frames, data, xid)
    except Refused as refused:
        raise _explained(frames.payload(refused.number), xid) from None


def _read(frames: Frames, data: bytearray, xid: int) -> Segment:
    numbers = np.arange(frames.count)
    require(_ALLOWED[frames.tags], numbers)
    has_xid = frames.tags != _ORIGIN
    require(~has_xid | (frames.ends - frames.starts > _XID_BYTES), numbers)
    at = frames.starts[has_xid]
    subs = np.zeros(frames.count, np.int64)
    subs[has_xid] = (frames.u32(at + 1) - xid) % _XIDS
    starts = frames.starts + np.where(has_xid, _XID_BYTES, 0)
    np.frombuffer(data, np.uint8)[starts[has_xid]] = frames.tags[has_xid]
    return Segment(data, starts, frames.ends, subs)


def _explained(payload: bytes, xid: int) -> DecodeError | InvariantBroken:
    try:
        decode_streamed(payload)
    except DecodeError as error:
        return DecodeError(f"{error.message}; in a block of transaction {xid}")
    return InvariantBroken(f"a {payload[:1]!r} message in a block of transaction {xid} was refused but is valid")


def join(segments: Sequence[Segment]) -> Segment:
    """Concatenate consecutive segments."""
    if len(segments) == 1:
        return segments[0]
    shifts = np.cumsum([0, *(len(segment.data) for segment in segments[:-1])])
    shifted = list(zip(segments, shifts, strict=True))
    return Segment(
        bytearray().join(segment.data for segment in segments),
        np.concatenate([segment.starts + shift for segment, shift in shifted]),
        np.concatenate([segment.ends + shift for segment, shift in shifted]),
        np.concatenate([segment.subs for segment in segments]),
    )
