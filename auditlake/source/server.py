"""Server identity, end of the write-ahead log, and clock.

The identity is read by functions of SQL, which any role may call by default. A hardened or managed server may not offer
them: then a replication connection tells the same, for which the role needs REPLICATION.

Authority: postgresql.org/docs/current/protocol-replication.html, IDENTIFY_SYSTEM; functions-admin.html, "Backup
Control"
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import psycopg

from auditlake.errors import SourceAway, SourceUnreachable, SourceUnready
from auditlake.lsn import Lsn
from auditlake.source.connection import NotGranted, Row, fetch_one, for_other_machines, identify_system, lsn_in_lake
from auditlake.sql_names import display_identifier

_LONG_PAGE_HEADER_BYTES = 40
_XID_BITS = 0xFFFF_FFFF

# The control file has a new timeline only after the next checkpoint; the name of a WAL file has it at once.
_IDENTITY = """
select (select system_identifier from pg_catalog.pg_control_system())::text,
       case when pg_catalog.pg_is_in_recovery()
            then (select timeline_id from pg_catalog.pg_control_checkpoint())
            else ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int
       end,
       pg_catalog.current_database()::text,
       pg_catalog.pg_is_in_recovery()
"""

_WITHOUT_FUNCTIONS = """
select pg_catalog.current_database()::text, pg_catalog.pg_is_in_recovery()
"""
_NOT_OFFERED = (
    NotGranted,
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.UndefinedFunction,
)

_WAL_END = """
select pg_catalog.pg_current_wal_insert_lsn()::text,
       pg_catalog.current_setting('wal_block_size')::int,
       (extract(epoch from pg_catalog.clock_timestamp()) * 1000000)::bigint
"""


_SNAPSHOT = "select pg_catalog.pg_current_snapshot()::text"
_CLOCK = "select extract(epoch from pg_catalog.clock_timestamp())::float8"


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Identity of a source: cluster, timeline and database; a standby is `in_recovery`."""

    system_identifier: str
    timeline: int
    database: str
    in_recovery: bool


@dataclass(frozen=True, slots=True)
class WalEnd:
    """End of the log: every commit record that starts before `lsn` existed at `time_us` (since 1970)."""

    lsn: Lsn
    time_us: int


def identify(conn: psycopg.Connection[Row]) -> ServerIdentity:
    """Read the identity of cluster and database; raises SourceUnready without the functions or replication."""
    try:
        with conn.transaction():  # one that is open can go on after a refusal
            system, timeline, database, in_recovery = fetch_one(conn, _IDENTITY)
    except _NOT_OFFERED as exc:
        system, timeline = _identify_by_walsender(conn, exc)
        database, in_recovery = fetch_one(conn, _WITHOUT_FUNCTIONS)
    return ServerIdentity(str(system), cast("int", timeline), str(database), in_recovery=bool(in_recovery))


def _identify_by_walsender(conn: psycopg.Connection[Row], refused: NotGranted | psycopg.Error) -> tuple[str, int]:
    reason = refused.message if isinstance(refused, NotGranted) else refused.diag.message_primary
    try:
        return identify_system(for_other_machines("", conn))
    except (SourceUnready, SourceUnreachable) as exc:
        if isinstance(exc, SourceAway):
            raise
        raise SourceUnready(
            f"role {conn.info.user} can read the server's identity neither by SQL ({reason})"
            f" nor by a replication connection: {exc.message}",
            f"Run GRANT EXECUTE ON FUNCTION pg_control_system(), pg_walfile_name(pg_lsn) TO"
            f" {display_identifier(conn.info.user)}, or give the role REPLICATION.",
        ) from exc


def wal_end(conn: psycopg.Connection[Row]) -> WalEnd:
    """Read the end of the log and the server's clock, in that order.

    The insert position is after the header of an empty page, but a walsender reports the end of the last record, which
    is then the start of the page. Such a position is moved back; otherwise a stream would never reach it.
    """
    text, block_size, time_us = fetch_one(conn, _WAL_END)
    lsn = Lsn.parse(str(text))
    into_page = lsn % cast("int", block_size)
    end = lsn - into_page if into_page <= _LONG_PAGE_HEADER_BYTES else lsn
    return WalEnd(lsn_in_lake(conn, end), cast("int", time_us))


def write_wal_record(conn: psycopg.Connection[Row]) -> None:
    """Write one WAL record, so that the end of an idle server's log moves; nothing if the role may not."""
    with suppress(psycopg.errors.InsufficientPrivilege):
        conn.execute("select pg_catalog.pg_logical_emit_message(false, 'auditlake', '')")


def are_visible(conn: psycopg.Connection[Row], xids: npt.NDArray[np.uint32]) -> bool:
    """Return whether a query sees these transactions, whose commits a walsender has sent.

    It sends a commit that is on the disk. Queries see it when its backend continues, under synchronous replication
    after a standby's answer.
    """
    (text,) = fetch_one(conn, _SNAPSHOT)
    _, end, running = str(text).split(":")
    before_end = (np.uint32(int(end) & _XID_BITS) - xids).view(np.int32) > 0  # xids wrap around
    unseen = np.array([int(xid) & _XID_BITS for xid in running.split(",") if xid], np.uint32)
    return bool(before_end.all()) and not np.isin(xids, unseen).any()


def clock_skew_s(conn: psycopg.Connection[Row]) -> float:
    """Return how far the server's clock is ahead of ours, exact to half a round trip."""
    before_s = time.time()
    (server_s,) = fetch_one(conn, _CLOCK)
    return cast("float", server_s) - (before_s + time.time()) / 2
