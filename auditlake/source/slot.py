"""Replication slot: inspect, drop, create, and check for failover.

1. `read_slot` and `read_reader` read the state of a slot and of the walsender that reads it.
2. `create_slot` creates a logical slot and exports its snapshot. Creation waits for every transaction that is writing
   at that moment, and retains WAL while it waits. So it reports for which transactions it waits, gives up after a time,
   and leaves no slot behind. The exported snapshot ends with the next command on the connection that created the slot:
   `source.snapshot_session` takes it over.
3. `failover_remarks` describes why a slot would not survive the promotion of a standby.
4. `read_resent` reads the transactions that the slot would send again. The slot stays unchanged.

Authority: postgresql.org/docs/current/protocol-replication.html, CREATE_REPLICATION_SLOT;
view-pg-replication-slots.html; functions-admin.html, pg_logical_slot_peek_binary_changes;
protocol-logicalrep-message-formats.html, "Begin"; logicaldecoding-explanation.html, "Replication Slot Synchronization";
runtime-config-replication.html, synchronized_standby_slots
"""

import select
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import pq, sql
from psycopg.pq.abc import PGconn

from auditlake.errors import LakeConflict, SourceUnready
from auditlake.instants import to_us
from auditlake.lsn import Lsn
from auditlake.messages import Say
from auditlake.pgoutput.decoder import Begin, decode
from auditlake.source.connection import (
    Row,
    connect_replication,
    fetch,
    fetch_one,
    lsn_at_source,
    lsn_in_lake,
    translated_errors,
    unreachable,
)
from auditlake.source.lock_waits import transaction_age

# Whole rows, because the columns differ between versions. On a standby the end of the log is the last replayed LSN.
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
       a.backend_start::text, (extract(epoch from r.reply_time) * 1000000)::bigint,
       (extract(epoch from pg_catalog.clock_timestamp()) * 1000000)::bigint
  from pg_catalog.pg_replication_slots s
  join pg_catalog.pg_stat_activity a on a.pid = s.active_pid
  left join pg_catalog.pg_stat_replication r on r.pid = a.pid
 where s.slot_name = %s
"""
_REPORT_AFTER_S = 1.0
# The transactions for which a backend waits; pg_blocking_pids returns 0 for a prepared transaction.
_WRITERS = """
with blocking as (select distinct unnest(pg_catalog.pg_blocking_pids(%s)) as pid)
select 'pid ' || a.pid::text || coalesce(' of ' || a.usename::text, ''),
       extract(epoch from pg_catalog.clock_timestamp() - a.xact_start)::bigint
  from pg_catalog.pg_stat_activity a join blocking using (pid)
union all
select 'prepared transaction ' || p.gid, extract(epoch from pg_catalog.clock_timestamp() - p.prepared)::bigint
  from pg_catalog.pg_prepared_xacts p where exists (select from blocking where pid = 0)
 order by 2 desc limit 5
"""
_FAILOVER_SINCE = 170000
# A standby synchronizes slots only if it streams from a physical slot of its own.
_STANDBYS = """
select coalesce(pg_catalog.current_setting('synchronized_standby_slots', true), ''),
       array(select slot_name::text from pg_catalog.pg_replication_slots where slot_type = 'physical' order by 1)
"""
_BEGINS = """
select substring(data from 1 for 21)
  from pg_catalog.pg_logical_slot_peek_binary_changes(
         %s, %s::pg_lsn, null, 'proto_version', '1', 'messages', 'true', 'publication_names', %s)
 where pg_catalog.get_byte(data, 0) = pg_catalog.ascii('B')
"""


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as pg_replication_slots shows it; `plugin` and `database` are None for a physical slot.

    `wal_end` is the end of the server's log at that moment, `safe_wal_bytes` the bytes that can still be written before
    the slot is lost (None: no limit). `failover` and `synced` are None before version 17. `invalidation` is the reason
    why the slot can never be read again, if the server has it. With `two_phase` a prepared transaction is sent at
    PREPARE (version 14 and later).
    """

    plugin: str | None
    database: str | None
    temporary: bool
    two_phase: bool
    active_pid: int | None
    confirmed_flush_lsn: Lsn | None
    wal_status: str | None
    retained_bytes: int | None
    safe_wal_bytes: int | None
    failover: bool | None
    synced: bool | None
    invalidation: str | None
    wal_end: Lsn

    @property
    def lost(self) -> bool:
        """Whether PostgreSQL has invalidated the slot."""
        return self.wal_status == "lost" or self.invalidation is not None


