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
from typing import Protocol

from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from auditlake.postgres.connection import unreachable
from auditlake.postgres.intake import Intake
from auditlake.postgres.libpqcopy import LibpqCopy
from auditlake.postgres.socketcopy import COPY_BOTH, SocketCopy


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


def start_copy(pgconn: PGconn, command: bytes) -> SocketCopy | LibpqCopy | PGresult:
    """Run a command that starts COPY BOTH; a result where the server would not."""
    pgconn.send_query(command)
    if not pgconn.ssl_in_use and _answer(pgconn) == COPY_BOTH:
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
