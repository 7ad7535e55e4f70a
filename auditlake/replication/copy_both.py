"""COPY BOTH: read CopyData messages of a replication connection through libpq, and send ours.

`read` moves the payload of every waiting XLogData message into an `Intake` and returns the keepalives; it never waits.
It returns when nothing is left in the socket, or when the intake is full.

On a plain connection `PQconsumeInput` reads what the socket has. Over TLS the walsender sends every message in a
record of its own, and `PQconsumeInput` reads one record. So `read` calls it until the socket is empty, and once more:
bytes for which libpq had no room stay inside OpenSSL, where select does not see them.

libpq hands over each message in memory of its own. A reader of the bare socket with a process that empties it needed
26 % less CPU time and 7 % more elapsed time on plain connections, and could not serve TLS (`bench/transport.py`,
300,000 transactions, 2026-11); that did not justify a second implementation of the protocol.

Authority: postgresql.org/docs/current/protocol-message-formats.html, CopyBothResponse, CopyData;
protocol-replication.html, XLogData; libpq-async.html, PQconsumeInput
"""

import select
from enum import IntEnum

import numpy as np
import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from auditlake.errors import AuditlakeError, DecodeError, SourceUnreachable
from auditlake.replication.frame_router import Intake
from auditlake.replication.start import ENDED, failed
from auditlake.source.connection import translated_errors
from auditlake.source.refusals import unreachable

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
    """A connection in COPY BOTH, non-blocking."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn
        self._descriptor = pgconn.socket  # libpq does not return it after the connection is lost
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
        frames, known, ahead = list[memoryview](), _Socket.UNKNOWN, 0
        room = min(_MOST_BYTES, intake.room_bytes // 4)
        try:
            while room >= 0 and len(frames) < _MOST_FRAMES:
                if ahead:
                    consume()
                    ahead -= 1
                length, message = get(1)
                if length > _XLOG_HEADER_BYTES:
                    frames.append(message)
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
                _add(intake, frames)
        return True

    def _receive(self, known: _Socket) -> _Socket:
        """Let libpq read without waiting.

        Raises SourceUnreachable if the connection is lost and every message received before was returned.
        """
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
        sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE)
        return failed(result.get_error_message() or ENDED, sqlstate.decode() if sqlstate else None)

    def send(self, message: bytes) -> None:
        """Send one CopyData message."""
        with translated_errors():
            self._pgconn.put_copy_data(message)
            while self._pgconn.flush():
                select.select([], [self], [])

    def close(self) -> None:
        """Close the connection; the walsender notices at once."""
        self._pgconn.finish()


def _add(intake: Intake, messages: list[memoryview]) -> None:
    """Append XLogData messages to the intake's data, and their payloads as frames."""
    data = intake.data
    ends = np.cumsum([len(data), *map(len, messages)])
    data += b"".join(messages)
    starts, ends = ends[:-1], ends[1:]
    kinds = np.frombuffer(data, np.uint8)[starts]
    if (kinds != _XLOG_DATA).any():
        _keepalive(bytes(messages[int(np.argmax(kinds != _XLOG_DATA))]))  # raises: it is longer than one
    del kinds
    intake.add(starts + _XLOG_HEADER_BYTES, ends)


def _keepalive(message: bytes) -> bytes:
    """Require that a message without a frame is a keepalive."""
    if message[:1] != _KEEPALIVE or len(message) != _KEEPALIVE_BYTES:
        raise DecodeError(f"unknown replication message {message[:1]!r} of {len(message)} bytes, need 'w' or 'k'")
    return message
