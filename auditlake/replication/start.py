"""Start a replication stream: the command, the timeouts, and why a stream cannot start or ends.

A stream that broke can be started again (SourceUnreachable). One whose slot was invalidated, whose publication is gone,
that has a character without an equivalent in UTF-8, a row on which a row filter fails, or a change that is too large,
cannot be read any further (WrongSource): the server decodes the same change with the catalog of then, each time.

PostgreSQL (at least 16 and 18) fails to stream some transactions that change a table in a savepoint, roll it back, and
change the table again: "could not map filenumber … to relation OID", each time, whether the table is published or not.
So any error of a stream whose reason is not known is `NotStreamed`: without streaming, the server sends them.

A walsender terminates a connection without a status update for `wal_sender_timeout`. We send three times as many,
because one may be delayed or wait in a buffer. In turn we close a connection on which the server is silent for the same
time although a reply was requested: a network that drops all packets reports no error.

Authority: postgresql.org/docs/current/protocol-replication.html, START_REPLICATION … LOGICAL; errcodes-appendix.html;
runtime-config-replication.html, wal_sender_timeout, wal_receiver_timeout
"""

from dataclasses import dataclass
from typing import LiteralString, cast

import psycopg
from psycopg import pq, sql
from psycopg.pq.abc import PGresult

from auditlake.errors import AuditlakeError, LakeConflict, SourceAway, WrongSource
from auditlake.lsn import Lsn
from auditlake.settings.streaming_mode import NotStreamed, Streaming
from auditlake.source.connection import FINAL_STATES, PASSING_STATES, Row, fetch, fetch_one, unreachable

UNDECODABLE = ("42704", "55000")
"""undefined_object: its publication is gone; object_not_in_prerequisite_state: the slot was invalidated."""
_UNTRANSLATABLE = ("22021", "22P05")
"""character_not_in_repertoire, untranslatable_character: the server cannot convert a value to UTF-8."""
_DATA_EXCEPTION = "22"
"""Class of errors that a value causes, and may be quoted in: of a function in a row filter."""
_LIMIT_EXCEEDED, _TOO_MUCH_MEMORY = "54", "invalid memory alloc request size"
"""Class of limits of the server, and its internal error, which is not translated, for more than 1 GB of memory."""
_PASSING = (*PASSING_STATES, "57014")
"""States of errors that pass: query_canceled, which an operator may send to a walsender, too."""
_OBJECT_IN_USE = "55006"
ENDED = "the server ended the replication stream"


def start_stream(
    replication: psycopg.Connection[Row], slot: str, publication: str, start_lsn: Lsn, streaming: Streaming
) -> None:
    """Start the stream of transactions that end after `start_lsn`; the connection is then in COPY BOTH, non-blocking.

    Raises LakeConflict if another process reads the slot, WrongSource if the slot can no longer serve this lake,
    ConfigError if the server does not support `streaming`.
    """
    pgconn = replication.pgconn
    options = streaming.options(pgconn.server_version) + sql.SQL(", publication_names {}, messages 'true'").format(
        sql.Literal(sql.Identifier(publication).as_string())
    )
    command = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})").format(
        sql.Identifier(slot), sql.SQL(str(start_lsn)), options
    )
    result = pgconn.exec_(_SESSION.encode())
    if pgconn.status != pq.ConnStatus.BAD:
        result = pgconn.exec_(command.as_bytes())
    if result.status != pq.ExecStatus.COPY_BOTH:
        raise _not_started(slot, result)


def _not_started(slot: str, result: PGresult) -> Exception:
    sqlstate = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    message = " ".join(result.get_error_message().split())
    if sqlstate == _OBJECT_IN_USE:
        return LakeConflict(
            f"slot {slot} is in use: {message}",
            "Another capture reads it; stop that one first (auditlake status shows it).",
        )
    if sqlstate in UNDECODABLE:
        return WrongSource(
            f"slot {slot} cannot serve this lake any more: {message}",
            "Changes are missing. Run auditlake resync --all.",
        )
    return unreachable(message, sqlstate or None)


