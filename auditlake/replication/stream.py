"""The replication stream: receive frames of pgoutput from the walsender, route them, and send status updates.

From the caller down:

1. `ReplicationStream.receive` moves whole frames into a `FrameBuffer` and returns when its caller has a decision to
   make. It waits in select, not in libpq, whose blocking read holds the interpreter's lock. `acknowledge` sends the LSN
   it is given: the end of a durable transaction, or the position of a keepalive while no transaction is pending.
2. `CopyBoth` reads CopyData messages through libpq without waiting, moves the payload of every XLogData message into an
   `Intake`, and returns the keepalives. It stops when nothing is left in the socket, or when the intake is full.
3. `Intake` routes frames. As long as nothing is streamed, they go to the buffer unchanged. From the first block of a
   streamed transaction on, until none is in progress, frames are split at the boundaries of blocks and transactions,
   and routed in order. A streamed transaction is added to the buffer when it commits, as a plain one, before any later
   message; what exceeds the buffer's limits comes first in the next buffer.
4. `FrameBuffer` collects frames until there are enough to decode as one batch. It may be split only after a Commit, so
   it records the end of the last one. It inspects the first byte of a frame (and the flags of a logical message);
   `pgoutput` decodes the rest.

The walsender sends every frame separately and is woken when its socket has room, so waking for every frame costs both
sides more than decoding. After a small read `receive` waits for more frames, for less time than it takes to fill the
socket.

Over TLS the walsender sends every message in a record of its own, and `PQconsumeInput` reads one record. So
`CopyBoth.read` calls it until the socket is empty, and once more: bytes for which libpq had no room stay inside
OpenSSL, where select does not see them.

A reader of the bare socket, without libpq's memory for each message, needed 26 % less CPU time and 7 % more elapsed
time, and could not serve TLS (`bench/transport.py`, 300,000 transactions, 2026-11): not worth a second implementation.

Authority: postgresql.org/docs/current/protocol-replication.html, START_REPLICATION … LOGICAL, XLogData;
protocol-message-formats.html, CopyBothResponse, CopyData; libpq-async.html, PQconsumeInput
"""

import re
import select
import struct
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import pq

from auditlake.errors import AuditlakeError, DecodeError, SourceUnreachable, WrongSource
from auditlake.instants import now_us
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_layout import Ints
from auditlake.pgoutput.decoder import EPOCH_UNIX_US, MOST_CONTENT_BYTES, cut_message
from auditlake.replication.spool import PayloadSegment, Spool
from auditlake.replication.start import ENDED, stream_failure
from auditlake.settings.streaming_mode import Streaming
from auditlake.source.connection import Row, translated_errors, unreachable

_COMMIT, _MESSAGE, _NOT_TRANSACTIONAL = b"C", b"M", b"\0"
_NONE: "array[int]" = array("q")

Payloads = tuple[bytearray, Ints, Ints]
_BOUNDARY = re.compile(b"[SEcAbPKpr]")
_RELATION, _STREAM_START, _BLOCK_BOUNDS = ord("R"), ord("S"), b"SE"
_BEGIN, _XID_IN_BEGIN, _XID_BYTES = ord("B"), 17, 4
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
        end. The bytes of those at the end are removed, because nothing else would end a buffer that has only them.
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
        del self.data[self.ends[-1] if len(self) else 0 :]

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

    def xids(self) -> npt.NDArray[np.uint32]:
        """Return the xids of the transactions that begin here; a Begin that is cut off is left to the decoder."""
        data, starts, ends = self.payloads()
        octets = np.frombuffer(data, np.uint8)
        begins = starts[(octets[starts] == _BEGIN) & (ends - starts >= _XID_IN_BEGIN + _XID_BYTES)]
        places = begins[:, None] + np.arange(_XID_IN_BEGIN, _XID_IN_BEGIN + _XID_BYTES)
        xids: npt.NDArray[np.uint32] = octets[places].view(">u4").ravel().astype(np.uint32)
        return xids

    def split(self) -> tuple["FrameBuffer", "FrameBuffer"]:
        """Split after the last Commit."""
        return self._split(self.after_last_commit)

    def split_part(self) -> tuple["FrameBuffer", "FrameBuffer"]:
        """Split before a Relation message at the end, without a Commit: it belongs to the change that follows."""
        count = len(self) - (self.data[self.starts[-1]] == _RELATION)
        return self._split(count or len(self))

    def _split(self, count: int) -> tuple["FrameBuffer", "FrameBuffer"]:
        if count == len(self):
            return self, FrameBuffer()
        cut = self.ends[count - 1]
        before = self.data[:cut], self.starts[:count], self.ends[:count]
        head = FrameBuffer(*before, self.commits, self.after_last_commit, self.first_commit_at)
        rest = FrameBuffer(
            self.data[cut:],
            array("q", (start - cut for start in self.starts[count:])),
            array("q", (end - cut for end in self.ends[count:])),
        )
        return head, rest


