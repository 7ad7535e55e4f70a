"""The replication stream: frames of pgoutput as the walsender sends them, and our answers.

`receive` moves whole frames into a `FrameBuffer` and returns when nothing is waiting, at a limit, or after
`timeout_s`; it never blocks in libpq (whose blocking read holds the interpreter's lock) but in select. The stream
knows frames, not transactions: it only notes where a Commit ends, because that is where a buffer may be cut, and
leaves out logical messages that belong to no transaction.

It acknowledges what it is told to, nothing else: `flush_lsn` must be the end of a transaction that is durable, or a
keepalive's position with nothing pending.

Authority: postgresql.org/docs/current/protocol-replication.html, START_REPLICATION … LOGICAL
"""

import select
import struct
import time
from dataclasses import dataclass, field

from psycopg import pq, sql
from psycopg.pq.abc import PGconn, PGresult

from auditlake.errors import DecodeError, LakeConflict, WrongSource
from auditlake.lsn import Lsn
from auditlake.postgres.connection import unreachable

_XLOG_DATA, _KEEPALIVE, _COMMIT, _MESSAGE = ord("w"), ord("k"), ord("C"), ord("M")
_XLOG_HEADER_BYTES = 25
_FLAGS, _NOT_TRANSACTIONAL = slice(_XLOG_HEADER_BYTES + 1, _XLOG_HEADER_BYTES + 2), b"\x00"
_KEEPALIVE_BYTES = 18
_STATUS = struct.Struct(">cqqqqc")
_POSTGRES_EPOCH_S = 946_684_800
_COPY_IN_PROGRESS = 0


@dataclass(slots=True)
class FrameBuffer:
    """pgoutput payloads in stream order; payload i is `data[starts[i]:ends[i]]`, `commits` of them are Commits."""

    data: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    commits: int = 0
    after_last_commit: int = 0
    first_commit_at: float = 0.0

    def split(self, frames: int) -> tuple["FrameBuffer", "FrameBuffer"]:
        """Cut into the first `frames` frames and the rest."""
        if frames == len(self.ends):
            return self, FrameBuffer()
        cut = self.ends[frames - 1]
        head = FrameBuffer(self.data[:cut], self.starts[:frames], self.ends[:frames], self.commits)
        rest = FrameBuffer(
            self.data[cut:], [s - cut for s in self.starts[frames:]], [e - cut for e in self.ends[frames:]]
        )
        return head, rest


@dataclass(frozen=True, slots=True)
class Limits:
    """Where `receive` stops although more is waiting."""

    frames: int
    size_bytes: int

    def met_by(self, buffer: FrameBuffer) -> bool:
        """Whether `receive` would add nothing more to this buffer."""
        return len(buffer.ends) >= self.frames or len(buffer.data) >= self.size_bytes


