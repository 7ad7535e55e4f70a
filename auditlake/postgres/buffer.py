"""Frames gathered from the replication stream, until they are enough to be decoded at once.

A buffer may be cut after a Commit and nowhere else, so it notes where the last one ends. It looks at the first byte of
a frame only; what the rest means is `pgoutput`'s.
"""

import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

_COMMIT, _MESSAGE, _NOT_TRANSACTIONAL = b"C", b"M", b"\0"
_NONE: "array[int]" = array("q")

Payloads = tuple[bytearray, npt.NDArray[np.int64], npt.NDArray[np.int64]]


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

    def tags(self, starts: Iterable[int]) -> bytes:
        """Read the first bytes of the frames that begin there."""
        return bytes(map(self.data.__getitem__, starts))

    def add(self, starts: Iterable[int], ends: Iterable[int], tags: bytes) -> None:
        """Take these stretches of `data`, which lie after the last frame, as the next frames; none may be empty.

        Logical messages that belong to no transaction are left out: kept, one would look like a transaction without
        an end.
        """
        before = len(self)
        self.starts.extend(starts)
        self.ends.extend(ends)
        if _MESSAGE in tags:
            self._leave_out_messages(before)
            tags = self.tags(self.starts[before:])
        if _COMMIT in tags:
            self.first_commit_at = self.first_commit_at or time.monotonic()
            self.commits += tags.count(_COMMIT)
            self.after_last_commit = before + tags.rfind(_COMMIT) + 1

    def _leave_out_messages(self, first: int) -> None:
        data = self.data
        added = list(zip(self.starts[first:], self.ends[first:], strict=True))
        kept = [
            (start, end)
            for start, end in added
            if data[start : start + 1] != _MESSAGE or data[start + 1 : start + 2] != _NOT_TRANSACTIONAL
        ]
        del self.starts[first:], self.ends[first:]
        self.starts.extend(start for start, _ in kept)
        self.ends.extend(end for _, end in kept)

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
