"""Starting a replication stream, and taking in its first bytes until somebody reads it.

libpq must not have read a byte of the stream before the socket is taken from it. So the answer to START_REPLICATION is
looked at before libpq reads it: if it is CopyBothResponse the socket is ours, if not (a refusal, or a packet of GSSAPI
encryption, which begins with a zero) libpq reads it.

Where the socket is ours a process of its own empties it (`relay`), from the first byte on: the server goes on while
what decodes its stream is being loaded, and never waits for our interpreter's lock.

Authority: postgresql.org/docs/current/protocol-replication.html, START_REPLICATION … LOGICAL
"""

import fcntl
import os
import select
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

from psycopg import pq, sql
from psycopg.pq.abc import PGconn, PGresult

from auditlake.errors import LakeConflict, WrongSource
from auditlake.lsn import Lsn
from auditlake.postgres import relay
from auditlake.postgres.connection import unreachable
from auditlake.postgres.ended import UNDECODABLE
from auditlake.postgres.streaming import Streaming

COPY_BOTH = b"W"
_PIPE_BYTES = 1 << 20


class Relay:
    """The process that receives what comes over a socket (`relay`); its pipe is read instead."""

    def __init__(self, descriptor: int) -> None:
        self._pipe, sink = os.pipe()
        with suppress(OSError):  # a smaller pipe works as well, only slower
            fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        line = [sys.executable, "-I", "-S", relay.__file__, str(descriptor), str(sink)]
        try:
            # Not of our group: what is typed at a terminal is for us, who let it go when we end.
            self._process = subprocess.Popen(
                line, pass_fds=(descriptor, sink), stdin=subprocess.DEVNULL, start_new_session=True
            )
        finally:
            os.close(sink)
        os.set_blocking(self._pipe, False)

    def fileno(self) -> int:
        """Descriptor of the pipe, which does not block."""
        return self._pipe

    def close(self) -> None:
        """Let the process end, which does not close the connection."""
        os.close(self._pipe)
        self._process.wait()


@dataclass(frozen=True, slots=True)
class Started:
    """A connection in COPY BOTH; without `relay` it is libpq that must read it."""

    pgconn: PGconn
    relay: Relay | None

    def close(self) -> None:
        """Close the connection; the walsender notices at once."""
        if self.relay is not None:
            self.relay.close()
        self.pgconn.finish()


def start_stream(pgconn: PGconn, slot: str, publication: str, start_lsn: Lsn, streaming: Streaming) -> Started:
    """Start the stream of transactions that end after `start_lsn`.

    Raises LakeConflict where somebody else reads the slot, WrongSource where the slot cannot serve it any more,
    ConfigError where the server does not know `streaming`.
    """
    options = streaming.options(pgconn.server_version) + sql.SQL(", publication_names {}, messages 'true'").format(
        sql.Literal(sql.Identifier(publication).as_string())
    )
    command = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})").format(
        sql.Identifier(slot), sql.SQL(str(start_lsn)), options
    )
    started = start_copy(pgconn, command.as_bytes())
    if not isinstance(started, Started):
        raise _not_started(slot, started)
    return started


def start_copy(pgconn: PGconn, command: bytes) -> Started | PGresult:
    """Run a command that starts COPY BOTH; a result where the server would not."""
    pgconn.send_query(command)
    if not pgconn.ssl_in_use and _answer(pgconn) == COPY_BOTH:
        return Started(pgconn, Relay(pgconn.socket))
    result = pgconn.get_result()
    if result is None:
        raise unreachable(pgconn.get_error_message())
    if result.status != pq.ExecStatus.COPY_BOTH:
        return result
    pgconn.nonblocking = 1
    return Started(pgconn, None)


def _answer(pgconn: PGconn) -> bytes:
    """First byte of the server's answer, left where it is."""
    select.select([pgconn.socket], [], [])
    with socket.socket(fileno=os.dup(pgconn.socket)) as peeking:
        return peeking.recv(1, socket.MSG_PEEK)


def _not_started(slot: str, result: PGresult) -> Exception:
    sqlstate = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    message = " ".join(result.get_error_message().split())
    if sqlstate == "55006":  # object_in_use
        return LakeConflict(
            f"slot {slot} is in use: {message}",
            "Another capture reads it; stop that one first (auditlake status shows it).",
        )
    if sqlstate in UNDECODABLE:
        return WrongSource(
            f"slot {slot} cannot serve this lake any more: {message}",
            "Changes are missing; bootstrap a new lake.",
        )
    return unreachable(message, sqlstate or None)