@dataclass(frozen=True, slots=True)
class BufferLimits:
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
        self._frames, self._limits = FrameBuffer(), BufferLimits(0, 0)
        self._waiting: _Received | None = None
        self._moved_bytes = 0

    def fill(self, frames: FrameBuffer, limits: BufferLimits) -> None:
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
    def in_block(self) -> bool:
        """Return whether the next frame is in a block of a streamed transaction, once none is waiting."""
        return self._spool is not None and self._spool.in_block

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
            self._add(starts, ends, tags)
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

    def _replay(self, segment: PayloadSegment) -> None:
        tags = np.frombuffer(segment.data, np.uint8)[segment.starts].tobytes()
        self._append(segment.data, segment.starts, segment.ends, tags)

    def _append(self, data: bytes | bytearray, starts: Ints, ends: Ints, tags: bytes) -> None:
        frames = self._frames
        begin = len(frames.data)
        frames.data += data
        self._add(starts + begin, ends + begin, tags)

    def _add(self, starts: Ints, ends: Ints, tags: bytes) -> None:
        before = len(self._frames.data)
        self._frames.add(starts, ends, tags)
        self._moved_bytes += before - len(self._frames.data)


def _without_aborts(starts: Ints, ends: Ints, tags: bytes) -> tuple[Ints, Ints, bytes]:
    """Remove Stream Aborts: PostgreSQL 18 sends some for transactions that it has not streamed."""
    kept = [number for number, tag in enumerate(tags) if tag != _ABORT[0]]
    return starts[kept], ends[kept], bytes(tags[number] for number in kept)


_XLOG_DATA = ord("w")
_KEEPALIVE, _KEEPALIVE_BYTES = b"k", 18
_XLOG_HEADER_BYTES = 25
_COPY_IN_PROGRESS = 0
# Adding frames to an intake costs the same for one as for many.
_MOST_FRAMES, _MOST_BYTES = 256, 1 << 18
# After libpq had no message left, call PQconsumeInput before each of the next messages: that saves a failing call of
# PQgetCopyData after every TLS record. Without a limit, records of many messages would accumulate in libpq's memory.
_READS_AHEAD = 16


class _Socket(IntEnum):
    """State of the socket since libpq last returned a message."""

    UNKNOWN = 0
    READ_ONCE = 1
    EMPTY = 2


