"""What a contender costs the source: pgbench's TPC-B at full speed, with each of them at work, on cores that all share.

Every run has a database of its own, made anew. Afterwards it is waited for until the contender has caught up, because
one that falls behind costs the source less.
"""

import re
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import psycopg

from peers import measured
from peers.arena import Arena, sources
from peers.contest import Contender
from peers.copies import wait_until
from peers.followers import Follower, following
from peers.measured import Figures

_CLIENTS, _SCALE = 4, 10
_TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_history", "pgbench_tellers")
_FOLLOWERS = ("auditlake-follow", "auditlake-capture", "subscription", "debezium", "debezium-delta")
_CAUGHT_UP = "select confirmed_flush_lsn >= '{}' from pg_replication_slots where slot_name = 'peer'"
_TPS, _TRANSACTIONS = re.compile(r"tps = ([\d.]+)"), re.compile(r"actually processed: (\d+)")
_MEAN_MS = re.compile(r"latency average = ([\d.]+) ms")


def contenders(arena: Arena, seconds: float) -> list[Contender]:
    """Return everybody, and nobody."""
    arena.database("before")
    measured.run(arena.server, arena.tool("pgbench", "-i", "-q", "-s", str(_SCALE), "before"))
    arena.sql("before", "alter table pgbench_history add hid bigserial primary key")
    arena.sql("before", "vacuum (analyze)")
    return [
        Contender("nothing", partial(_measured, arena, "nothing", seconds)),
        *(Contender(name, partial(_measured, arena, name, seconds)) for name in (*_FOLLOWERS, *_TRIGGERS)),
    ]


def _measured(arena: Arena, name: str, seconds: float, folder: Path) -> Figures:
    database = "loaded"
    arena.database(database, template="before")
    try:
        if name in _TRIGGERS:
            _install(arena, database, _TRIGGERS[name]())
        with _beside(arena, name, database, folder) as follower:
            return _load(arena, database, seconds, follower, follows=name in _FOLLOWERS)
    finally:
        arena.sql("postgres", "drop database if exists target with (force)")
        arena.server.drop_database(database)


def _beside(arena: Arena, name: str, database: str, folder: Path) -> AbstractContextManager[Follower | None]:
    return following(arena, name, database, folder) if name in _FOLLOWERS else nullcontext()


def _load(arena: Arena, database: str, seconds: float, follower: Follower | None, *, follows: bool) -> Figures:
    options = ["-n", "-c", str(_CLIENTS), "-T", str(max(1, int(seconds))), database]
    line = [str(part) for part in arena.tool("pgbench", *options)]
    before_s, before = follower.cpu_s() if follower else 0.0, _wal(arena, database)
    with measured.block(arena.server) as used:
        said = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    cpu_s, wal_bytes = follower.cpu_s() - before_s if follower else 0.0, _wal(arena, database) - before
    count = int(_found(_TRANSACTIONS, said))
    figures: Figures = {
        "tps": _found(_TPS, said),
        "latency_ms": _found(_MEAN_MS, said),
        "server_us": used.server_cpu_s / count * 1e6,
        "client_us": cpu_s / count * 1e6,
        "wal_bytes": wal_bytes / count,
        "behind_s": _catch_up(arena, database) if follows else 0.0,
        "foreign_cores": used.foreign_cores - cpu_s / used.wall_s,
    }
    return figures


def _wal(arena: Arena, database: str) -> int:
    return int(arena.sql(database, "select pg_current_wal_insert_lsn() - '0/0'"))


def _catch_up(arena: Arena, database: str) -> float:
    """Wait until what follows the load is confirmed: some contenders confirm the begin of a commit, not its end."""
    begun_s, until = time.monotonic(), arena.sql(database, "select pg_current_wal_insert_lsn()")
    arena.sql(database, "insert into pgbench_history (tid, bid, aid, delta) values (0, 0, 0, 0)")
    wait_until(lambda: arena.sql(database, _CAUGHT_UP.format(until)) == "True")
    return time.monotonic() - begun_s


def _found(pattern: re.Pattern[str], text: str) -> float:
    match = pattern.search(text)
    if match is None:
        raise measured.PeerFailed(f"pgbench did not say {pattern.pattern}")
    return float(match[1])


def _install(arena: Arena, database: str, statements: list[str]) -> None:
    try:
        for statement in statements:
            arena.sql(database, statement)
    except psycopg.Error as error:
        raise measured.PeerFailed(f"it cannot be installed: {error}") from error


def _supa_audit() -> list[str]:
    script = (sources("supabase/supa_audit") / "supa_audit--0.3.1.sql").read_text()
    as_script = re.sub(r"select pg_catalog\.pg_extension_config_dump\([^;]*;", "", script)  # only of extensions
    tracking = [f"select audit.enable_tracking('public.{table}'::regclass)" for table in _TABLES]
    return ['create extension "uuid-ossp"', as_script, *tracking]


def _audit_trigger() -> list[str]:
    script = (sources("2ndQuadrant/audit-trigger") / "audit.sql").read_text()
    return [script, *(f"select audit.audit_table('{table}')" for table in _TABLES)]


def _temporal_tables() -> list[str]:
    statements = [(sources("nearform/temporal_tables") / "versioning_function.sql").read_text()]
    for table in _TABLES:
        statements += [
            f"alter table {table} add sys_period tstzrange not null default tstzrange(current_timestamp, null)",
            f"create table {table}_versions (like {table})",
            f"create index on {table}_versions (sys_period)",
            f"""create trigger versioning before insert or update or delete on {table} for each row
                execute procedure versioning('sys_period', '{table}_versions', true)""",
        ]
    return statements


_TRIGGERS: dict[str, Callable[[], list[str]]] = {
    "supa-audit": _supa_audit,
    "audit-trigger": _audit_trigger,
    "temporal-tables": _temporal_tables,
}
