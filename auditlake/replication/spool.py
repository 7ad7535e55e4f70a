"""Streamed transactions in progress: their messages, kept until the server sends their commit or abort.

With streaming the server sends a large transaction in blocks while it runs, interleaved with blocks of others. `Spool`
keeps their messages, removes those that are rolled back, and replays a committed transaction as the server would have
sent it without streaming: Begin, its messages without their xids, Commit.

1. The spool need not survive the process: a transaction whose commit is not acknowledged is sent again from its first
   change, because the slot retains WAL from the oldest transaction in progress on (its restart_lsn).
2. Memory is bounded: beyond `memory_bytes` the transaction that uses most memory is moved to a file.
3. Rolling back a subtransaction truncates the transaction at that subtransaction's first change. Subtransactions nest,
   so every later message belongs to it or was rolled back before (as in worker.c, stream_abort_internal).
   But the server sends every logical message with the top transaction's xid (reorderbuffer.c,
   ReorderBufferApplyMessage). So one directly before or after that first change, or after the last change of all, may
   belong to the subtransaction or not, and only a stream without streaming shows it: `NotStreamed` at the commit,
   unless a subtransaction around it is rolled back until then.
4. Relation messages are private to the streamed transaction until it commits, and are not repeated after that unless
   something has changed since (pgoutput.c, cleanup_rel_sync_cache). So the one in force after the commit is the one
   that arrived last, from this transaction or from one that committed before it. If it is another transaction's, it is
   repeated before the Commit. The *epoch* of a message increases whenever another transaction has sent a Relation
   message in between: of two messages in different transactions the one with the greater epoch arrived later.
5. Two-phase commit is refused: a transaction acknowledged at PREPARE is not sent again at COMMIT PREPARED. Our slots
   are created without it, so the server sends a prepared transaction when it commits, like any other.

In a block every message except an Origin has an xid after its tag. `_read_block` removes the xids, by numpy and in
place: it moves the tag four bytes ahead, over the end of the xid. A subtransaction's number is its xid minus the top
transaction's, modulo 2^32, so numbers increase in the order in which xids are assigned, across a wraparound too.

`SpooledTransaction` keeps the plain messages of one transaction in order, numbered from 0: the first ones in a file
without a name, the rest in memory.

No value that is to be masked may reach a disk in the clear, and masking here would need relations whose meaning is not
known before the commit. So the file is encrypted under a key that only this object has: AES-256 in counter mode, each
piece from a random counter of its own, because what a rollback truncated is written over. Only the sizes of messages
are not hidden. It costs 0.4 ms a megabyte (2026-11-25).

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html, "Stream Start" to "Stream Abort"
"""

import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from auditlake.errors import DecodeError, InvariantBroken, LakeUnusable, WrongSource
from auditlake.pgoutput.batch_layout import Bools, BrokenMessage, Frames, Ints, require_fine
from auditlake.pgoutput.decoder import (
    IN_BLOCKS,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    TwoPhase,
    decode,
    decode_streamed,
)
from auditlake.settings.streaming_mode import NotStreamed


@dataclass(frozen=True, slots=True)
class _RelationMessage:
    """A plain Relation message with its OID, its number among the transaction's messages, and its epoch of arrival."""

    number: int
    epoch: int
    oid: int
    payload: bytes


class _Relations:
    """Stacks of Relation messages of one transaction, by OID."""

    def __init__(self) -> None:
        self._in_order: list[_RelationMessage] = []
        self._of: dict[int, list[_RelationMessage]] = {}

    def add(self, message: _RelationMessage) -> None:
        """Push the next message, unless it repeats the last: the server repeats itself after every rollback."""
        stack = self._of.setdefault(message.oid, [])
        if stack and (stack[-1].epoch, stack[-1].payload) == (message.epoch, message.payload):
            return
        stack.append(message)
        self._in_order.append(message)

    def cut(self, number: int) -> None:
        """Remove the messages from number `number` on."""
        while self._in_order and self._in_order[-1].number >= number:
            self._of[self._in_order.pop().oid].pop()

    def latest(self) -> Iterator[_RelationMessage]:
        """Return the newest message of each relation."""
        return (stack[-1] for stack in self._of.values() if stack)


