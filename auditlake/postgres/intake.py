"""Where a reader puts what it receives: plain frames into a buffer, those of streamed transactions into the spool.

The reader appends to `data` and says where the frames are. As long as nothing is streamed that is all: the buffer takes
them as they are. Where a block begins, and until everything up to then is sorted, they are taken out again, cut at the
messages that bound blocks and transactions, and put where they belong, in order. A streamed transaction goes into the
buffer when it commits, as a plain one, before anything that came after it; where it is more than the buffer takes, the
rest waits here, and the next buffer is filled from it first.
"""

import re
from dataclasses import dataclass

import numpy as np

from auditlake.errors import DecodeError
from auditlake.lsn import Lsn
from auditlake.pgoutput.frames import Ints
from auditlake.pgoutput.streamed import Segment
from auditlake.postgres.buffer import FrameBuffer, Limits
from auditlake.postgres.spool import Spool

_BOUNDARY = re.compile(b"[SEcAbPKpr]")
_RELATION = ord("R")
_ABORT = b"A"
# XLogData: 'w', then where the message stands in the log; the frame comes 24 bytes after that place begins.
_LSN_BEFORE_FRAME, _LSN_BYTES = 24, 8
_AT_ONCE_BYTES = 4 << 20


@dataclass(slots=True)
class _Received:
    """Frames that were taken out of the buffer again, those before `at` already sorted."""

    data: bytearray
    starts: Ints
    ends: Ints
    tags: bytes
    at: int = 0

    def lsn(self, number: int) -> Lsn:
        place = int(self.starts[number]) - _LSN_BEFORE_FRAME
        return Lsn(int.from_bytes(self.data[place : place + _LSN_BYTES]))

    def payload(self, number: int) -> bytes:
        return bytes(self.data[self.starts[number] : self.ends[number]])

    def run(self, until: int) -> tuple[bytearray, Ints, Ints]:
        """Give the frames from `at` up to `until` with the data they lie in."""
        begin = int(self.ends[self.at - 1]) if self.at else 0
        data = self.data[begin : self.ends[until - 1]]
        return data, self.starts[self.at : until] - begin, self.ends[self.at : until] - begin


class Intake:
    """Sorts what comes; without a spool everything is plain."""

    def __init__(self, spool: Spool | None = None) -> None:
        self._spool = spool
        self._frames, self._limits = FrameBuffer(), Limits(0, 0)
        self._waiting: _Received | None = None
        self._moved_bytes = 0

    def fill(self, frames: FrameBuffer, limits: Limits) -> None:
        """Put what comes from now on into `frames`, up to `limits`; first what has been waiting."""
        self._frames, self._limits, self._moved_bytes = frames, limits, 0
        if self._spool is not None:
            self._sort(self._spool)

    @property
    def data(self) -> bytearray:
        """What the reader appends to."""
        return self._frames.data

    @property
    def room_bytes(self) -> int:
        """How much the buffer still takes."""
        return max(0, self._limits.size_bytes - len(self._frames.data))

    @property
    def full(self) -> bool:
        """Whether the buffer takes no more, or so much was streamed that the reader should see to other things."""
        return self._limits.met_by(self._frames) or self._moved_bytes >= _AT_ONCE_BYTES

    def add(self, starts: Ints, ends: Ints) -> None:
        """Take these stretches of `data` as the next frames.

        Raises DecodeError for a message of streaming that is damaged or out of order, LakeUnusable where the spool
        cannot be written.
        """
        frames, spool = self._frames, self._spool
        tags = frames.tags(starts)
        if spool is None and _ABORT in tags:
            starts, ends, tags = _without_aborts(starts, ends, tags)
        if spool is None or not (spool.active or _BOUNDARY.search(tags)):
            frames.add(starts, ends, tags)
        elif starts.size:
            begin = frames.ends[-1] if len(frames) else 0
            assert self._waiting is None  # noqa: S101  # whoever reads asks first whether we are full
            self._waiting = _Received(frames.data[begin:], starts - begin, ends - begin, tags)
            del frames.data[begin:]
            self._moved_bytes += len(self._waiting.data)
            self._sort(spool)

    def _sort(self, spool: Spool) -> None:
        """Go on sorting until nothing waits or the buffer is full."""
        while not self._limits.met_by(self._frames):
            segment = spool.next_segment()
            if segment is not None:
                self._replay(segment)
            elif self._waiting is not None:
                self._sort_run(spool, self._waiting)
            else:
                return

    def _sort_run(self, spool: Spool, received: _Received) -> None:
        """Take the next frames of one kind, or the next message that bounds."""
        at, boundary = received.at, _BOUNDARY.search(received.tags, received.at)
        until = boundary.start() if boundary else len(received.tags)
        try:
            if until == at:
                until += 1
                spool.bound(received.payload(at))
            elif spool.in_block:
                spool.add(*received.run(until))
            else:
                self._plain(spool, received, until)
        except DecodeError as error:
            raise DecodeError(f"{error.message}; at {received.lsn(at)}") from None
        received.at = until
        if until == len(received.tags):
            self._waiting = None

    def _plain(self, spool: Spool, received: _Received, until: int) -> None:
        for number in range(received.at, until):
            if received.tags[number] == _RELATION:
                spool.describe(received.payload(number))
        self._append(*received.run(until), received.tags[received.at : until])

    def _replay(self, segment: Segment) -> None:
        tags = np.frombuffer(segment.data, np.uint8)[segment.starts].tobytes()
        self._append(segment.data, segment.starts, segment.ends, tags)

    def _append(self, data: bytes | bytearray, starts: Ints, ends: Ints, tags: bytes) -> None:
        frames = self._frames
        begin = len(frames.data)
        frames.data += data
        frames.add(starts + begin, ends + begin, tags)


def _without_aborts(starts: Ints, ends: Ints, tags: bytes) -> tuple[Ints, Ints, bytes]:
    """Leave out what is said of transactions rolled back: PostgreSQL 18 does so of some that it has not streamed."""
    kept = [number for number, tag in enumerate(tags) if tag != _ABORT[0]]
    return starts[kept], ends[kept], bytes(tags[number] for number in kept)
