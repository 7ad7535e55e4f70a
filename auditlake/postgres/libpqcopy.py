"""COPY BOTH read by libpq, which hands each message over in memory of its own: works for every connection.

Contract and authority: see `copyboth`.
"""

import select

import numpy as np
import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from auditlake.errors import AuditlakeError, SourceUnreachable
from auditlake.postgres.connection import translated_errors, unreachable
from auditlake.postgres.copydata import keepalive
from auditlake.postgres.ended import ENDED, failed
from auditlake.postgres.intake import Intake

_XLOG_DATA = ord("w")
_XLOG_HEADER_BYTES = 25
_COPY_IN_PROGRESS = 0


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
                keepalives.append(keepalive(bytes(view)))
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