def stream_failure(message: str, sqlstate: str | None, *, is_streaming: bool) -> AuditlakeError:
    """Return the error for a started stream that ended: it broke, cannot be streamed, or can be read no further.

    `is_streaming`: it was to have transactions in progress.
    """
    what, first = " ".join(message.split()), ""
    lost = "drop the slot with pg_drop_replication_slot: the change stays in the log. "
    if sqlstate in _UNTRANSLATABLE:
        first = f"Replace the value at the source, or delete its row, and {lost}"
    elif sqlstate and sqlstate.startswith(_DATA_EXCEPTION):
        what = f"a row filter of the publication fails on a row, SQLSTATE {sqlstate}"
        first = f"Publish its table without a filter, or with one that cannot fail, and {lost}"
    elif sqlstate and (sqlstate.startswith(_LIMIT_EXCEEDED) or _TOO_MUCH_MEMORY in what):
        what = f"a change is larger than the server can send: {what}"
        first = f"Delete the row, or shorten its values, and {lost}"
    elif sqlstate not in UNDECODABLE:
        return _unexplained(what, sqlstate, is_streaming=is_streaming)
    return WrongSource(f"the slot can be read no further: {what}", f"{first}Run auditlake resync --all.")


def _unexplained(message: str, sqlstate: str | None, *, is_streaming: bool) -> AuditlakeError:
    if sqlstate is None or sqlstate.startswith(_PASSING):
        return unreachable(message, sqlstate)
    if is_streaming:
        return NotStreamed(f"the server failed to stream its log: {message}")
    if sqlstate.startswith(FINAL_STATES):
        return unreachable(message, sqlstate)
    return SourceAway(
        f"the server failed to decode its log: {message}",
        "Look into the server's log. If this stays, drop the slot with pg_drop_replication_slot: the change stays in "
        "the log. Run auditlake resync --all.",
    )


_SESSION: LiteralString = """
select pg_catalog.set_config(name, value, false)
  from (values ('wal_sender_timeout', '5s'), ('debug_logical_replication_streaming', 'buffered')) as ours (name, value)
  join pg_catalog.pg_settings using (name)
 where source in ('database', 'user', 'database user')
   and case name when 'wal_sender_timeout' then setting::int between 1 and 4999 else setting <> value end
"""
"""The owner of a database may set 1 ms for the timeout, which would end every stream, or `immediate`: the server sends
each change of a transaction as a stream of its own then, and 30,000 changes took it minutes."""
_TIMEOUT = "select setting::int from pg_catalog.pg_settings where name = 'wal_sender_timeout'"
_LONGEST_STATUS_S = 5.0
# The default of wal_receiver_timeout, for a server whose wal_sender_timeout is off.
_SILENCE_S = 60.0
_SLOT_FREE_S = 30.0
_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Status interval, silence after which we give up, and time in which a dead reader's slot becomes free."""

    status_s: float
    silence_s: float
    slot_free_s: float


def timeouts_of(timeout_s: float) -> Timeouts:
    """Derive the timeouts from `wal_sender_timeout` in seconds; 0 disables it."""
    if timeout_s <= 0:
        return Timeouts(_LONGEST_STATUS_S, _SILENCE_S, _SLOT_FREE_S)
    return Timeouts(min(_LONGEST_STATUS_S, timeout_s / 3), timeout_s, max(_SLOT_FREE_S, timeout_s + _MARGIN_S))


def read_timeouts(conn: psycopg.Connection[Row]) -> Timeouts:
    """Read the server's `wal_sender_timeout`, as set for this role, and derive the timeouts; 5 s at least."""
    fetch(conn, _SESSION)
    return timeouts_of(cast("int", fetch_one(conn, _TIMEOUT)[0]) / 1000)
