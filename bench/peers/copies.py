"""First copies: lineitem, all tables of TPC-H, many small tables.

Every contender starts from nothing as a process of its own, and its time ends when all rows are where it puts them.
"""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import psycopg
from deltalake import DeltaTable

import auditlake
from auditlake.demo.server import PASSWORD, SUPERUSER
from peers import measured
from peers.arena import Absent, Arena, built, client, jdbc_driver, our_client
from peers.contest import Contender
from peers.digest import Digest, columns_of, of_relation, on_server
from peers.measured import Figures, PeerFailed
from tests import tpch

TPCH = tuple(tpch.TABLES)
_POLL_S = 0.02
SMALL_ROWS = 100
_SUBSCRIBED = "select not exists (select from pg_subscription_rel where srsubstate <> 'r')"
_WAIT_TIMEOUT_S = 600
_MOST_WORKERS = 9  # of PostgreSQL's ten slots, one is that of its stream


@dataclass(frozen=True)
class Source:
    """A loaded database."""

    arena: Arena
    database: str
    tables: tuple[str, ...]

    @property
    def dsn(self) -> str:
        return self.arena.server.dsn(self.database)

    @property
    def digest(self) -> Digest:
        """Return the digest of all its tables."""
        return on_server(self.dsn, self.tables)


def load_tpch(arena: Arena, scale: float, tables: Sequence[str]) -> Source:
    """Create and fill tables of TPC-H."""
    database = arena.database("source")
    files = arena.folder / "csv"
    files.mkdir()
    with psycopg.connect(arena.server.dsn(database), autocommit=True) as conn:
        for name, file in tpch.generate(files, scale).items():
            if name in tables:
                conn.execute(f"create table {name} ({tpch.TABLES[name]})")
                with file.open("rb") as csv, conn.cursor().copy(f"copy {name} from stdin (format csv)") as copy:
                    while chunk := csv.read(1 << 20):
                        copy.write(chunk)
            file.unlink()
        conn.execute("vacuum (analyze, freeze)")
        conn.execute("checkpoint")
    return Source(arena, database, tuple(tables))


def load_small(arena: Arena, tables: int) -> Source:
    """Create many small tables."""
    database = arena.database("source")
    names = tuple(f"t{number}" for number in range(tables))
    with psycopg.connect(arena.server.dsn(database), autocommit=True) as conn:
        for name in names:
            conn.execute(f"create table {name} (id int primary key, v text, n numeric(10,2))")
            conn.execute(f"insert into {name} select n, md5(n::text), n from generate_series(1, {SMALL_ROWS}) n")
        conn.execute("vacuum (analyze, freeze)")
        conn.execute("checkpoint")
    return Source(arena, database, names)


def contenders(source: Source) -> list[Contender]:
    """Return everybody who can copy."""
    return [
        Contender("copy", lambda _: _copy_to_nothing(source)),
        Contender("auditlake", lambda folder: _bootstrap(source, folder), _checked(source, _history)),
        Contender("supabase-etl", lambda _: _supabase_etl(source)),
        Contender("duckdb", lambda folder: _duckdb(source, folder), _checked(source, _parquet)),
        Contender("adbc", lambda folder: _adbc(source, folder), _checked(source, _delta)),
        Contender("subscription", lambda _: _subscription(source), lambda _: on_server(_target(source), source.tables)),
        Contender("spark-jdbc", lambda folder: _spark(source, folder), _checked(source, _delta)),
        Contender("dlt", lambda folder: _dlt(source, folder), _checked(source, _dlt_delta)),
        Contender("debezium", lambda folder: _debezium(source, folder, delta=False)),
        Contender(
            "debezium-delta",
            lambda folder: _debezium(source, folder, delta=True),
            _checked(source, _delta, days=True),
        ),
    ]


def _run(source: Source, folder: Path, command: Sequence[str | Path], **environment: str) -> Figures:
    used = measured.run(source.arena.server, command, environment)
    return _with_result(used, measured.size_mb(folder))


def _with_result(used: Figures, result_mb: float) -> Figures:
    return {**used, "result_mb": result_mb}


def _copy_to_nothing(source: Source) -> Figures:
    statements = [part for table in source.tables for part in ("-c", f"copy {table} to stdout (format binary)")]
    return measured.run(source.arena.server, source.arena.tool("psql", "-q", "-d", source.database, *statements))


def _bootstrap(source: Source, folder: Path) -> Figures:
    settings = {
        "AUDITLAKE_SOURCE": source.dsn,
        "AUDITLAKE_LAKE": str(folder),
        "AUDITLAKE_SPARK": '{"master": "local[2]"}',
    }
    command = [sys.executable, "-m", "auditlake", "bootstrap", "--slot", "peer", "--publication", "peer"]
    try:
        return _run(source, folder, command, **settings)
    finally:
        _forget(source)


def _supabase_etl(source: Source) -> Figures:
    """Run its own benchmark of a copy, whose destination acknowledges batches and keeps none.

    A worker, which has a slot, is free for another table only once the source has written something. So each table
    gets its own.
    """
    arena, workers = source.arena, len(source.tables)
    if workers > _MOST_WORKERS:
        raise Absent(f"it needs a slot for each of {workers} tables of an idle source")
    benchmark = built("etl/table_copy", "supabase/etl")
    names = ", ".join(f"'{table}'" for table in source.tables)
    oids = arena.sql(source.database, f"select string_agg(oid::text, ',') from pg_class where relname in ({names})")
    arena.sql(source.database, "create publication peer for all tables")
    where = ["--host", "127.0.0.1", "--port", str(arena.server.port), "--database", source.database]
    who = ["--username", SUPERUSER, "--password", PASSWORD, "--publication-name", "peer", "--table-ids", oids]
    try:
        return measured.run(arena.server, [benchmark, "run", *where, *who, "--max-table-sync-workers", str(workers)])
    finally:
        _forget(source)
        arena.sql(source.database, "drop schema if exists etl cascade")