class ReplicationStream:
    """A started replication stream; `keepalive_lsn` is how far the walsender had read when it last said so."""

    def __init__(self, pgconn: PGconn, start_lsn: Lsn) -> None:
        self._pgconn = pgconn
        self._flush_lsn = start_lsn
        self._last_status_at = time.monotonic()
        self._reply_wanted = False
        self.keepalive_lsn = Lsn(0)

    @classmethod
    def start(cls, pgconn: PGconn, slot: str, publication: str, start_lsn: Lsn) -> "ReplicationStream":
        """Start streaming transactions that end after `start_lsn`.

        Raises LakeConflict where somebody else reads the slot, WrongSource where the slot cannot serve it any more.
        """
        options = sql.SQL("proto_version '1', publication_names {}, messages 'true'").format(
            sql.Literal(sql.Identifier(publication).as_string())
        )
        command = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})").format(
            sql.Identifier(slot), sql.SQL(str(start_lsn)), options
        )
        result = pgconn.exec_(command.as_bytes())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise _not_started(slot, result)
        pgconn.nonblocking = 1
        return cls(pgconn, start_lsn)

    def receive(self, frames: FrameBuffer, limits: Limits, timeout_s: float) -> None:
        """Append frames for up to `timeout_s`; less if a limit is met, the first Commit or a lone keepalive comes."""
        deadline, no_commit_yet = time.monotonic() + timeout_s, not frames.commits
        while True:
            came = self._drain(frames, limits)
            if self._reply_wanted:
                self.acknowledge(self._flush_lsn)
            left_s = deadline - time.monotonic()
            if left_s <= 0 or limits.met_by(frames) or (came and not frames.ends) or (no_commit_yet and frames.commits):
                return
            select.select([self._pgconn.socket], [], [], left_s)

    def _drain(self, frames: FrameBuffer, limits: Limits) -> bool:
        """Read until nothing is waiting or a limit is met; True if a frame or keepalive came."""
        pgconn = self._pgconn
        pgconn.consume_input()
        get, data, starts, ends = pgconn.get_copy_data, frames.data, frames.starts, frames.ends
        came, size = False, len(data)
        while len(ends) < limits.frames and size < limits.size_bytes:
            length, view = get(1)
            if length <= _COPY_IN_PROGRESS:
                if length == _COPY_IN_PROGRESS:
                    return came
                raise self._ended()
            came = True
            if view[0] == _XLOG_DATA:
                if view[_XLOG_HEADER_BYTES] == _MESSAGE and bytes(view[_FLAGS]) == _NOT_TRANSACTIONAL:
                    continue  # not transactional: kept, it would look like a transaction without an end
                data += view
                starts.append(size + _XLOG_HEADER_BYTES)
                size += length
                ends.append(size)
                if view[_XLOG_HEADER_BYTES] == _COMMIT:
                    frames.commits += 1
                    frames.after_last_commit = len(ends)
                    if frames.commits == 1:
                        frames.first_commit_at = time.monotonic()
            else:
                self._keepalive(bytes(view))
        return came

    def _keepalive(self, message: bytes) -> None:
        if message[0] != _KEEPALIVE or len(message) != _KEEPALIVE_BYTES:
            raise DecodeError(f"unknown replication message {message[:1]!r} of {len(message)} bytes, need 'w' or 'k'")
        self.keepalive_lsn = Lsn(int.from_bytes(message[1:9], "big"))
        self._reply_wanted = message[17] == 1

    def _ended(self) -> Exception:
        result = self._pgconn.get_result()
        message = result.get_error_message() if result is not None else self._pgconn.get_error_message()
        return unreachable(message or "the server ended the replication stream")

    def acknowledge(self, flush_lsn: Lsn, *, ask_reply: bool = False) -> None:
        """Tell the server that everything up to `flush_lsn` is durable here, and may be forgotten there."""
        self._flush_lsn = max(self._flush_lsn, flush_lsn)
        now_us = int((time.time() - _POSTGRES_EPOCH_S) * 1_000_000)
        lsn = self._flush_lsn
        self._pgconn.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, now_us, b"\x01" if ask_reply else b"\x00"))
        while self._pgconn.flush():
            select.select([], [self._pgconn.socket], [])
        self._reply_wanted = False
        self._last_status_at = time.monotonic()

    @property
    def silent_for_s(self) -> float:
        """Seconds since the server last heard from us."""
        return time.monotonic() - self._last_status_at

    def close(self) -> None:
        """Close the connection; the walsender notices at once."""
        self._pgconn.finish()


def _not_started(slot: str, result: PGresult) -> Exception:
    sqlstate = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    message = " ".join(result.get_error_message().split())
    if sqlstate == "55006":  # object_in_use
        return LakeConflict(
            f"slot {slot} is in use: {message}",
            "Another capture reads it; stop that one first (auditlake status shows it).",
        )
    if sqlstate in {"42704", "55000"}:  # undefined_object, object_not_in_prerequisite_state
        return WrongSource(
            f"slot {slot} cannot serve this lake any more: {message}",
            "Changes are missing; bootstrap a new lake.",
        )
    return unreachable(message)