_XID_BYTES = 4
_XIDS = 2**32
_ORIGIN, _RELATION, _MESSAGE = ord("O"), ord("R"), ord("M")
_NO_CHANGE = b"ORY"
_ALLOWED: Bools = np.isin(np.arange(256), list(IN_BLOCKS.encode()))


@dataclass(frozen=True, slots=True)
class PayloadSegment:
    """Plain payloads `data[starts[i]:ends[i]]` in stream order; `subs[i]` is the subtransaction of payload i."""

    data: bytes | bytearray
    starts: Ints
    ends: Ints
    subs: Ints

    @property
    def count(self) -> int:
        """Return the number of payloads."""
        return self.starts.size

    def head(self, count: int) -> "PayloadSegment":
        """Return the first `count` payloads."""
        end = int(self.ends[count - 1]) if count else 0
        return PayloadSegment(self.data[:end], self.starts[:count], self.ends[:count], self.subs[:count])

    @property
    def ends_with_message(self) -> bool | None:
        """Whether the last payload is a logical message; None if there are only Origins, which begin a block."""
        tags = np.frombuffer(self.data, np.uint8)[self.starts]
        others = np.flatnonzero(tags != _ORIGIN)
        return bool(tags[others[-1]] == _MESSAGE) if others.size else None

    def relations(self) -> list[tuple[int, bytes]]:
        """Return every Relation message: its number in this segment, and its payload."""
        tags = np.frombuffer(self.data, np.uint8)[self.starts]
        numbers = np.flatnonzero(tags == _RELATION).tolist()
        return [(number, bytes(self.data[self.starts[number] : self.ends[number]])) for number in numbers]


def _plain_bounds(stream_commit: bytes) -> tuple[bytes, bytes]:
    """Build the Begin and Commit that the server would send without streaming, from a valid Stream Commit."""
    xid, flags, lsn, end_lsn, time = (stream_commit[a:b] for a, b in pairwise((1, 5, 6, 14, 22, 30)))
    return b"B" + lsn + time + xid, b"C" + flags + lsn + end_lsn + time


def _segment_of(payloads: Sequence[bytes]) -> PayloadSegment:
    """Concatenate plain payloads of the top transaction."""
    sizes = np.array([len(payload) for payload in payloads], np.int64)
    ends = np.cumsum(sizes)
    return PayloadSegment(b"".join(payloads), ends - sizes, ends, np.zeros(sizes.size, np.int64))


def _relation_oid(payload: bytes) -> int:
    """Return the OID in a plain Relation message; the rest of the message is not checked."""
    return int.from_bytes(payload[1:5])


def _read_block(data: bytearray, starts: Ints, ends: Ints, xid: int) -> PayloadSegment:
    """Convert the payloads of a block of transaction `xid`, or of part of one, in place: `data` becomes the segment's.

    Raises DecodeError for a message that is not allowed in a block or lacks an xid.
    """
    frames = Frames(data, starts, ends)
    try:
        return _read(frames, data, xid)
    except BrokenMessage as refused:
        raise _explained(frames.payload(refused.number), xid) from None


def _read(frames: Frames, data: bytearray, xid: int) -> PayloadSegment:
    numbers = np.arange(frames.count)
    require_fine(_ALLOWED[frames.tags], numbers)
    has_xid = frames.tags != _ORIGIN
    require_fine(~has_xid | (frames.ends - frames.starts > _XID_BYTES), numbers)
    at = frames.starts[has_xid]
    subs = np.zeros(frames.count, np.int64)
    subs[has_xid] = (frames.u32(at + 1) - xid) % _XIDS
    starts = frames.starts + np.where(has_xid, _XID_BYTES, 0)
    np.frombuffer(data, np.uint8)[starts[has_xid]] = frames.tags[has_xid]
    return PayloadSegment(data, starts, frames.ends, subs)


