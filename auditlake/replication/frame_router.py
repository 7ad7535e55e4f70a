"""Frame router: collect received frames for decoding, and route those of streamed transactions to the spool.

`FrameBuffer` collects frames until there are enough to decode as one batch. It may be split only after a Commit, so it
records the end of the last one. It inspects the first byte of a frame (and the flags of a logical message); `pgoutput`
decodes the rest.

`Intake` routes. The reader appends bytes to `data` and passes the offsets of the frames.

1. As long as nothing is streamed, the frames stay in the buffer unchanged.
2. Once a block starts, and until no streamed transaction is in progress, received frames are removed from the buffer
   again, split at the boundaries of blocks and transactions, and routed in order.
3. A streamed transaction is added to the buffer when it commits, as a plain one, before any later message. If it
   exceeds the buffer's limits, the rest waits here and comes first in the next buffer.
"""

import re
import time
from array import array
from dataclasses import dataclass, field

import numpy as np

from auditlake.errors import DecodeError
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_layout import Ints
from auditlake.pgoutput.streaming import Segment
from auditlake.replication.spool import Spool

_COMMIT, _MESSAGE, _NOT_TRANSACTIONAL = b"C", b"M", b"\0"
_NONE: "array[int]" = array("q")

Payloads = tuple[bytearray, Ints, Ints]
_BOUNDARY = re.compile(b"[SEcAbPKpr]")
_RELATION = ord("R")
_ABORT = b"A"
# XLogData: 'w', then the message's LSN; the frame starts 24 bytes after the start of that LSN.
_LSN_BEFORE_FRAME, _LSN_BYTES = 24, 8
_AT_ONCE_BYTES = 4 << 20


