"""The replication stream: frames of pgoutput as the walsender sends them, and our answers.

`receive` moves whole frames into a `FrameBuffer` and returns when there is something to decide; it never blocks in
libpq (whose blocking read holds the interpreter's lock) but in select. The stream knows frames, not transactions: it
leaves it to the buffer to note where one ends.

The walsender sends every frame by itself and is woken when its socket has room, so a reader that wakes for each of
them costs both sides more than the decoding. After a small read `receive` lets the next ones gather for a moment that
is shorter than it takes to fill the socket.

It acknowledges what it is told to, nothing else: `flush_lsn` must be the end of a transaction that is durable, or a
keepalive's position with nothing pending.

Authority: postgresql.org/docs/current/protocol-replication.html, START_REPLICATION … LOGICAL
"""

import select
import struct
import time
from typing import Protocol, Self

from auditlake.errors import WrongSource
from auditlake.lsn import Lsn
from auditlake.postgres.buffer import FrameBuffer, Limits
from auditlake.postgres.copyboth import Copy, open_copy
from auditlake.postgres.intake import Intake
from auditlake.postgres.spool import Spool
from auditlake.postgres.starting import Started
from auditlake.postgres.streaming import Streaming

_STATUS = struct.Struct(">cqqqqc")
_POSTGRES_EPOCH_S = 946_684_800
# A walsender at full speed fills a Unix socket in about a millisecond, some 280 frames.
_FEW_FRAMES, _GATHER_S = 100, 0.000_2


class Waker(Protocol):
    """What ends a wait: a descriptor that becomes readable."""

    def fileno(self) -> int: ...


class ReplicationStream:
    """A started replication stream; `keepalive_lsn` is how far the walsender had read when it last said so."""

    def __init__(self, copy: Copy, start_lsn: Lsn, intake: Intake) -> None:
        self._copy = copy
        self._intake = intake
        self._flush_lsn = start_lsn
        self._last_status_at = self._heard_at = time.monotonic()
        self._reply_wanted = False
        self.keepalive_lsn = Lsn(0)

    @classmethod
    def over(cls, started: Started, start_lsn: Lsn, streaming: Streaming) -> Self:
        """Read a stream that was started at `start_lsn`, as `streaming` says.

        Raises LakeUnusable where the spool's folder cannot be written.
        """
        intake = Intake(None if streaming.mode == "off" else Spool(streaming.spool))
        return cls(open_copy(started), start_lsn, intake)

    def receive(self, frames: FrameBuffer, limits: Limits, timeout_s: float, waker: Waker) -> None:
        """Append frames for up to `timeout_s`, and wait for the waker alone where the buffer is full.

        Returns earlier when the buffer has become full, when the first Commit or a lone keepalive has come, or when
        `waker` is readable.
        """
        deadline, no_commit_yet = time.monotonic() + timeout_s, not frames.commits
        was_full = limits.met_by(frames)
        while True:
            came = 0 if was_full else self._drain(frames, limits)
            if came or was_full:  # nothing is read into a full buffer, however much the server says
                self._heard_at = time.monotonic()
            if self._reply_wanted:
                self.acknowledge(self._flush_lsn)
            left_s = deadline - time.monotonic()
            full = limits.met_by(frames)
            decide = full != was_full or (came and not len(frames)) or (no_commit_yet and frames.commits)
            if left_s <= 0 or decide or self._wait(waker, left_s, also_stream=not full, few=0 < came < _FEW_FRAMES):
                return

    def _wait(self, waker: Waker, timeout_s: float, *, also_stream: bool, few: bool) -> bool:
        """Wait for the stream or the waker; True if the waker is readable."""
        if few:
            time.sleep(_GATHER_S)
        watched = [self._copy, waker] if also_stream else [waker]
        ready = select.select(watched, [], [], timeout_s)[0]
        if self._copy in ready:  # be it only part of a message
            self._heard_at = time.monotonic()
        return waker in ready

    def _drain(self, frames: FrameBuffer, limits: Limits) -> int:
        """Read until nothing is waiting or the buffer is full; give how many messages came."""
        before = len(frames)
        try:
            self._intake.fill(frames, limits)
            keepalives = self._copy.read(self._intake)
        except WrongSource as exc:
            missing = f"changes from {self._flush_lsn} on are missing"
            raise WrongSource(f"{exc.message}; {missing}", exc.hint) from exc
        for message in keepalives:
            self.keepalive_lsn = Lsn(int.from_bytes(message[1:9], "big"))
            self._reply_wanted |= message[17] == 1
        return len(frames) - before + len(keepalives)

    def acknowledge(self, flush_lsn: Lsn, *, ask_reply: bool = False) -> None:
        """Tell the server that everything up to `flush_lsn` is durable here, and may be forgotten there."""
        self._flush_lsn = max(self._flush_lsn, flush_lsn)
        now_us = int((time.time() - _POSTGRES_EPOCH_S) * 1_000_000)
        lsn = self._flush_lsn
        self._copy.send(_STATUS.pack(b"r", lsn, lsn, lsn, now_us, b"\x01" if ask_reply else b"\x00"))
        self._reply_wanted = False
        self._last_status_at = time.monotonic()

    @property
    def silent_for_s(self) -> float:
        """Seconds since the server last heard from us."""
        return time.monotonic() - self._last_status_at

    @property
    def unheard_for_s(self) -> float:
        """Seconds since we last heard from the server, or would not listen."""
        return time.monotonic() - self._heard_at

    def close(self) -> None:
        """Close the connection; the walsender notices at once."""
        self._copy.close()