def _duckdb(source: Source, folder: Path) -> Figures:
    command = client("duckdb_parquet", "duckdb_extension_postgres_scanner")
    return _run(source, folder, [*command, source.dsn, folder, *source.tables])


def _adbc(source: Source, folder: Path) -> Figures:
    command = client("adbc_delta", "adbc_driver_postgresql")
    return _run(source, folder, [*command, source.arena.url(source.database), folder, *source.tables])


def _spark(source: Source, folder: Path) -> Figures:
    pages = "select pg_relation_size('{}') / 8192"
    tables = [f"{table}={source.arena.sql(source.database, pages.format(table))}" for table in source.tables]
    where: list[str | Path] = [source.arena.jdbc_url(source.database), jdbc_driver(), folder]
    return _run(source, folder, [*our_client("spark_jdbc"), *where, *tables], PYSPARK_PYTHON=sys.executable)


def _dlt(source: Source, folder: Path) -> Figures:
    folder.mkdir()
    command = client("dlt_copy", "dlt")
    used = _run(source, folder, [*command, source.arena.url(source.database), folder, *source.tables])
    return _with_result(used, measured.size_mb(folder / "data"))


def _debezium(source: Source, folder: Path, *, delta: bool) -> Figures:
    command = client("debezium", "pydbzengine")
    shutil.rmtree(f"{folder}-work", ignore_errors=True)
    tables = ", ".join(source.tables)
    source.arena.sql(source.database, f"create publication peer for table {tables}")
    options = ["--slot", "peer", "--publication", "peer", "--mode", "copy", "--work", f"{folder}-work"]
    rows = sum(int(source.arena.sql(source.database, f"select count(*) from {table}")) for table in source.tables)
    sink = ["--delta", str(folder)] if delta else []
    try:
        line = [*command, "--dsn", source.arena.parts(source.database), *options, "--events", str(rows), *sink]
        return _run(source, folder, line)
    finally:
        _forget(source)


def _forget(source: Source) -> None:
    source.arena.sql(source.database, "drop publication if exists peer")
    active = "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null"
    source.arena.sql(source.database, active)
    drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = 'peer'"
    source.arena.sql(source.database, drop)


def _target(source: Source) -> str:
    return source.arena.server.dsn("target")


def _subscription(source: Source) -> Figures:
    """Copy into a second database of the same server, whose CPU is all the server's."""
    arena = source.arena
    arena.sql("postgres", "drop database if exists target with (force)")
    arena.database("target")
    schema = arena.folder / "schema.sql"
    measured.run(arena.server, arena.tool("pg_dump", "-s", "-f", str(schema), source.database))
    measured.run(arena.server, arena.tool("psql", "-q", "-d", "target", "-f", str(schema)))
    arena.sql(source.database, "create publication peer for all tables")
    arena.sql(source.database, "select pg_create_logical_replication_slot('peer', 'pgoutput')")
    try:
        with measured.block(arena.server) as used:
            arena.sql(
                "target",
                f"create subscription peer connection '{source.dsn}' publication peer "
                "with (create_slot = false, slot_name = 'peer')",
            )
            wait_until(lambda: arena.sql("target", _SUBSCRIBED) == "True")
        result_mb = int(arena.sql("target", "select pg_database_size('target')")) / 1e6
        return used.figures(result_mb=result_mb)
    finally:
        arena.sql("target", "alter subscription peer disable")
        arena.sql("target", "alter subscription peer set (slot_name = none)")
        arena.sql("target", "drop subscription peer")
        _forget(source)


def wait_until(reached: Callable[[], bool]) -> None:
    """Wait for a condition; raise PeerFailed after ten minutes."""
    end_s = time.monotonic() + _WAIT_TIMEOUT_S
    while not reached():
        if time.monotonic() > end_s:
            raise PeerFailed(f"not done after {_WAIT_TIMEOUT_S} s")
        time.sleep(_POLL_S)


Read = Callable[[duckdb.DuckDBPyConnection, str], str]
"""Registers the rows of a table, and returns what SQL calls them."""


def _checked(source: Source, open_folder: Callable[[Path], Read], *, days: bool = False) -> Callable[[Path], Digest]:
    """Return a check of what was left in a folder; with `days`, its dates are numbers of days since 1970."""

    def check(folder: Path) -> Digest:
        found, read = {}, open_folder(folder)
        for table, columns in columns_of(source.dsn, *source.tables).items():
            with duckdb.connect() as conn:
                shown = [replace(column, days=days) for column in columns]
                found[table] = of_relation(conn, read(conn, table), shown)
        return Digest.of_tables(found)

    return check


def _parquet(folder: Path) -> Read:
    return lambda _, table: f"'{folder}/{table}.parquet'"


def _delta(folder: Path) -> Read:
    def read(conn: duckdb.DuckDBPyConnection, table: str) -> str:
        conn.register("rows", DeltaTable(folder / table).to_pyarrow_dataset())
        return "rows"

    return read


def _dlt_delta(folder: Path) -> Read:
    return _delta(folder / "data")


def _history(folder: Path) -> Read:
    moment = auditlake.Lake(folder).as_of("now")

    def read(conn: duckdb.DuckDBPyConnection, table: str) -> str:
        conn.register("rows", moment.table(f"public.{table}").batches())
        return "rows"

    return read
