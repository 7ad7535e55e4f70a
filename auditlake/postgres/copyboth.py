"""COPY BOTH, the mode of a connection that streams replication: CopyData messages in, CopyData messages out.

Two readers with one contract. `SocketCopy` takes a connection's bytes straight from its socket and finds the messages
in them; libpq hands each message over in memory of its own, which costs more than decoding it. It can do so only where
nothing is encrypted; everywhere else `LibpqCopy` reads, slower and otherwise the same. `start_copy` chooses.

libpq must not have read a byte of the stream before the socket is taken from it. So the answer to START_REPLICATION is
looked at before libpq reads it: if it is CopyBothResponse the socket is ours, if not (a refusal, or a packet of GSSAPI
encryption, which begins with a zero) libpq reads it.

Both put what XLogData carries into an `Intake` and give keepalives back. `read` never waits.

Authority: postgresql.org/docs/current/protocol-message-formats.html, CopyBothResponse, CopyData, ErrorResponse
"""

import os
import select
import socket
import struct
import time
from array import array
from typing import Protocol

import numpy as np
import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from auditlake.errors import AuditlakeError, DecodeError, SourceUnreachable, WrongSource
from auditlake.pgoutput.frames import Ints
from auditlake.postgres.connection import translated_errors, unreachable
from auditlake.postgres.copydata import NOTHING, find_frames
from auditlake.postgres.intake import Intake

_XLOG_DATA, _KEEPALIVE = ord("w"), b"k"
_XLOG_HEADER_BYTES = 25
_KEEPALIVE_BYTES = 18
_COPY_IN_PROGRESS = 0

_COPY_BOTH, _COPY_DATA, _ERROR = b"W", b"d", b"E"
_PASSED_OVER = b"NS"  # NoticeResponse, ParameterStatus
_HEADER = struct.Struct(">cI")
_LENGTH_BYTES = 4
_BEFORE_FRAME = _LENGTH_BYTES + _XLOG_HEADER_BYTES
_RECEIVE_BYTES = 1 << 17
# A walsender at full speed fills a Unix socket in about a millisecond, with some 280 frames, and finding frames costs
# the same for few and for many: so as long as that much comes, we wait for more before we look.
_MUCH_BYTES, _GATHER_S, _AT_ONCE_BYTES = 1 << 13, 0.000_8, 1 << 17


class Copy(Protocol):
    """A started COPY BOTH."""

    def read(self, intake: Intake) -> list[bytes]:
        """Move what is waiting into `intake`, until that is full; give the keepalives among it."""

    def send(self, message: bytes) -> None:
        """Send one CopyData message."""

    def fileno(self) -> int:
        """Descriptor that is readable when more has come; what `read` left behind does not show in it."""

    def close(self) -> None:
        """Close the connection; the walsender notices at once."""


def start_copy(pgconn: PGconn, command: bytes) -> "SocketCopy | LibpqCopy | PGresult":
    """Run a command that starts COPY BOTH; a result where the server would not."""
    pgconn.send_query(command)
    if not pgconn.ssl_in_use and _answer(pgconn) == _COPY_BOTH:
        return SocketCopy(pgconn)
    result = pgconn.get_result()
    if result is None:
        raise unreachable(pgconn.get_error_message())
    if result.status != pq.ExecStatus.COPY_BOTH:
        return result
    pgconn.nonblocking = 1
    return LibpqCopy(pgconn)


def _answer(pgconn: PGconn) -> bytes:
    """First byte of the server's answer, left where it is."""
    select.select([pgconn.socket], [], [])
    with socket.socket(fileno=os.dup(pgconn.socket)) as peeking:
        return peeking.recv(1, socket.MSG_PEEK)