def _explained(payload: bytes, xid: int) -> DecodeError | InvariantBroken:
    try:
        decode_streamed(payload)
    except DecodeError as error:
        return DecodeError(f"{error.message}; in a block of transaction {xid}")
    return InvariantBroken(f"a {payload[:1]!r} message in a block of transaction {xid} was refused but is valid")


def _join(segments: Sequence[PayloadSegment]) -> PayloadSegment:
    """Concatenate consecutive segments."""
    if len(segments) == 1:
        return segments[0]
    shifts = np.cumsum([0, *(len(segment.data) for segment in segments[:-1])])
    shifted = list(zip(segments, shifts, strict=True))
    return PayloadSegment(
        bytearray().join(segment.data for segment in segments),
        np.concatenate([segment.starts + shift for segment, shift in shifted]),
        np.concatenate([segment.ends + shift for segment, shift in shifted]),
        np.concatenate([segment.subs for segment in segments]),
    )


_OVERHEAD_BYTES = 512
_PER_FRAME_BYTES = 24
_PIECE_BYTES = 4 << 20
"""Bytes per write and read: large compared to a seek, small compared to capture's memory."""
_MEMORY_BYTES = 8 << 20
_KEY_BYTES, _COUNTER_BYTES = 32, 16


@dataclass(frozen=True, slots=True)
class _Piece:
    """Messages from `first` on, in the file at `offset` if `segment` is None; `newest` is the highest sub so far.

    `is_message` is whether the last one is a logical message. `counter` is the first block's counter of its encryption.
    """

    first: int
    count: int
    newest: int
    is_message: bool
    segment: PayloadSegment | None
    offset: int = 0
    data_bytes: int = 0
    counter: bytes = b""

    @property
    def memory_bytes(self) -> int:
        if self.segment is None:
            return 0
        return len(self.segment.data) + _PER_FRAME_BYTES * self.count + _OVERHEAD_BYTES


