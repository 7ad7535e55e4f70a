"""Heartbeat: a logical message that capture commits on the source at the configured interval.

It arrives through the stream like any other commit and so proves that everything before it has arrived: the lake's
currency advances with the heartbeat even if nothing else is written. It has a prefix of its own, so it is not part of
any change's context.

It is committed without waiting for a standby, because losing it loses nothing. It requires EXECUTE on
pg_logical_emit_message, which PUBLIC has unless revoked, so a read-only role can send it too.

Authority: postgresql.org/docs/current/functions-admin.html, pg_logical_emit_message
"""

import time

import psycopg

from auditlake.errors import SourceUnready
from auditlake.source.connection import NotGranted, Row, fetch

PREFIX = "auditlake.heartbeat"

_BEAT = """
select pg_catalog.set_config('synchronous_commit', 'local', true),
       pg_catalog.pg_logical_emit_message(true, 'auditlake.heartbeat', ''::text)
"""


class Heartbeat:
    """Heartbeat with an interval of `every_s` seconds; None disables it."""

    def __init__(self, every_s: float | None) -> None:
        self._every_s = every_s
        self._next_at = time.monotonic()

    @property
    def due(self) -> bool:
        """Return whether the interval has passed."""
        return self._every_s is not None and time.monotonic() >= self._next_at

    def beat(self, conn: psycopg.Connection[Row]) -> None:
        """Commit one heartbeat; raises SourceUnready if the role lacks the privilege, SourceUnreachable."""
        try:
            fetch(conn, _BEAT)
        except NotGranted as exc:
            raise SourceUnready(
                f"role {conn.info.user} cannot send heartbeats: no EXECUTE privilege on pg_logical_emit_message",
                "Run GRANT EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text, boolean) TO that role"
                " (before 17 without the last boolean), or leave heartbeat_s out of the settings.",
            ) from exc
        self._next_at = time.monotonic() + (self._every_s or 0.0)
