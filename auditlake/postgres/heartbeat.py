"""The heartbeat: a logical message that capture itself commits on the source, again and again, where that is asked for.

It comes back through the stream as any other commit, and so shows that everything before it is here: how current the
lake is known to be follows the heartbeat also where nothing else is written. Its prefix is its own, so it says nothing
about anybody's changes.

It is committed without waiting for a standby, because nothing is lost with it. It needs the right to execute
pg_logical_emit_message, which everybody has unless it was taken away; a role that may only read has it too.

Authority: postgresql.org/docs/current/functions-admin.html, pg_logical_emit_message
"""

import time

import psycopg

from auditlake.errors import SourceUnready
from auditlake.postgres.connection import Row, fetch

PREFIX = "auditlake.heartbeat"

_BEAT = """
select pg_catalog.set_config('synchronous_commit', 'local', true),
       pg_catalog.pg_logical_emit_message(true, 'auditlake.heartbeat', ''::text)
"""


class Heartbeat:
    """Beats every `every_s` seconds, never where that is None."""

    def __init__(self, every_s: float | None) -> None:
        self._every_s = every_s
        self._next_at = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return self._every_s is not None and time.monotonic() >= self._next_at

    def beat(self, conn: psycopg.Connection[Row]) -> None:
        """Commit one.

        Raises SourceUnready where the role may not, SourceUnreachable.
        """
        try:
            fetch(conn, _BEAT)
        except psycopg.errors.InsufficientPrivilege as exc:
            raise SourceUnready(
                f"role {conn.info.user} may not write a heartbeat: it cannot execute pg_logical_emit_message",
                "Run GRANT EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text, boolean) TO that role"
                " (before 17 without the last boolean), or leave heartbeat_s out of the settings.",
            ) from exc
        self._next_at = time.monotonic() + (self._every_s or 0.0)