@dataclass(frozen=True, slots=True)
class SlotReader:
    """The walsender that reads a slot; times are in microseconds since 1970.

    `replied_us` is when its client, by its own clock, sent the last reply that the walsender has processed, None if our
    role may not read it; `read_us` is the server's time when this was read.
    """

    pid: int
    application: str
    address: str
    since: str
    replied_us: int | None
    read_us: int

    def __str__(self) -> str:
        since = self.since.split(".")[0]
        return f"pid {self.pid} ({self.application or 'without a name'}, from {self.address}, since {since})"

    def is_same(self, other: "SlotReader | None") -> bool:
        """Whether both are the same session."""
        return other is not None and (self.pid, self.since) == (other.pid, other.since)

    def replied_since(self, earlier: "SlotReader | None") -> bool:
        """Whether this is the same walsender and its client has sent a reply since `earlier` was read, so is alive.

        One that was sent before proves nothing: a walsender goes through the replies of a dead client one by one, and
        may save the slot to disk for each. Nor does one from the future: the client's clock is ahead.
        """
        if earlier is None or self.replied_us is None:
            return False
        return self.is_same(earlier) and earlier.read_us < self.replied_us <= self.read_us


def read_slot(conn: psycopg.Connection[Row], name: str) -> SlotState | None:
    """Read a slot; None if it does not exist."""
    rows = fetch(conn, _SLOT, name)
    if not rows:
        return None
    row, retained, wal_end = rows[0]
    slot = cast("dict[str, Any]", row)
    confirmed = slot["confirmed_flush_lsn"]
    return SlotState(
        plugin=slot["plugin"],
        database=slot["database"],
        temporary=slot["temporary"],
        two_phase=slot.get("two_phase", False),
        active_pid=slot["active_pid"],
        confirmed_flush_lsn=None if confirmed is None else lsn_in_lake(conn, Lsn.parse(confirmed)),
        wal_status=slot["wal_status"],
        retained_bytes=cast("int | None", retained),
        safe_wal_bytes=slot["safe_wal_size"],
        failover=slot.get("failover"),
        synced=slot.get("synced"),
        invalidation=slot.get("invalidation_reason") or ("conflict" if slot.get("conflicting") else None),
        wal_end=lsn_in_lake(conn, Lsn.parse(str(wal_end))),
    )


def read_reader(conn: psycopg.Connection[Row], name: str) -> SlotReader | None:
    """Read the walsender of a slot; None if the slot is not active."""
    rows = fetch(conn, _READER, name)
    if not rows:
        return None
    pid, application, address, since, replied_us, read_us = rows[0]
    times = cast("int | None", replied_us), cast("int", read_us)
    return SlotReader(cast("int", pid), str(application), str(address), str(since), *times)


def terminate_reader(conn: psycopg.Connection[Row], reader: SlotReader) -> None:
    """Terminate the walsender; our own role must own its session."""
    fetch(
        conn,
        "select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity"
        " where pid = %s and backend_start = %s::timestamptz",
        reader.pid,
        reader.since,
    )


def drop_slot(conn: psycopg.Connection[Row], name: str) -> bool:
    """Drop a slot; return False if it does not exist."""
    if read_slot(conn, name) is None:
        return False
    conn.execute("select pg_catalog.pg_drop_replication_slot(%s)", (name,))
    return True


def alter_failover(replication: psycopg.Connection[Row], name: str, *, failover: bool) -> None:
    """Set whether standbys keep a copy of a slot (17 and later); raises SourceUnready."""
    options = sql.SQL("(FAILOVER true)" if failover else "(FAILOVER false)")
    try:
        replication.execute(sql.SQL("ALTER_REPLICATION_SLOT {} {}").format(sql.Identifier(name), options))
    except psycopg.Error as exc:
        line = " ".join(str(exc).split())
        raise SourceUnready(
            f"slot {name} cannot be made {'a' if failover else 'no'} failover slot: {line}",
            "Stop the capture that reads it and run bootstrap again, or set failover = false.",
        ) from exc


def ensure_failover(control: psycopg.Connection[Row], conninfo: str, name: str, *, wanted: bool, report: Say) -> None:
    """Set the slot's failover option as configured, unless the slot is in use or the server does not have it (17)."""
    slot = read_slot(control, name)
    if slot is None or slot.failover is None or slot.failover == wanted:
        return
    if slot.active_pid is not None:
        report(f"slot {name} is in use: stop its reader and run auditlake bootstrap again to set failover")
        return
    with closing(connect_replication(conninfo)) as replication:
        alter_failover(replication, name, failover=wanted)


