"""The replication slot: its state, who reads it, its removal; `creation` makes one.

Authority: postgresql.org/docs/current/protocol-replication.html, CREATE_REPLICATION_SLOT;
view-pg-replication-slots.html
"""

from dataclasses import dataclass
from typing import Any, cast

import psycopg
from psycopg import pq, sql
from psycopg.pq.abc import PGconn

from auditlake.errors import SourceUnready
from auditlake.lsn import Lsn
from auditlake.postgres.connection import Row, fetch

# Whole rows, because every version has columns of its own. A standby has no end of the log but what it has replayed.
_SLOT = """
select pg_catalog.to_jsonb(s),
       pg_catalog.pg_wal_lsn_diff(here.wal_end, s.restart_lsn)::bigint, here.wal_end::text
  from pg_catalog.pg_replication_slots s,
       (select case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()
                    else pg_catalog.pg_current_wal_lsn() end as wal_end) here
 where s.slot_name = %s
"""

_READER = """
select a.pid, coalesce(a.application_name::text, ''), coalesce(a.client_addr::text, 'a local socket'),
       a.backend_start::text, r.reply_time::text
  from pg_catalog.pg_replication_slots s
  join pg_catalog.pg_stat_activity a on a.pid = s.active_pid
  left join pg_catalog.pg_stat_replication r on r.pid = a.pid
 where s.slot_name = %s
"""


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as pg_replication_slots shows it; `plugin` and `database` are None for a physical slot.

    `wal_end` is the end of the server's log at that moment, `safe_wal_bytes` what may still be written before the slot
    is lost (None: no limit). `failover` and `synced` are None before version 17, which knows neither. `invalidation`
    says why the slot can never be read again, where the server knows it. With `two_phase` it sends what is prepared at
    PREPARE (version 14 and later).
    """

    plugin: str | None
    database: str | None
    temporary: bool
    two_phase: bool
    active_pid: int | None
    confirmed_flush_lsn: Lsn | None
    restart_lsn: Lsn | None
    wal_status: str | None
    retained_bytes: int | None
    safe_wal_bytes: int | None
    failover: bool | None
    synced: bool | None
    invalidation: str | None
    wal_end: Lsn

    @property
    def lost(self) -> bool:
        """Whether PostgreSQL has given the slot up."""
        return self.wal_status == "lost" or self.invalidation is not None


@dataclass(frozen=True, slots=True)
class SlotReader:
    """Who reads a slot now; `spoke_at` is when it last reported, None where we may not know."""

    pid: int
    application: str
    address: str
    since: str
    spoke_at: str | None

    def __str__(self) -> str:
        since = self.since.split(".")[0]
        return f"pid {self.pid} ({self.application or 'without a name'}, from {self.address}, since {since})"

    def is_same(self, other: "SlotReader | None") -> bool:
        """Whether both are one session."""
        return other is not None and (self.pid, self.since) == (other.pid, other.since)

    def spoke_since(self, earlier: "SlotReader | None") -> bool:
        """Whether this is the reader of `earlier` and it has reported since: its client lives."""
        return self.is_same(earlier) and earlier is not None and self.spoke_at != earlier.spoke_at


def read_slot(conn: psycopg.Connection[Row], name: str) -> SlotState | None:
    """Read a slot; None where there is none of that name."""
    rows = fetch(conn, _SLOT, name)
    if not rows:
        return None
    row, retained, wal_end = rows[0]
    slot = cast("dict[str, Any]", row)
    confirmed, restart = slot["confirmed_flush_lsn"], slot["restart_lsn"]
    return SlotState(
        plugin=slot["plugin"],
        database=slot["database"],
        temporary=slot["temporary"],
        two_phase=slot.get("two_phase", False),
        active_pid=slot["active_pid"],
        confirmed_flush_lsn=None if confirmed is None else Lsn.parse(confirmed),
        restart_lsn=None if restart is None else Lsn.parse(restart),
        wal_status=slot["wal_status"],
        retained_bytes=cast("int | None", retained),
        safe_wal_bytes=slot["safe_wal_size"],
        failover=slot.get("failover"),
        synced=slot.get("synced"),
        invalidation=slot.get("invalidation_reason") or ("conflict" if slot.get("conflicting") else None),
        wal_end=Lsn.parse(str(wal_end)),
    )


def read_reader(conn: psycopg.Connection[Row], name: str) -> SlotReader | None:
    """Read who reads a slot; None where nobody does."""
    rows = fetch(conn, _READER, name)
    if not rows:
        return None
    pid, application, address, since, spoke_at = rows[0]
    return SlotReader(cast("int", pid), str(application), str(address), str(since), cast("str | None", spoke_at))


def end_reader(conn: psycopg.Connection[Row], reader: SlotReader) -> None:
    """End the session of a reader of our own role."""
    fetch(
        conn,
        "select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity"
        " where pid = %s and backend_start = %s::timestamptz",
        reader.pid,
        reader.since,
    )


def drop_slot(conn: psycopg.Connection[Row], name: str) -> bool:
    """Drop a slot; False where there was none."""
    if read_slot(conn, name) is None:
        return False
    conn.execute("select pg_catalog.pg_drop_replication_slot(%s)", (name,))
    return True


def alter_failover(replication: PGconn, name: str, *, failover: bool) -> None:
    """Have standbys keep a copy of a slot, or not (17 and later).

    Raises SourceUnready where PostgreSQL does not allow it, or somebody reads the slot.
    """
    options = b" (FAILOVER true)" if failover else b" (FAILOVER false)"
    result = replication.exec_(b"ALTER_REPLICATION_SLOT " + sql.Identifier(name).as_bytes() + options)
    if result.status != pq.ExecStatus.COMMAND_OK:
        line = " ".join(replication.get_error_message().split())
        raise SourceUnready(
            f"slot {name} cannot be made {'a' if failover else 'no'} failover slot: {line}",
            "Stop the capture that reads it and run bootstrap again, or set failover = false.",
        )