class LibpqCopy:
    """COPY BOTH through libpq."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn
        self._descriptor = pgconn.socket  # which libpq does not tell any more once the connection is lost

    def fileno(self) -> int:
        return self._descriptor

    def read(self, intake: Intake) -> list[bytes]:
        """Move what is waiting into `intake`, until that is full; give the keepalives among it."""
        lost = self._consume()
        get, keepalives = self._pgconn.get_copy_data, []
        while not intake.full:
            with translated_errors():
                length, view = get(1)
            if length <= _COPY_IN_PROGRESS:
                if length != _COPY_IN_PROGRESS:
                    raise self._ended()
                if lost is not None:
                    raise lost
                break
            if view[0] == _XLOG_DATA and length > _XLOG_HEADER_BYTES:
                data = intake.data
                data += view
                intake.add(np.array([len(data) - length + _XLOG_HEADER_BYTES]), np.array([len(data)]))
            else:
                keepalives.append(_keepalive(bytes(view)))
        return keepalives

    def _consume(self) -> SourceUnreachable | None:
        """Let libpq read; give the error where the connection is lost, because what came before it is still there."""
        try:
            self._pgconn.consume_input()
        except psycopg.OperationalError as exc:
            return unreachable(str(exc))
        return None

    def _ended(self) -> AuditlakeError:
        result = self._pgconn.get_result()
        if result is None:
            return unreachable(self._pgconn.get_error_message() or _ENDED)
        sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE)
        return _failed(result.get_error_message() or _ENDED, sqlstate.decode() if sqlstate else None)

    def send(self, message: bytes) -> None:
        """Send one CopyData message."""
        with translated_errors():
            self._pgconn.put_copy_data(message)
            while self._pgconn.flush():
                select.select([], [self], [])

    def close(self) -> None:
        """Close the connection; the walsender notices at once."""
        self._pgconn.finish()


class SocketCopy:
    """COPY BOTH over the socket of a connection that libpq does not read from any more."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn
        self._socket = socket.socket(fileno=os.dup(pgconn.socket))
        self._socket.setblocking(False)
        # Kept: to ask the system for a fresh one costs more than most reads.
        self._room = bytearray(_RECEIVE_BYTES)
        self._view = memoryview(self._room)
        self._rest = bytearray()
        self._started = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self, intake: Intake) -> list[bytes]:
        """Move what is waiting into `intake`, until that is full; give the keepalives among it."""
        keepalives: list[bytes] = []
        if intake.full:
            return keepalives
        # Little beside what the buffer still takes, so that its limits are kept.
        lost = self._receive(min(_AT_ONCE_BYTES, intake.room_bytes // 4))
        self._take(intake, keepalives)
        if lost is not None:
            raise lost
        return keepalives

    def _receive(self, at_once: int) -> SourceUnreachable | None:
        """Receive what is waiting, and while much of it comes what comes next; gives the error where none can come.

        What came before the connection was lost is still to be taken, and may say why.
        """
        enough = len(self._rest) + at_once
        try:
            size = self._receive_once()
            while size >= _MUCH_BYTES and len(self._rest) < enough:
                if size < _RECEIVE_BYTES:
                    time.sleep(_GATHER_S)
                size = self._receive_once()
        except SourceUnreachable as exc:
            return exc
        return None

    def _receive_once(self) -> int:
        try:
            size = self._socket.recv_into(self._room)
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise unreachable(str(exc)) from exc
        if not size:
            raise unreachable(_ENDED)
        self._rest += self._view[:size]
        return size

    def _take(self, intake: Intake, keepalives: list[bytes]) -> None:
        """Move the whole messages of what was received, all at once, and note where each of them lies."""
        rest = self._rest
        found = find_frames(rest) if self._is_whole(0) else NOTHING
        starts, ends, at = array("q"), array("q"), found.rest
        while self._is_whole(at):
            kind, length = _HEADER.unpack_from(rest, at)
            end = at + 1 + length
            if kind == _COPY_DATA and length > _BEFORE_FRAME and rest[at + _HEADER.size] == _XLOG_DATA:
                starts.append(at + 1 + _BEFORE_FRAME)
                ends.append(end)
            else:
                self._other(kind, bytes(rest[at + _HEADER.size : end]), keepalives)
            at = end
        data = intake.data
        already = len(data)
        data += memoryview(rest)[:at]
        del rest[:at]
        intake.add(_behind(found.starts, starts) + already, _behind(found.ends, ends) + already)

    def _is_whole(self, at: int) -> bool:
        """Whether the message that begins there has been received to its end."""
        rest = self._rest
        return len(rest) >= at + _HEADER.size and len(rest) > at + _HEADER.unpack_from(rest, at)[1]

    def _other(self, kind: bytes, body: bytes, keepalives: list[bytes]) -> None:
        """Take a message that holds no frame."""
        if kind == _COPY_DATA:
            keepalives.append(_keepalive(body))
        elif kind == _ERROR:
            raise _refused(body)
        elif kind == _COPY_BOTH and not self._started:
            self._started = True
        elif kind not in _PASSED_OVER:
            raise unreachable(_ENDED)

    def send(self, message: bytes) -> None:
        """Send one CopyData message."""
        left = memoryview(_HEADER.pack(_COPY_DATA, _LENGTH_BYTES + len(message)) + message)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                select.select([], [self._socket], [])
            except OSError as exc:
                raise unreachable(str(exc)) from exc

    def close(self) -> None:
        """Close the connection; the walsender notices at once."""
        self._socket.close()
        self._pgconn.finish()


def _behind(found: Ints, more: "array[int]") -> Ints:
    return np.concatenate([found, np.frombuffer(more, np.int64)]) if more else found


def _keepalive(message: bytes) -> bytes:
    """See that a message without a frame is a keepalive."""
    if message[:1] != _KEEPALIVE or len(message) != _KEEPALIVE_BYTES:
        raise DecodeError(f"unknown replication message {message[:1]!r} of {len(message)} bytes, need 'w' or 'k'")
    return message


def _refused(body: bytes) -> AuditlakeError:
    """Read an ErrorResponse: fields of a letter and a text that ends in zero."""
    fields = {field[:1]: field[1:].decode(errors="replace") for field in body.split(b"\0") if field}
    return _failed(f"{fields.get(b'S', 'ERROR')}: {fields.get(b'M', 'no message')}", fields.get(b"C"))


def _failed(message: str, sqlstate: str | None) -> AuditlakeError:
    """Tell a stream that broke from one that can go no further, whoever reads it."""
    if sqlstate not in UNDECODABLE:
        return unreachable(message, sqlstate)
    return WrongSource(f"the slot can be read no further: {' '.join(message.split())}", "Bootstrap a new lake.")


UNDECODABLE = ("42704", "55000")
"""undefined_object: its publication is gone; object_not_in_prerequisite_state: the slot was invalidated."""
_ENDED = "the server ended the replication stream"
