"""COPY BOTH of a connection that is not encrypted, without libpq: received through a relay, sent over its socket.

Contract and authority: see `copyboth`.
"""

import os
import select
import socket
import struct
import time
from array import array
from contextlib import suppress

import numpy as np
from psycopg.pq.abc import PGconn

from auditlake.errors import AuditlakeError, SourceUnreachable
from auditlake.pgoutput.frames import Ints
from auditlake.postgres.connection import unreachable
from auditlake.postgres.copydata import NOTHING, find_frames, keepalive
from auditlake.postgres.ended import ENDED, failed
from auditlake.postgres.intake import Intake
from auditlake.postgres.starting import COPY_BOTH, Relay

_COPY_DATA, _ERROR = b"d", b"E"
_PASSED_OVER = b"NS"  # NoticeResponse, ParameterStatus
_XLOG_DATA = ord("w")
_XLOG_HEADER_BYTES = 25
_HEADER = struct.Struct(">cI")
_LENGTH_BYTES = 4
_BEFORE_FRAME = _LENGTH_BYTES + _XLOG_HEADER_BYTES
# Finding frames costs the same for few and for many: so as long as that much comes, we wait for more before we look,
# for a tenth of the time in which a walsender at full speed fills the pipe.
_MUCH_BYTES, _GATHER_S = 1 << 13, 0.004
_LEAST_BYTES, _AT_ONCE_BYTES = 1 << 12, 1 << 19


class SocketCopy:
    """COPY BOTH over the socket of a connection that libpq does not read from any more, and a relay does."""

    def __init__(self, pgconn: PGconn, relay: Relay) -> None:
        self._pgconn = pgconn
        self._relay = relay
        self._socket = socket.socket(fileno=os.dup(pgconn.socket))
        self._socket.setblocking(False)
        # Kept: to ask the system for a fresh one costs more than most reads.
        self._room = bytearray(_AT_ONCE_BYTES)
        self._view = memoryview(self._room)
        self._rest = bytearray()
        self._started = False

    def fileno(self) -> int:
        return self._relay.fileno()

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
        left = max(_LEAST_BYTES, at_once)
        try:
            size = self._receive_once(left)
            while size >= _MUCH_BYTES and (left := left - size) > 0:
                time.sleep(_GATHER_S)
                size = self._receive_once(left)
        except SourceUnreachable as exc:
            return exc
        return None

    def _receive_once(self, at_most: int) -> int:
        try:
            size = os.readv(self._relay.fileno(), [self._view[:at_most]])
        except BlockingIOError:
            return 0
        except OSError as exc:
            raise unreachable(str(exc)) from exc
        if not size:
            raise unreachable(ENDED)
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
            keepalives.append(keepalive(body))
        elif kind == _ERROR:
            raise _refused(body)
        elif kind == COPY_BOTH and not self._started:
            self._started = True
        elif kind not in _PASSED_OVER:
            raise unreachable(ENDED)

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
        with suppress(OSError):  # the server was first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._relay.close()
        self._pgconn.finish()


def _behind(found: Ints, more: "array[int]") -> Ints:
    return np.concatenate([found, np.frombuffer(more, np.int64)]) if more else found


def _refused(body: bytes) -> AuditlakeError:
    """Read an ErrorResponse: fields of a letter and a text that ends in zero."""
    fields = {field[:1]: field[1:].decode(errors="replace") for field in body.split(b"\0") if field}
    return failed(f"{fields.get(b'S', 'ERROR')}: {fields.get(b'M', 'no message')}", fields.get(b"C"))