class SpooledTransaction:
    """Messages of one transaction that have not been rolled back."""

    def __init__(self, xid: int, folder: Path) -> None:
        self.xid = xid
        self.memory_bytes = 0
        self.relations = _Relations()
        self._doubted_at: int | None = None
        """How many messages come before the first one that may have been rolled back."""
        self._folder = folder
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._pieces: list[_Piece] = []
        self._file: IO[bytes] | None = None

    @property
    def count(self) -> int:
        """Return the number of messages."""
        return self._pieces[-1].first + self._pieces[-1].count if self._pieces else 0

    @property
    def in_doubt(self) -> bool:
        """Return whether a message that is left, or was removed, may be of a subtransaction that was rolled back."""
        return self._doubted_at is not None

    @property
    def file_bytes(self) -> int:
        """Return the size of the file."""
        return 0 if self._file is None else self._file.seek(0, os.SEEK_END)

    def add(self, segment: PayloadSegment) -> None:
        """Append messages."""
        if not segment.count:
            return
        newest, is_message = int(segment.subs.max()), segment.ends_with_message
        if self._pieces:
            newest = max(newest, self._pieces[-1].newest)
        is_message = self._ends_with_message if is_message is None else is_message
        piece = _Piece(self.count, segment.count, newest, is_message, segment)
        self.memory_bytes += piece.memory_bytes
        self._pieces.append(piece)

    @property
    def _ends_with_message(self) -> bool:
        return bool(self._pieces) and self._pieces[-1].is_message

    def cut(self, sub: int) -> None:
        """Remove all messages from the first one of the subtransaction `sub` on.

        What is left is `in_doubt` if its last one is a logical message, which may be of `sub`, too, or if one comes
        directly after the first change of `sub`. An earlier doubt ends if its messages are removed.
        """
        has_message_next = False
        cut_at: tuple[int, int] | None = None
        for place in reversed(range(len(self._pieces))):
            if self._pieces[place].newest < sub:
                break  # earlier pieces do not have it either
            hits = np.flatnonzero(self._subs(self._pieces[place]) == sub)
            if hits.size:
                cut_at = place, int(hits[0])
        if cut_at is not None:
            has_message_next = self._has_message_next(*cut_at)
            self._cut_at(*cut_at)
            if self._doubted_at is not None and self.count < self._doubted_at:
                self._doubted_at = None
        if self._doubted_at is None and (has_message_next or self._ends_with_message):
            self._doubted_at = self.count

    def _has_message_next(self, place: int, first: int) -> bool:
        """Return whether a logical message comes directly after the change at `first`, before which it may have been.

        The server sorts by LSN, and that of a message is the end of its record: where the next change begins.
        """
        changes = 0
        for piece in self._pieces[place:]:
            segment = self._read(piece)
            for start in segment.starts[first:].tolist():
                if segment.data[start] in _NO_CHANGE:
                    continue
                if changes:
                    return bool(segment.data[start] == _MESSAGE)
                changes += 1
            first = 0
        return False

    def _cut_at(self, place: int, keep: int) -> None:
        dropped = self._pieces[place:]
        kept = self._read(dropped[0]).head(keep)
        del self._pieces[place:]
        self.memory_bytes -= sum(piece.memory_bytes for piece in dropped)
        if dropped[0].segment is None and self._file is not None:
            self._file.truncate(dropped[0].offset)
        self.relations.cut(dropped[0].first + keep)
        self.add(kept)

    def spill(self) -> None:
        """Move the messages in memory to the file; raises LakeUnusable if it cannot be written."""
        in_memory = [piece for piece in self._pieces if piece.segment is not None]
        del self._pieces[len(self._pieces) - len(in_memory) :]
        self.memory_bytes = 0
        group: list[_Piece] = []
        for piece in in_memory:
            group.append(piece)
            if sum(grouped.memory_bytes for grouped in group) >= _PIECE_BYTES:
                self._pieces.append(self._write(group))
                group = []
        if group:
            self._pieces.append(self._write(group))

    def _write(self, group: list[_Piece]) -> _Piece:
        segment = _join([piece.segment for piece in group if piece.segment is not None])
        try:
            if self._file is None:
                # Unbuffered: pieces are large, and closing has nothing left to write that could fail.
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  # `close` closes it
            offset, counter = self._file.seek(0, os.SEEK_END), secrets.token_bytes(_COUNTER_BYTES)
            for part in (
                _encrypted(self._key, counter, segment.data),
                *map(_packed, (segment.starts, segment.ends, segment.subs)),
            ):
                _write_all(self._file, part)
        except OSError as exc:
            raise _not_writable(self._folder, exc) from exc
        first, newest, is_message = group[0].first, group[-1].newest, group[-1].is_message
        return _Piece(first, segment.count, newest, is_message, None, offset, len(segment.data), counter)

    def _read(self, piece: _Piece) -> PayloadSegment:
        if piece.segment is not None:
            return piece.segment
        data = _encrypted(self._key, piece.counter, self._at(piece.offset, piece.data_bytes))
        numbers = self._numbers(piece, 0, 3).reshape(3, piece.count)
        return PayloadSegment(data, *numbers)

    def _subs(self, piece: _Piece) -> Ints:
        return piece.segment.subs if piece.segment is not None else self._numbers(piece, 2, 1)

    def _numbers(self, piece: _Piece, skip: int, columns: int) -> Ints:
        """Read `columns` of the arrays `starts`, `ends` and `subs`, which follow the data, from array `skip` on."""
        size = 4 * piece.count
        raw = self._at(piece.offset + piece.data_bytes + skip * size, columns * size)
        return np.frombuffer(raw, np.uint32).astype(np.int64)

    def _at(self, offset: int, size: int) -> bytes:
        assert self._file is not None  # noqa: S101  # a piece without a segment is in the file
        self._file.seek(offset)
        parts = [self._file.read(size)]
        while left := size - sum(map(len, parts)):
            if not parts[-1]:
                raise InvariantBroken(f"the spool's file has {size - left} bytes at {offset}, need {size}")
            parts.append(self._file.read(left))
        return b"".join(parts)

    def segments(self) -> Iterator[PayloadSegment]:
        """Yield all messages in order, and release each part once it is yielded."""
        pieces, self._pieces = self._pieces[::-1], []
        while pieces:
            yield self._read(pieces.pop())
        self.close()

    def close(self) -> None:
        """Release memory and file."""
        self._pieces.clear()
        self.memory_bytes = 0
        if self._file is not None:
            self._file.close()
            self._file = None