class CopyBoth:
    """A connection in COPY BOTH, non-blocking. `lsn_offset` is added to the LSNs of frames, and not of keepalives.

    `is_streaming`: the server was asked for transactions in progress.
    """

    def __init__(
        self, replication: psycopg.Connection[Row], lsn_offset: int = 0, *, is_streaming: bool = False
    ) -> None:
        self._replication, self._pgconn = replication, replication.pgconn
        self._lsn_offset = lsn_offset
        self._is_streaming = is_streaming
        self._descriptor = self._pgconn.socket  # libpq does not return it after the connection is lost
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._lost: SourceUnreachable | None = None

    def fileno(self) -> int:
        """Return the descriptor that is readable when more arrives; messages that `read` left do not show in it."""
        return self._descriptor

    def read(self, intake: Intake) -> list[bytes]:
        """Move waiting frames into `intake` until it is full; return the keepalives."""
        keepalives: list[bytes] = []
        while not intake.full and self._move(intake, keepalives):
            pass
        return keepalives

    def _move(self, intake: Intake, keepalives: list[bytes]) -> bool:
        """Move some messages at once; return False if no more are waiting."""
        get, consume = self._pgconn.get_copy_data, self._pgconn.consume_input
        frames, known, ahead = list[memoryview | bytes](), _Socket.UNKNOWN, 0
        room = min(_MOST_BYTES, intake.room_bytes // 4)
        try:
            while room >= 0 and len(frames) < _MOST_FRAMES:
                if ahead:
                    consume()
                    ahead -= 1
                length, message = get(1)
                if length > _XLOG_HEADER_BYTES:
                    frames.append(message if length <= MOST_CONTENT_BYTES else _bounded(message, frames, intake))
                    room -= length
                    known = _Socket.UNKNOWN
                elif length != _COPY_IN_PROGRESS:
                    keepalives.append(self._other(length, message))
                    known = _Socket.UNKNOWN
                elif known == _Socket.EMPTY:
                    return False
                else:
                    known, ahead = self._receive(known), _READS_AHEAD
        except psycopg.OperationalError as exc:
            self._lose(exc)
        finally:
            if frames:
                _add(intake, frames, self._lsn_offset)
        return True

    def _receive(self, known: _Socket) -> _Socket:
        """Let libpq read without waiting; raises SourceUnreachable once no received message is left."""
        if self._lost is not None:
            raise self._lost
        emptied = known == _Socket.READ_ONCE and not self._poll.poll(0)
        self._pgconn.consume_input()
        return _Socket.EMPTY if emptied else _Socket.READ_ONCE

    def _lose(self, exc: psycopg.OperationalError) -> None:
        """Save the reason for the loss: messages received before may still be in libpq's memory."""
        if self._lost is not None:
            raise self._lost from exc
        self._lost = unreachable(str(exc))

    def _other(self, length: int, message: memoryview) -> bytes:
        """Return a keepalive, or raise the reason for the end of the stream."""
        if length > _COPY_IN_PROGRESS:
            return _keepalive(bytes(message))
        raise self._ended()

    def _ended(self) -> AuditlakeError:
        result = self._pgconn.get_result()
        if result is None:
            return unreachable(self._pgconn.get_error_message() or ENDED)
        sqlstate = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() or None
        return stream_failure(result.get_error_message() or ENDED, sqlstate, is_streaming=self._is_streaming)

    def send(self, message: bytes) -> None:
        """Send one CopyData message."""
        with translated_errors():
            self._pgconn.put_copy_data(message)
            while self._pgconn.flush():
                select.select([], [self], [])

    def close(self) -> None:
        """Close the connection; the walsender notices at once."""
        self._replication.close()


def _bounded(message: memoryview, before: list[memoryview | bytes], intake: Intake) -> memoryview | bytes:
    """Cut a logical message of any length; return another message unchanged. `before` are not in the intake yet."""
    if message[_XLOG_HEADER_BYTES] != _MESSAGE[0]:
        return message
    tags = (each[_XLOG_HEADER_BYTES] for each in reversed(before))
    in_block = next((tag == _STREAM_START for tag in tags if tag in _BLOCK_BOUNDS), intake.in_block)
    return bytes(message[:_XLOG_HEADER_BYTES]) + cut_message(message[_XLOG_HEADER_BYTES:], in_block=in_block)


def _add(intake: Intake, messages: list[memoryview | bytes], lsn_offset: int) -> None:
    """Append XLogData messages to the intake's data, and their payloads as frames."""
    data = intake.data
    ends = np.cumsum([len(data), *map(len, messages)])
    data += b"".join(messages)
    starts, ends = ends[:-1], ends[1:]
    kinds = np.frombuffer(data, np.uint8)[starts]
    if (kinds != _XLOG_DATA).any():
        _keepalive(bytes(messages[int(np.argmax(kinds != _XLOG_DATA))]))  # raises: it is longer than one
    starts = starts + _XLOG_HEADER_BYTES
    if lsn_offset:
        _shift(np.frombuffer(data, np.uint8), starts, lsn_offset)
    del kinds
    intake.add(starts, ends)


# Offsets of the LSNs in a Begin, a Commit and a Stream Commit.
_LSNS_IN = {ord("B"): (1,), ord("C"): (2, 10), ord("c"): (6, 14)}


def _shift(data: npt.NDArray[np.uint8], starts: Ints, lsn_offset: int) -> None:
    """Add an offset to the LSNs of frames, in place; raises DecodeError for a frame that is too short for its LSNs."""
    _add_to(data, starts - _LSN_BEFORE_FRAME, lsn_offset)
    tags = data[starts]
    for tag, places in _LSNS_IN.items():
        of_tag = starts[tags == tag]
        if of_tag.size and int(of_tag[-1]) + max(places) + _LSN_BYTES > data.size:
            raise DecodeError(f"a {chr(tag)!r} message is too short for its LSNs")
        for place in places:
            _add_to(data, of_tag + place, lsn_offset)


def _add_to(data: npt.NDArray[np.uint8], places: Ints, lsn_offset: int) -> None:
    at = places[:, None] + np.arange(_LSN_BYTES)
    shifted = data[at].copy().view(">u8") + np.uint64(lsn_offset)
    data[at] = shifted.astype(">u8").view(np.uint8)


def _keepalive(message: bytes) -> bytes:
    """Require that a message without a frame is a keepalive."""
    if message[:1] != _KEEPALIVE or len(message) != _KEEPALIVE_BYTES:
        raise DecodeError(f"unknown replication message {message[:1]!r} of {len(message)} bytes, need 'w' or 'k'")
    return message


_STATUS = struct.Struct(">cqqqqc")
# A walsender at full speed fills a Unix socket in about a millisecond, some 280 frames.
_FEW_FRAMES, _GATHER_S = 100, 0.000_2


class Waker(Protocol):
    """A descriptor that ends a wait when it becomes readable."""

    def fileno(self) -> int: ...


class ReplicationStream:
    """A started replication stream; `keepalive_lsn` is the walsender's position in its last keepalive.

    All LSNs are those of the lake; `lsn_offset` is what the lake adds to the server's.
    """

    def __init__(self, copy: CopyBoth, start_lsn: Lsn, intake: Intake, lsn_offset: int = 0) -> None:
        self._copy = copy
        self._lsn_offset = lsn_offset
        self._intake = intake
        self._flush_lsn = start_lsn
        self._last_status_at = self._received_at = time.monotonic()
        self._left_at: float | None = self._received_at
        """When `receive` was left; None inside it."""
        self._reply_wanted = False
        self._using = threading.Lock()
        """Held while libpq is used, which serves one thread at a time, and while `_flush_lsn` is moved."""
        self._closed = threading.Event()
        self._updates: threading.Thread | None = None
        self._update_failure: Exception | None = None
        self.keepalive_lsn = Lsn(0)

    @classmethod
    def over(
        cls, replication: psycopg.Connection[Row], start_lsn: Lsn, streaming: Streaming, lsn_offset: int = 0
    ) -> Self:
        """Read a stream started at `start_lsn` in this mode; raises LakeUnusable without a folder for the spool."""
        is_streaming = streaming.mode != "off"
        intake = Intake(Spool(streaming.spool) if is_streaming else None)
        return cls(CopyBoth(replication, lsn_offset, is_streaming=is_streaming), start_lsn, intake, lsn_offset)

    def receive(self, frames: FrameBuffer, limits: BufferLimits, timeout_s: float, waker: Waker) -> None:
        """Append frames for up to `timeout_s`; if the buffer is full, wait for the waker only.

        Returns earlier when the buffer becomes full, on the first Commit, on a keepalive while the buffer is empty, or
        when `waker` is readable.
        """
        if self._update_failure is not None:
            raise self._update_failure
        with self._listening():
            self._receive(frames, limits, time.monotonic() + timeout_s, waker)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Exclude time that this process spent elsewhere from the server's silence."""
        if self._left_at is not None:
            self._received_at += time.monotonic() - self._left_at
        self._left_at = None
        try:
            yield
        finally:
            self._left_at = time.monotonic()

    def _receive(self, frames: FrameBuffer, limits: BufferLimits, deadline: float, waker: Waker) -> None:
        no_commit_yet, was_full = not frames.commits, limits.met_by(frames)
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

    def _drain(self, frames: FrameBuffer, limits: BufferLimits) -> int:
        """Read until nothing is waiting or the buffer is full; return the number of messages."""
        before = len(frames)
        try:
            self._intake.fill(frames, limits)
            with self._using:
                keepalives = self._copy.read(self._intake)
        except WrongSource as exc:
            missing = f"changes from {self._flush_lsn} on are missing"
            raise WrongSource(f"{exc.message}; {missing}", exc.hint) from exc
        for message in keepalives:
            self.keepalive_lsn = Lsn(int.from_bytes(message[1:9], "big") + self._lsn_offset)
            self._reply_wanted |= message[17] == 1
        return len(frames) - before + len(keepalives)

    def acknowledge(self, flush_lsn: Lsn, *, ask_reply: bool = False) -> None:
        """Acknowledge that everything up to `flush_lsn` is durable here; the server may remove its WAL."""
        with self._using:
            self._flush_lsn = max(self._flush_lsn, flush_lsn)
            lsn = max(0, self._flush_lsn - self._lsn_offset)
            sent_us = now_us() - EPOCH_UNIX_US
            self._copy.send(_STATUS.pack(b"r", lsn, lsn, lsn, sent_us, b"\x01" if ask_reply else b"\x00"))
            self._reply_wanted = False
            self._last_status_at = time.monotonic()

    @property
    def silent_for_s(self) -> float:
        """Seconds since our last status update."""
        return time.monotonic() - self._last_status_at

    @property
    def unheard_for_s(self) -> float:
        """Seconds inside `receive` since we last received anything, or could not because the buffer was full."""
        return (self._left_at or time.monotonic()) - self._received_at

    def keep_alive(self, status_s: float) -> None:
        """From now on send a status update at least so often, from a thread, whatever else the caller is doing.

        An update asks for a reply if nothing was received for as long. A lost connection is left to `receive`, which
        also raises what ended the thread.
        """
        self._updates = threading.Thread(target=self._update, args=(status_s,), name="auditlake-status", daemon=True)
        self._updates.start()

    def _update(self, status_s: float) -> None:
        try:
            while not self._closed.wait(max(0.0, status_s - self.silent_for_s)):
                if self.silent_for_s >= status_s:
                    self.acknowledge(self._flush_lsn, ask_reply=self.unheard_for_s > status_s)
        except SourceUnreachable:
            return
        except Exception as exc:  # noqa: BLE001 - raised again by `receive`
            self._update_failure = exc

    def close(self) -> None:
        """Close the connection; the walsender notices at once."""
        self._closed.set()
        if self._updates is not None:
            self._updates.join()
        self._copy.close()