@dataclass(slots=True)
class FrameBuffer:
    """Frames in stream order: frame i is `data[starts[i]:ends[i]]`; bytes between frames are ignored.

    `commits` is the number of Commits, `after_last_commit` the number of frames up to and including the last one, and
    `first_commit_at` the monotonic time at which the first one was received.
    """

    data: bytearray = field(default_factory=bytearray)
    starts: "array[int]" = field(default_factory=lambda: _NONE[:])
    ends: "array[int]" = field(default_factory=lambda: _NONE[:])
    commits: int = 0
    after_last_commit: int = 0
    first_commit_at: float = 0.0

    def __len__(self) -> int:
        return len(self.ends)

    def tags(self, starts: Ints) -> bytes:
        """Return the tags of the frames at these offsets."""
        return np.frombuffer(self.data, np.uint8)[starts].tobytes()

    def add(self, starts: Ints, ends: Ints, tags: bytes) -> None:
        """Append the frames at these offsets of `data`, all after the last frame and none empty.

        Non-transactional logical messages are left out: after a Commit, one would look like a transaction without an
        end.
        """
        before = len(self)
        if _MESSAGE in tags:
            kept = self._in_transactions(starts, tags)
            starts, ends = starts[kept], ends[kept]
            tags = self.tags(starts)
        self.starts.frombytes(starts.tobytes())
        self.ends.frombytes(ends.tobytes())
        if _COMMIT in tags:
            self.first_commit_at = self.first_commit_at or time.monotonic()
            self.commits += tags.count(_COMMIT)
            self.after_last_commit = before + tags.rfind(_COMMIT) + 1

    def _in_transactions(self, starts: Ints, tags: bytes) -> list[int]:
        """Return the numbers of all frames except non-transactional logical messages."""
        data = self.data
        return [
            number
            for number, tag in enumerate(tags)
            if tag != _MESSAGE[0] or data[starts[number] + 1 : starts[number] + 2] != _NOT_TRANSACTIONAL
        ]

    def payloads(self) -> Payloads:
        """Return the data, and the offsets at which each frame starts and ends."""
        return self.data, np.frombuffer(self.starts, np.int64), np.frombuffer(self.ends, np.int64)

    def split(self) -> tuple["FrameBuffer", "FrameBuffer"]:
        """Split after the last Commit."""
        count = self.after_last_commit
        if count == len(self):
            return self, FrameBuffer()
        cut = self.ends[count - 1]
        head = FrameBuffer(
            self.data[:cut], self.starts[:count], self.ends[:count], self.commits, count, self.first_commit_at
        )
        rest = FrameBuffer(
            self.data[cut:],
            array("q", (start - cut for start in self.starts[count:])),
            array("q", (end - cut for end in self.ends[count:])),
        )
        return head, rest


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits at which a buffer is full."""

    frames: int
    size_bytes: int

    def met_by(self, buffer: FrameBuffer) -> bool:
        """Return whether this buffer has reached a limit."""
        return len(buffer.ends) >= self.frames or len(buffer.data) >= self.size_bytes


@dataclass(slots=True)
class _Received:
    """Frames removed from the buffer; those before number `at` have been routed."""

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
        """Return the frames from `at` up to `until` with the data that contains them."""
        begin = int(self.ends[self.at - 1]) if self.at else 0
        data = self.data[begin : self.ends[until - 1]]
        return data, self.starts[self.at : until] - begin, self.ends[self.at : until] - begin


class Intake:
    """Router of received frames; without a spool all are plain."""

    def __init__(self, spool: Spool | None = None) -> None:
        self._spool = spool
        self._frames, self._limits = FrameBuffer(), Limits(0, 0)
        self._waiting: _Received | None = None
        self._moved_bytes = 0

    def fill(self, frames: FrameBuffer, limits: Limits) -> None:
        """Route to `frames` from now on, up to `limits`; frames that have been waiting come first."""
        self._frames, self._limits, self._moved_bytes = frames, limits, 0
        if self._spool is not None:
            self._sort(self._spool)

    @property
    def data(self) -> bytearray:
        """Return the bytes that the reader appends to."""
        return self._frames.data

    @property
    def room_bytes(self) -> int:
        """Return the number of bytes up to the buffer's limit."""
        return max(0, self._limits.size_bytes - len(self._frames.data))

    @property
    def full(self) -> bool:
        """Return whether the reader must pause: the buffer is full, or many bytes have been routed since `fill`."""
        return self._limits.met_by(self._frames) or self._moved_bytes >= _AT_ONCE_BYTES

    def add(self, starts: Ints, ends: Ints) -> None:
        """Route the frames at these offsets of `data`.

        Raises DecodeError for a streaming message that is malformed or out of order, LakeUnusable if the spool cannot
        be written.
        """
        frames, spool = self._frames, self._spool
        tags = frames.tags(starts)
        if spool is None and _ABORT in tags:
            starts, ends, tags = _without_aborts(starts, ends, tags)
        if spool is None or not (spool.active or _BOUNDARY.search(tags)):
            frames.add(starts, ends, tags)
        elif starts.size:
            begin = frames.ends[-1] if len(frames) else 0
            assert self._waiting is None  # noqa: S101  # the reader checks `full` first
            self._waiting = _Received(frames.data[begin:], starts - begin, ends - begin, tags)
            del frames.data[begin:]
            self._moved_bytes += len(self._waiting.data)
            self._sort(spool)

    def _sort(self, spool: Spool) -> None:
        """Route until nothing waits or the buffer is full."""
        while not self._limits.met_by(self._frames):
            segment = spool.next_segment()
            if segment is not None:
                self._replay(segment)
            elif self._waiting is not None:
                self._sort_run(spool, self._waiting)
            else:
                return

    def _sort_run(self, spool: Spool, received: _Received) -> None:
        """Route the next frames of one kind, or the next boundary message."""
        at, boundary = received.at, _BOUNDARY.search(received.tags, received.at)
        until = boundary.start() if boundary else len(received.tags)
        try:
            if until == at:
                until += 1
                spool.handle_boundary(received.payload(at))
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
                spool.record_relation(received.payload(number))
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
    """Remove Stream Aborts: PostgreSQL 18 sends some for transactions that it has not streamed."""
    kept = [number for number, tag in enumerate(tags) if tag != _ABORT[0]]
    return starts[kept], ends[kept], bytes(tags[number] for number in kept)
