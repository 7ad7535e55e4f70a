"""Streaming of large transactions in progress: how it is asked for, and the protocol version that knows of it.

`on` and `parallel` give the same changes; `parallel` adds when and where a rollback was, which is for subscribers that
apply transactions side by side.

On by default: a 1 M-row transaction is durable sooner after its commit (4.9 s instead of 6.6), because only decoding
is left to do then; and catching up is no slower, as the server need not keep it on its disk meanwhile
(bench/streaming.py).

Authority: postgresql.org/docs/current/protocol-logical-replication.html, proto_version and streaming
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from auditlake.errors import ConfigError

if TYPE_CHECKING:  # the settings name the mode, and most commands never connect
    from psycopg import sql

StreamingMode = Literal["off", "on", "parallel"]

_VERSION = 10_000
_NEWEST_PROTOCOL = 4
_PROTOCOL_OF = {13: 1, 14: 2, 15: 3}
_PARALLEL_SINCE = 16


@dataclass(frozen=True, slots=True)
class Streaming:
    """Whether transactions are streamed while they run, and the folder of their spool (None: the system's)."""

    mode: StreamingMode = "on"
    spool: Path | None = None

    def options(self, server_version: int) -> "sql.Composed":
        """Spell the options of START_REPLICATION; `server_version` is libpq's number.

        Raises ConfigError where the server does not know the mode.
        """
        from psycopg import sql  # noqa: PLC0415 - as above

        major = server_version // _VERSION
        if self.mode == "parallel" and major < _PARALLEL_SINCE:
            raise ConfigError(
                f"streaming is parallel, which PostgreSQL {major} does not know, need {_PARALLEL_SINCE} or later",
                "Set streaming to on.",
            )
        version = str(_PROTOCOL_OF.get(major, _NEWEST_PROTOCOL))
        asked = sql.SQL("proto_version {}").format(version)
        return asked if self.mode == "off" else asked + sql.SQL(", streaming {}").format(self.mode)
