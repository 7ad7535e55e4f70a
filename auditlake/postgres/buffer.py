"""Frames gathered from the replication stream, until they are enough to be decoded at once.

A buffer may be cut after a Commit and nowhere else, so it notes where the last one ends. It looks at the first byte of
a frame only; what the rest means is `pgoutput`'s.
"""

import time
from array import array
from dataclasses import dataclass, field

import numpy as np

from auditlake.pgoutput.frames import Ints

_COMMIT, _MESSAGE, _NOT_TRANSACTIONAL = b"C", b"M", b"\0"
_NONE: "array[int]" = array("q")

Payloads = tuple[bytearray, Ints, Ints]


@dataclass(slots=True)
class FrameBuffer:
    """Frames in stream order: frame i is `data[starts[i]:ends[i]]`, and what lies between two of them means nothing.

    `commits` of them are Commits, the last of which ends the first `after_last_commit` frames; the first came at
    `first_commit_at` of the monotonic clock.
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
        """Read the first bytes of the frames that begin there."""
        return np.frombuffer(self.data, np.uint8)[starts].tobytes()

    def add(self, starts: Ints, ends: Ints, tags: bytes) -> None:
        """Take these stretches of `data`, which lie after the last frame, as the next frames; none may be empty.

        Logical messages that belong to no transaction are left out: kept, one would look like a transaction without
        an end.
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
        """Number those that are no logical messages, or transactional ones."""
        data = self.data
        return [
            number
            for number, tag in enumerate(tags)
            if tag != _MESSAGE[0] or data[starts[number] + 1 : starts[number] + 2] != _NOT_TRANSACTIONAL
        ]

    def payloads(self) -> Payloads:
        """All frames, with the offsets where each begins and ends."""
        return self.data, np.frombuffer(self.starts, np.int64), np.frombuffer(self.ends, np.int64)

    def split(self) -> tuple["FrameBuffer", "FrameBuffer"]:
        """Cut after the last Commit."""
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
    """How much a buffer takes before it is full."""

    frames: int
    size_bytes: int

    def met_by(self, buffer: FrameBuffer) -> bool:
        """Whether this buffer is full."""
        return len(buffer.ends) >= self.frames or len(buffer.data) >= self.size_bytes
