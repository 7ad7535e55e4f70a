"""Which transaction each message of a buffer belongs to.

Transactions of a buffer are numbered from 0. Number 0 is the one that was open when the buffer began, whether or not
there was one; each Begin starts the next. Begin and Commit must alternate, everything but a non-transactional logical
message lies between them, and a Commit has the commit LSN its Begin announced.
"""

from dataclasses import dataclass, field

import numpy as np

from auditlake.pgoutput.context import Scope
from auditlake.pgoutput.cursor import MAX_TIME_US, MIN_TIME_US
from auditlake.pgoutput.frames import Bools, Frames, Ints, require

_BEGIN, _COMMIT = ord("B"), ord("C")
_BEGIN_BYTES, _COMMIT_BYTES = 21, 26
UNIX_US = 946_684_800_000_000
"""2000-01-01, where the wire counts from, in microseconds since 1970, where Arrow does."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """What is known of a transaction whose Commit has not come; `time` in microseconds since 1970."""

    lsn: int
    xid: int
    time: int
    origin: str | None = None
    context: Scope = field(default=Scope())
    rows: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    tables: frozenset[str] = field(default=frozenset())


class Spans:
    """The transactions of one buffer: `lsn`, `xid` and `time` by their number, `of` by message."""

    def __init__(self, frames: Frames, carried: OpenTransaction | None) -> None:
        begin = frames.tags == _BEGIN
        commit = frames.tags == _COMMIT
        self.carried = carried
        self.begins: Ints = np.flatnonzero(begin)
        self.commits: Ints = np.flatnonzero(commit)
        self.of: Ints = np.cumsum(begin)
        depth = np.cumsum(begin.astype(np.int64) - commit) + (carried is not None)
        numbers = np.arange(depth.size)
        require(depth <= 1, numbers, "a transaction begins inside another")
        require(depth >= 0, numbers, "a commit outside a transaction")
        self.inside: Bools = depth == 1
        self._read_begins(frames)
        self._read_commits(frames)

    @property
    def count(self) -> int:
        """How many transactions, with number 0."""
        return self.lsn.size

    @property
    def is_open(self) -> bool:
        """Whether the last transaction goes on in the next buffer."""
        return (self.carried is not None) + self.begins.size > self.commits.size

    def _read_begins(self, frames: Frames) -> None:
        at = frames.starts[self.begins]
        require(frames.ends[self.begins] - at == _BEGIN_BYTES, self.begins)
        lsn, time = frames.i64(at + 1), frames.i64(at + 9)
        require((lsn >= 0) & (time >= MIN_TIME_US) & (time <= MAX_TIME_US), self.begins)
        first = self.carried or OpenTransaction(lsn=0, xid=0, time=0)
        self.lsn: Ints = np.concatenate([[first.lsn], lsn])
        self.time: Ints = np.concatenate([[first.time], time + UNIX_US])
        self.xid: Ints = np.concatenate([[first.xid], frames.u32(at + 17)])

    def _read_commits(self, frames: Frames) -> None:
        at = frames.starts[self.commits]
        require(frames.ends[self.commits] - at == _COMMIT_BYTES, self.commits)
        lsn, self.end_lsn, time = frames.i64(at + 2), frames.i64(at + 10), frames.i64(at + 18)
        fine = (frames.u8(at + 1) == 0) & (lsn >= 0) & (self.end_lsn >= 0)
        require(fine & (time >= MIN_TIME_US) & (time <= MAX_TIME_US), self.commits)
        announced = self.lsn[self.of[self.commits]]
        require(lsn == announced, self.commits, "its commit LSN is not the one its Begin announced")
