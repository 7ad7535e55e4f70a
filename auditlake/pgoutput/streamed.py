"""The frames of a streamed transaction: read from its blocks, kept by subtransaction, given back as plain ones.

In a block every message has an xid after its tag. `read_block` takes the xids out, by numpy and in place: the tag moves
up to where the message goes on, so what is left is the plain message, to be read by `columnar` and `wire` as any other.

Subtransactions are numbered from the top transaction's xid (0 is the top itself): such numbers rise as xids are given,
also where xids wrap around.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from auditlake.errors import DecodeError, InvariantBroken
from auditlake.pgoutput.frames import Bools, Frames, Ints, Refused, require
from auditlake.pgoutput.wire import IN_BLOCKS, decode_streamed

_XID_BYTES = 4
_XIDS = 2**32
_ORIGIN, _RELATION = ord("O"), ord("R")
_MAY_STAND: Bools = np.isin(np.arange(256), list(IN_BLOCKS.encode()))


@dataclass(frozen=True, slots=True)
class Segment:
    """Plain payloads `data[starts[i]:ends[i]]` in stream order; `subs[i]` is the subtransaction each belongs to."""

    data: bytes | bytearray
    starts: Ints
    ends: Ints
    subs: Ints

    @property
    def count(self) -> int:
        """How many payloads there are."""
        return self.starts.size

    def head(self, count: int) -> "Segment":
        """Keep the first `count` payloads."""
        end = int(self.ends[count - 1]) if count else 0
        return Segment(self.data[:end], self.starts[:count], self.ends[:count], self.subs[:count])

    def relations(self) -> list[tuple[int, bytes]]:
        """Every Relation message: its number here, and its payload."""
        tags = np.frombuffer(self.data, np.uint8)[self.starts]
        numbers = np.flatnonzero(tags == _RELATION).tolist()
        return [(number, bytes(self.data[self.starts[number] : self.ends[number]])) for number in numbers]


def plain_bounds(stream_commit: bytes) -> tuple[bytes, bytes]:
    """Spell the Begin and the Commit that a transaction has without streaming, from its (sound) Stream Commit."""
    xid, flags, lsn, end_lsn, time = (stream_commit[a:b] for a, b in pairwise((1, 5, 6, 14, 22, 30)))
    return b"B" + lsn + time + xid, b"C" + flags + lsn + end_lsn + time


def segment_of(payloads: Sequence[bytes]) -> Segment:
    """Lay plain payloads one behind the other."""
    sizes = np.array([len(payload) for payload in payloads], np.int64)
    ends = np.cumsum(sizes)
    return Segment(b"".join(payloads), ends - sizes, ends, np.zeros(sizes.size, np.int64))


def relation_oid(payload: bytes) -> int:
    """OID in a plain Relation message, which need not be sound beyond it."""
    return int.from_bytes(payload[1:5])


def read_block(data: bytearray, starts: Ints, ends: Ints, xid: int) -> Segment:
    """Read the payloads of (part of) a block of the transaction `xid`, and keep `data`, changed.

    Raises DecodeError for a message that cannot stand in a block, and for one without an xid.
    """
    frames = Frames(data, starts, ends)
    try:
        return _read(frames, data, xid)
    except Refused as refused:
        raise _explained(frames.payload(refused.number), xid) from None


def _read(frames: Frames, data: bytearray, xid: int) -> Segment:
    numbers = np.arange(frames.count)
    require(_MAY_STAND[frames.tags], numbers)
    own = frames.tags != _ORIGIN
    require(~own | (frames.ends - frames.starts > _XID_BYTES), numbers)
    at = frames.starts[own]
    subs = np.zeros(frames.count, np.int64)
    subs[own] = (frames.u32(at + 1) - xid) % _XIDS
    starts = frames.starts + np.where(own, _XID_BYTES, 0)
    np.frombuffer(data, np.uint8)[starts[own]] = frames.tags[own]
    return Segment(data, starts, frames.ends, subs)


def _explained(payload: bytes, xid: int) -> DecodeError | InvariantBroken:
    try:
        decode_streamed(payload)
    except DecodeError as error:
        return DecodeError(f"{error.message}; in a block of transaction {xid}")
    return InvariantBroken(f"a {payload[:1]!r} message in a block of transaction {xid} was refused and is sound")


def join(segments: Sequence[Segment]) -> Segment:
    """Put segments that follow each other into one."""
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
