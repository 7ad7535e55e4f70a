"""Replication stream: receive frames of pgoutput from the walsender, and send status updates.

`receive` moves whole frames into a `FrameBuffer` and returns when its caller has a decision to make. It waits in
select, not in libpq, whose blocking read holds the interpreter's lock. The stream handles frames; the buffer records
where a transaction ends.

The walsender sends every frame separately and is woken when its socket has room, so waking for every frame costs both
sides more than decoding. After a small read `receive` waits for more frames, for less time than it takes to fill the
socket.

`acknowledge` sends the LSN it is given: the end of a durable transaction, or the position of a keepalive while no
transaction is pending.

Authority: postgresql.org/docs/current/protocol-replication.html, START_REPLICATION … LOGICAL
"""

import select
import struct
import time
from typing import Protocol, Self

from psycopg.pq.abc import PGconn

from auditlake.errors import WrongSource
from auditlake.lsn import Lsn
from auditlake.pgoutput.messages import EPOCH_UNIX_US
from auditlake.replication.copy_both import CopyBoth
from auditlake.replication.frame_router import FrameBuffer, Intake, Limits
from auditlake.replication.spool import Spool
from auditlake.streaming_mode import Streaming

_STATUS = struct.Struct(">cqqqqc")
# A walsender at full speed fills a Unix socket in about a millisecond, some 280 frames.
_FEW_FRAMES, _GATHER_S = 100, 0.000_2


class Waker(Protocol):
    """A descriptor that ends a wait when it becomes readable."""

    def fileno(self) -> int: ...


class ReplicationStream:
    """A started replication stream; `keepalive_lsn` is the walsender's position in its last keepalive."""

    def __init__(self, copy: CopyBoth, start_lsn: Lsn, intake: Intake) -> None:
        self._copy = copy
        self._intake = intake
        self._flush_lsn = start_lsn
        self._last_status_at = self._received_at = time.monotonic()
        self._reply_wanted = False
        self.keepalive_lsn = Lsn(0)

    @classmethod
    def over(cls, pgconn: PGconn, start_lsn: Lsn, streaming: Streaming) -> Self:
        """Read a stream that was started at `start_lsn` in this streaming mode.

        Raises LakeUnusable if the spool's folder cannot be written.
        """
        intake = Intake(None if streaming.mode == "off" else Spool(streaming.spool))
        return cls(CopyBoth(pgconn), start_lsn, intake)

    def receive(self, frames: FrameBuffer, limits: Limits, timeout_s: float, waker: Waker) -> None:
        """Append frames for up to `timeout_s`; if the buffer is full, wait for the waker only.

        Returns earlier when the buffer becomes full, on the first Commit, on a keepalive while the buffer is empty, or
        when `waker` is readable.
        """
        deadline, no_commit_yet = time.monotonic() + timeout_s, not frames.commits
        was_full = limits.met_by(frames)
        while True:
            received = 0 if was_full else self._drain(frames, limits)
            if received or was_full:  # nothing is read into a full buffer, so silence means nothing
                self._received_at = time.monotonic()
            if self._reply_wanted:
                self.acknowledge(self._flush_lsn)
            left_s = deadline - time.monotonic()
            full = limits.met_by(frames)
            decide = full != was_full or (received and not len(frames)) or (no_commit_yet and frames.commits)
            if left_s <= 0 or decide or self._wait(waker, left_s, also_stream=not full, few=0 < received < _FEW_FRAMES):
                return

    def _wait(self, waker: Waker, timeout_s: float, *, also_stream: bool, few: bool) -> bool:
        """Wait for the stream or the waker; True if the waker is readable."""
        if few:
            time.sleep(_GATHER_S)
        watched = [self._copy, waker] if also_stream else [waker]
        ready = select.select(watched, [], [], timeout_s)[0]
        if self._copy in ready:  # perhaps only part of a message
            self._received_at = time.monotonic()
        return waker in ready

    def _drain(self, frames: FrameBuffer, limits: Limits) -> int:
        """Read until nothing is waiting or the buffer is full; return the number of messages."""
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
        """Acknowledge that everything up to `flush_lsn` is durable here; the server may remove its WAL."""
        self._flush_lsn = max(self._flush_lsn, flush_lsn)
        now_us = int(time.time() * 1_000_000) - EPOCH_UNIX_US
        lsn = self._flush_lsn
        self._copy.send(_STATUS.pack(b"r", lsn, lsn, lsn, now_us, b"\x01" if ask_reply else b"\x00"))
        self._reply_wanted = False
        self._last_status_at = time.monotonic()

    @property
    def silent_for_s(self) -> float:
        """Seconds since our last status update."""
        return time.monotonic() - self._last_status_at

    @property
    def unheard_for_s(self) -> float:
        """Seconds since we last received anything from the server, or could not because the buffer was full."""
        return time.monotonic() - self._received_at

    def close(self) -> None:
        """Close the connection; the walsender notices at once."""
        self._copy.close()