@dataclass(frozen=True, slots=True)
class CreatedSlot:
    """A new slot. Every transaction whose commit record starts before `consistent_point` is in `snapshot_id`."""

    name: str
    consistent_point: Lsn
    snapshot_id: str

    @property
    def snapshot_lsn(self) -> Lsn:
        """Return the last LSN in the snapshot; a commit record may start exactly at the consistent point."""
        return Lsn(self.consistent_point - 1)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Limit of the wait for transactions to end, and the function to which they are reported."""

    timeout_s: float
    say: Say = lambda _: None


def create_slot(
    replication: psycopg.Connection[Row],
    control: psycopg.Connection[Row],
    name: str,
    *,
    temporary: bool,
    waiting: Waiting,
) -> CreatedSlot:
    """Create a logical slot; its snapshot lives until the next command on `replication`.

    Raises SourceUnready, SourceUnreachable.
    """
    # The options in parentheses exist since 15; 14 to 18 accept this form.
    kind = b"TEMPORARY LOGICAL" if temporary else b"LOGICAL"
    quoted = sql.Identifier(name).as_bytes()
    pgconn = replication.pgconn
    with translated_errors():
        pgconn.send_query(b"CREATE_REPLICATION_SLOT " + quoted + b" " + kind + b" pgoutput EXPORT_SNAPSHOT")
        _await_result(pgconn, control, name, waiting)
        result = pgconn.get_result()
    if result is None or result.status != pq.ExecStatus.TUPLES_OK:
        raise _not_created(name, pgconn.get_error_message())
    point, snapshot = result.get_value(0, 1), result.get_value(0, 2)
    while pgconn.get_result() is not None:
        pass
    consistent_point = lsn_in_lake(control, Lsn.parse((point or b"").decode()))
    return CreatedSlot(name, consistent_point, (snapshot or b"").decode())


def _await_result(pgconn: PGconn, control: psycopg.Connection[Row], name: str, waiting: Waiting) -> None:
    deadline, reported = time.monotonic() + waiting.timeout_s, ""
    pgconn.flush()
    while pgconn.is_busy():
        left_s = deadline - time.monotonic()
        select.select([pgconn.socket], [], [], max(0.0, min(left_s, _REPORT_AFTER_S)))
        pgconn.consume_input()
        if not pgconn.is_busy():
            return
        writers = fetch(control, _WRITERS, pgconn.backend_pid)
        if left_s <= 0:
            pgconn.get_cancel().cancel()
            pgconn.finish()
            raise _held_up(name, _named(writers), waiting.timeout_s)
        who = ", ".join(str(writer) for writer, _ in writers)
        if who and who != reported:
            waiting.say(f"slot {name} waits for transactions that write to end: {_named(writers)}")
            reported = who


def _named(writers: list[Row]) -> str:
    return ", ".join(f"{who}{transaction_age(age)}" for who, age in writers) or "a transaction that ended"


def _held_up(name: str, who: str, timeout_s: float) -> SourceUnready:
    return SourceUnready(
        f"slot {name} could not be created in {timeout_s:g} s: it waits for every open writing transaction: {who}",
        "End that transaction (select pg_terminate_backend(pid), or rollback prepared) and run the same command again.",
    )


def _not_created(name: str, message: str) -> Exception:
    line = " ".join(message.split())
    if "already exists" in line:
        return SourceUnready(
            f"slot {name} exists already and this lake has no record of it",
            f"Choose another slot, or drop that one: select pg_drop_replication_slot('{name}').",
        )
    if "replication slots are in use" in line:
        return SourceUnready(f"slot {name} cannot be created: {line}", "Raise max_replication_slots and restart.")
    return unreachable(line)


def failover_remarks(conn: psycopg.Connection[Row], slot: str, *, wanted: bool) -> list[str]:
    """Return the obstacles to a failover of the slot without a gap; empty without a standby."""
    setting, standbys = cast("tuple[str, list[str]]", fetch_one(conn, _STANDBYS))
    state = read_slot(conn, slot)
    if not standbys:
        return []
    if conn.info.server_version < _FAILOVER_SINCE:
        return [f"slot {slot} is lost at a promotion: standbys synchronize slots from PostgreSQL 17 on"]
    remarks = []
    if state is not None and not state.failover:
        reason = "auditlake bootstrap makes it one" if wanted else "the setting failover is off"
        remarks.append(f"slot {slot} is not a failover slot, a promoted standby will not have it: {reason}")
    if not setting:
        remarks.append(
            "synchronized_standby_slots is empty, so the lake may be ahead of a promoted standby and be refused there:"
            f" set it to the slots of the standbys that may be promoted ({', '.join(standbys)})"
        )
    return remarks


class Committed(NamedTuple):
    """A transaction's commit LSN, xid, and commit time in microseconds since 1970."""

    lsn: Lsn
    xid: int
    time_us: int


def read_resent(conn: psycopg.Connection[Row], slot: str, publication: str, upto: Lsn) -> frozenset[Committed]:
    """Read the transactions before `upto` that the slot would send again; raises LakeConflict if it is in use."""
    try:
        end = str(lsn_at_source(conn, upto))
        rows = fetch(conn, _BEGINS, slot, end, sql.Identifier(publication).as_string())
    except psycopg.errors.ObjectInUse as exc:
        raise LakeConflict(f"slot {slot} is in use", "Another capture reads from it; stop that one first.") from exc
    transactions = (_committed(conn, cast("bytes", row[0])) for row in rows)
    return frozenset(transaction for transaction in transactions if transaction.lsn < upto)


def _committed(conn: psycopg.Connection[Row], begin: bytes) -> Committed:
    message = decode(begin)
    assert isinstance(message, Begin)  # noqa: S101  # selected by its tag
    return Committed(lsn_in_lake(conn, message.final_lsn), message.xid, to_us(message.time))
