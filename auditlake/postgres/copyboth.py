"""COPY BOTH, the mode of a connection that streams replication: CopyData messages in, CopyData messages out.

Two readers with one contract. `SocketCopy` takes a connection's bytes straight from its socket and finds the messages
in them; libpq hands each message over in memory of its own, which costs more than decoding it. It can do so only where
nothing is encrypted; everywhere else `LibpqCopy` reads, slower and otherwise the same. `starting` has found out which.

Both put what XLogData carries into an `Intake` and give keepalives back. `read` never waits.

Authority: postgresql.org/docs/current/protocol-message-formats.html, CopyBothResponse, CopyData, ErrorResponse
"""

from typing import Protocol

from auditlake.postgres.intake import Intake
from auditlake.postgres.libpqcopy import LibpqCopy
from auditlake.postgres.socketcopy import SocketCopy
from auditlake.postgres.starting import Started


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


def open_copy(started: Started) -> Copy:
    """Go on with a connection in COPY BOTH from its first byte."""
    if started.relay is None:
        return LibpqCopy(started.pgconn)
    return SocketCopy(started.pgconn, started.relay)
