"""Streaming of large transactions in progress: options of START_REPLICATION and protocol version.

`on` and `parallel` produce the same changes; `parallel` adds LSN and time of rollbacks, for subscribers that apply
transactions in parallel.

On by default: a 1 M-row transaction is durable sooner after its commit (4.9 s instead of 6.6), because only decoding
remains then. Catching up is no slower, because the server does not spill the transaction to its disk
(bench/streaming.py).

Authority: postgresql.org/docs/current/protocol-logical-replication.html, proto_version and streaming
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from auditlake.errors import ConfigError, SourceAway
from auditlake.lsn import Lsn

if TYPE_CHECKING:  # the settings import this module, and most commands never connect
    from psycopg import sql

StreamingMode = Literal["off", "on", "parallel"]

_VERSION = 10_000
_NEWEST_PROTOCOL = 4
_PROTOCOL_OF = {13: 1, 14: 2, 15: 3}
_PARALLEL_SINCE = 16


class NotStreamed(SourceAway):
    """A transaction in progress cannot be streamed; without streaming, the server can send it after its commit.

    Its messages may have been rolled back, which the server omits then; or the server fails while it decodes it. A
    transaction whose commit ends at `end_lsn`; None if that is not known.
    """

    def __init__(self, message: str, end_lsn: Lsn | None = None) -> None:
        super().__init__(message)
        self.end_lsn = end_lsn


@dataclass(frozen=True, slots=True)
class Streaming:
    """Streaming mode, and the folder of the spool (None: the system's temporary folder)."""

    mode: StreamingMode = "on"
    spool: Path | None = None

    def options(self, server_version: int) -> "sql.Composed":
        """Return options of START_REPLICATION for libpq's `server_version`; raises ConfigError if it lacks the mode."""
        from psycopg import sql  # noqa: PLC0415 - as above

        major = server_version // _VERSION
        if self.mode == "parallel" and major < _PARALLEL_SINCE:
            raise ConfigError(
                f"streaming is parallel, which PostgreSQL {major} does not support, need {_PARALLEL_SINCE} or later",
                "Set streaming to on.",
            )
        version = str(_PROTOCOL_OF.get(major, _NEWEST_PROTOCOL))
        options = sql.SQL("proto_version {}").format(version)
        return options if self.mode == "off" else options + sql.SQL(", streaming {}").format(self.mode)
