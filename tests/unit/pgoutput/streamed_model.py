"""Reference model of the spool: the plain messages of streamed transactions; and a driver for the spool.

`plain_messages` is the model: message by message, with lists. `through_spool` passes payloads to a spool as
`ReplicationStream` does, blocks in pieces of `piece` messages.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from auditlake.errors import DecodeError
from auditlake.pgoutput.decoder import (
    Begin,
    Boundary,
    Commit,
    Message,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    decode,
    decode_streamed,
)
from auditlake.relation import Relation
from auditlake.replication.spool import PayloadSegment, Spool

BOUNDARY_TAGS = b"SEcAbPpKr"


class _Open:
    """Messages of open streamed transactions with their xids, and the arrival of each Relation message."""

    def __init__(self) -> None:
        self.of: dict[int, list[tuple[int, int, Message]]] = {}
        self.last: dict[int, tuple[int, Relation]] = {}
        self.arrived = 0

    def commit(self, message: StreamCommit) -> Iterator[Message]:
        mine = self.of.pop(message.xid)
        yield Begin(message.commit_lsn, message.time, message.xid)
        yield from (each for _, _, each in mine)
        for when, _, each in mine:
            if isinstance(each, Relation):
                self.record(when, each)
        described = {each.oid for _, _, each in mine if isinstance(each, Relation)}
        yield from (self.last[oid][1] for oid in described)
        yield Commit(message.commit_lsn, message.end_lsn, message.time)

    def record(self, when: int, relation: Relation) -> None:
        if self.last.get(relation.oid, (0, relation))[0] <= when:
            self.last[relation.oid] = when, relation

    def abort(self, message: StreamAbort) -> None:
        if message.xid == message.subxid:
            del self.of[message.xid]
            return
        mine = self.of[message.xid]
        xids = [xid for _, xid, _ in mine]
        if message.subxid in xids:
            del mine[xids.index(message.subxid) :]


def plain_messages(payloads: Iterable[bytes]) -> Iterator[Message]:
    """Yield the messages that the server would have sent without streaming."""
    opened, block = _Open(), None
    for payload in payloads:
        opened.arrived += 1
        if block is not None and payload[:1] != b"E":
            xid, message = decode_streamed(payload)
            opened.of[block].append((opened.arrived, block if xid is None else xid, message))
        elif isinstance(message := decode(payload), StreamStart | StreamStop):
            block = _turn(opened, block, message)
        else:
            yield from _outside(opened, message)


def _outside(opened: _Open, message: Message) -> Iterator[Message]:
    match message:
        case StreamCommit() if message.xid not in opened.of:
            raise DecodeError("unknown")
        case StreamAbort() if message.xid not in opened.of:
            pass
        case StreamCommit():
            yield from opened.commit(message)
        case StreamAbort():
            opened.abort(message)
        case _:
            assert not isinstance(message, Boundary)
            if isinstance(message, Relation):
                opened.record(opened.arrived, message)
            yield message


def _turn(opened: _Open, block: int | None, message: StreamStart | StreamStop) -> int | None:
    if isinstance(message, StreamStop):
        if block is None:
            raise DecodeError("outside")
        return None
    if message.first == (message.xid in opened.of):
        raise DecodeError("first")
    opened.of.setdefault(message.xid, [])
    return message.xid


def through_spool(spool: Spool, payloads: Iterable[bytes], piece: int = 3) -> Iterator[bytes]:
    """Pass payloads to the spool, and yield the payloads of the plain messages."""
    block: list[bytes] = []
    for payload in payloads:
        if payload[0] in BOUNDARY_TAGS:
            if block:
                _hand_over(spool, block)
            spool.handle_boundary(payload)
            while (segment := spool.next_segment()) is not None:
                yield from payloads_of(segment)
        elif spool.in_block:
            block.append(payload)
            if len(block) == piece:
                _hand_over(spool, block)
        else:
            if payload[:1] == b"R":
                spool.record_relation(payload)
            yield payload


def payloads_of(segment: PayloadSegment) -> list[bytes]:
    """Split a segment into its payloads."""
    return [bytes(segment.data[start:end]) for start, end in zip(segment.starts, segment.ends, strict=True)]


def _hand_over(spool: Spool, block: list[bytes]) -> None:
    data, starts, ends = bytearray(), list[int](), list[int]()
    for payload in block:
        data += b"w" + b"\xff" * 24  # stands for XLogData's header, which must not be read
        starts.append(len(data))
        data += payload
        ends.append(len(data))
    block.clear()
    spool.add(data, np.array(starts), np.array(ends))
