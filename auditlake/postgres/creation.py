"""The creation of a replication slot with an exported snapshot.

Creation waits for every transaction that is writing at that moment, and pins the log while it waits; `create_slot`
therefore says whom it waits for, gives up after a time, and leaves no slot behind. The exported snapshot dies with the
next command on the connection that created the slot: see `holder`.

Authority: postgresql.org/docs/current/protocol-replication.html, CREATE_REPLICATION_SLOT
"""

import select
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from psycopg import pq, sql
from psycopg.pq.abc import PGconn

from auditlake.errors import SourceUnready
from auditlake.lsn import Lsn
from auditlake.postgres.blockers import spell_age
from auditlake.postgres.connection import Row, fetch, unreachable

_TELL_AFTER_S = 1.0
# What a backend waits for now; pg_blocking_pids gives 0 for a prepared transaction.
_WRITERS = """
with blocking as (select distinct unnest(pg_catalog.pg_blocking_pids(%s)) as pid)
select 'pid ' || a.pid || coalesce(' of ' || a.usename, ''),
       extract(epoch from pg_catalog.clock_timestamp() - a.xact_start)::bigint
  from pg_catalog.pg_stat_activity a join blocking using (pid)
union all
select 'prepared transaction ' || p.gid, extract(epoch from pg_catalog.clock_timestamp() - p.prepared)::bigint
  from pg_catalog.pg_prepared_xacts p where exists (select from blocking where pid = 0)
 order by 2 desc limit 5
"""


@dataclass(frozen=True, slots=True)
class CreatedSlot:
    """A new slot. Every transaction whose commit record starts before `consistent_point` is in `snapshot_id`."""

    name: str
    consistent_point: Lsn
    snapshot_id: str

    @property
    def snapshot_lsn(self) -> Lsn:
        """The last LSN inside the snapshot; a commit record may start exactly at the consistent point."""
        return Lsn(self.consistent_point - 1)


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long to wait for transactions to end, and whom to tell which."""

    timeout_s: float
    say: Callable[[str], None] = lambda _: None


def create_slot(
    replication: PGconn, control: psycopg.Connection[Row], name: str, *, temporary: bool, waiting: Waiting
) -> CreatedSlot:
    """Create a logical slot and export its snapshot, which lives until the next command on `replication`.

    Raises SourceUnready where the slot exists already or a writing transaction outlasts the time.
    """
    # The parenthesised options exist only since 15; this spelling is understood by 14 to 18.
    kind = b"TEMPORARY LOGICAL" if temporary else b"LOGICAL"
    quoted = sql.Identifier(name).as_bytes()
    replication.send_query(b"CREATE_REPLICATION_SLOT " + quoted + b" " + kind + b" pgoutput EXPORT_SNAPSHOT")
    _await_result(replication, control, name, waiting)
    result = replication.get_result()
    if result is None or result.status != pq.ExecStatus.TUPLES_OK:
        raise _not_created(name, replication.get_error_message())
    point, snapshot = result.get_value(0, 1), result.get_value(0, 2)
    while replication.get_result() is not None:
        pass
    return CreatedSlot(name, Lsn.parse((point or b"").decode()), (snapshot or b"").decode())


def _await_result(replication: PGconn, control: psycopg.Connection[Row], name: str, waiting: Waiting) -> None:
    deadline, told = time.monotonic() + waiting.timeout_s, ""
    replication.flush()
    while replication.is_busy():
        left_s = deadline - time.monotonic()
        select.select([replication.socket], [], [], max(0.0, min(left_s, _TELL_AFTER_S)))
        replication.consume_input()
        if not replication.is_busy():
            return
        writers = fetch(control, _WRITERS, replication.backend_pid)
        if left_s <= 0:
            replication.get_cancel().cancel()
            replication.finish()
            raise _held_up(name, _named(writers), waiting.timeout_s)
        who = ", ".join(str(writer) for writer, _ in writers)
        if who and who != told:
            waiting.say(f"slot {name} waits for transactions that write to end: {_named(writers)}")
            told = who


def _named(writers: list[Row]) -> str:
    return ", ".join(f"{who}{spell_age(age)}" for who, age in writers) or "a transaction that ended"


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