def _encrypted(key: bytes, counter: bytes, data: bytes | bytearray) -> bytes:
    """Encrypt, or decrypt, which is the same."""
    # It takes 20 ms to import, and most captures never spill.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415

    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(data)


def _packed(numbers: Ints) -> bytes:
    return numbers.astype(np.uint32).tobytes()


def _write_all(file: IO[bytes], data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _not_writable(folder: Path, problem: OSError) -> LakeUnusable:
    """Build the error for a spool folder that is not writable."""
    return LakeUnusable(
        f"spool folder {folder} cannot be written: {problem.strerror}",
        "Free space there, name another folder with --spool, or set --streaming off.",
    )


class Spool:
    """Streamed transactions in progress of one replication stream."""

    def __init__(self, folder: Path | None = None, memory_bytes: int = _MEMORY_BYTES) -> None:
        """Create an empty spool in `folder`, by default the system's temporary one; raises LakeUnusable."""
        self._folder = folder or Path(tempfile.gettempdir())
        _require_writable(self._folder)
        self._memory_bytes = memory_bytes
        self._open: dict[int, SpooledTransaction] = {}
        self._block: SpooledTransaction | None = None
        self._replay: Iterator[PayloadSegment] | None = None
        self._committed_relations: dict[int, tuple[int, bytes]] = {}
        self._epoch = 0
        self._last_source: int | None = None

    @property
    def in_block(self) -> bool:
        """Return whether a block has started and its Stream Stop has not been received."""
        return self._block is not None

    @property
    def active(self) -> bool:
        """Return whether a streamed transaction is in progress, so that plain frames must be inspected too."""
        return bool(self._open)

    @property
    def memory_used(self) -> int:
        """Return the bytes of messages in memory, including overhead."""
        return sum(transaction.memory_bytes for transaction in self._open.values())

    @property
    def file_bytes(self) -> int:
        """Return the bytes of messages in files."""
        return sum(transaction.file_bytes for transaction in self._open.values())

    def add(self, data: bytearray, starts: Ints, ends: Ints) -> None:
        """Add messages of the current block; `data` is changed and kept. Raises DecodeError."""
        assert self._block is not None  # noqa: S101  # the caller has checked `in_block`
        segment = _read_block(data, starts, ends, self._block.xid)
        for number, payload in segment.relations():
            epoch, oid = self._epoch_of(self._block.xid), _relation_oid(payload)
            self._block.relations.add(_RelationMessage(self._block.count + number, epoch, oid, payload))
        self._block.add(segment)
        while self.memory_used > self._memory_bytes:
            max(self._open.values(), key=lambda transaction: transaction.memory_bytes).spill()

    def record_relation(self, payload: bytes) -> None:
        """Record the Relation message of a plain transaction, in case transactions in progress have an older one."""
        if self._open:
            self._committed_relations[_relation_oid(payload)] = self._epoch_of(None), payload

    def _epoch_of(self, source: int | None) -> int:
        if source != self._last_source:
            self._epoch, self._last_source = self._epoch + 1, source
        return self._epoch

    def handle_boundary(self, payload: bytes) -> None:
        """Handle the start or end of a block or a transaction.

        Raises DecodeError, NotStreamed, WrongSource for two-phase commit.
        """
        message = decode(payload)
        if self.in_block and not isinstance(message, StreamStop):
            raise _misplaced(payload, f"in a block of transaction {self._block and self._block.xid}")
        match message:
            case StreamStart():
                self._start(payload, message)
            case StreamStop():
                if not self.in_block:
                    raise _misplaced(payload, "outside blocks")
                self._block = None
            case StreamAbort():
                self._abort(message)
            case StreamCommit():
                self._replay = self._committed(payload, message)
            case TwoPhase(name):
                raise _two_phase(name)
            case _:
                raise _misplaced(payload, "where a boundary is needed")

    def _start(self, payload: bytes, start: StreamStart) -> None:
        if not start.first:
            self._block = self._require_open(payload, start.xid)
        elif start.xid in self._open:
            raise _misplaced(payload, f"the first block of transaction {start.xid}, which has one already")
        else:
            self._block = self._open[start.xid] = SpooledTransaction(start.xid, self._folder)

    def _committed(self, payload: bytes, commit: StreamCommit) -> Iterator[PayloadSegment]:
        transaction = self._require_open(payload, commit.xid)
        if transaction.in_doubt:
            raise NotStreamed(
                f"transaction {commit.xid} has rolled back a savepoint, and perhaps messages that it had sent before",
                commit.end_lsn,
            )
        return self._plain(payload, transaction)

    def _abort(self, abort: StreamAbort) -> None:
        transaction = self._open.get(abort.xid)
        if transaction is None:  # PostgreSQL 18 also sends aborts of some transactions that it has not streamed
            return
        if abort.subxid == abort.xid:
            transaction.close()
            self._remove(abort.xid)
        else:
            transaction.cut((abort.subxid - abort.xid) % _XIDS)

    def _require_open(self, payload: bytes, xid: int) -> SpooledTransaction:
        if (transaction := self._open.get(xid)) is None:
            raise _misplaced(payload, f"transaction {xid}, which has no block")
        return transaction

    def _remove(self, xid: int) -> None:
        del self._open[xid]
        if not self._open:
            self._committed_relations.clear()

    def _plain(self, payload: bytes, transaction: SpooledTransaction) -> Iterator[PayloadSegment]:
        begin, commit = _plain_bounds(payload)
        yield _segment_of([begin])
        yield from transaction.segments()
        yield _segment_of([*self._superseding(transaction), commit])
        self._remove(transaction.xid)

    def _superseding(self, transaction: SpooledTransaction) -> list[bytes]:
        """Return committed Relation messages newer than this transaction's, and record its own if they are newer."""
        newer = []
        for own in transaction.relations.latest():
            epoch, payload = self._committed_relations.get(own.oid, (0, b""))
            if epoch > own.epoch:
                newer.append(payload)
            else:
                self._committed_relations[own.oid] = own.epoch, own.payload
        return newer

    def next_segment(self) -> PayloadSegment | None:
        """Return the next part of the transaction that has just committed, None without one or at its end."""
        if self._replay is None:
            return None
        segment = next(self._replay, None)
        if segment is None:
            self._replay = None
        return segment

    def close(self) -> None:
        """Drop all transactions and their files."""
        for transaction in self._open.values():
            transaction.close()
        self._open.clear()


def _require_writable(folder: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as exc:
        raise _not_writable(folder, exc) from exc


def _misplaced(payload: bytes, problem: str) -> DecodeError:
    return DecodeError(f"pgoutput message {chr(payload[0])!a} out of order: {problem}")


def _two_phase(name: str) -> WrongSource:
    return WrongSource(
        f"the slot sent a {name} message: it has two-phase commit, need a slot without",
        "Prepared transactions may have been skipped; run auditlake resync --all.",
    )
