"""Locks, slot and copy of tables: failures are named, the rest succeeds, and nothing is left behind.

The blocking session belongs to the test, so its pid and command are known.
"""

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.errors import AuditlakeError, LakeUnusable, SourceAway, SourceUnreachable, SourceUnready
from auditlake.failpoints import After
from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.snapshot import ctid_ranges as ranges
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.copy import copy_bundle
from auditlake.snapshot.ctid_ranges import CopiedFile, CopyTask, PageRange, SnapshotMark
from auditlake.snapshot.plan import make_plan, publish
from auditlake.snapshot.progress import Progress
from auditlake.snapshot.scheduler import SourceLoad
from auditlake.snapshot.worker_pool import LocalWorkers
from auditlake.source import lock_waits
from auditlake.source import lock_waits as blockers
from auditlake.source.catalog import read_tables
from auditlake.source.connection import connect, connect_replication, pinned_conninfo
from auditlake.source.publication import Publication, read_publication
from auditlake.source.slot import Waiting, create_slot
from auditlake.source.snapshot_session import SnapshotHolder
from tests import command
from tests.capture_lake import make_lake
from tests.full_disk import file_size_limit
from tests.read_lake import history_of
from tests.running import await_true
from tests.s3_server import chosen_lake
from tests.server import Server, chosen_version, execute

pytestmark = pytest.mark.pg

_Conn = psycopg.Connection[Any]
_END_COPY = (
    "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'only.*lost'"
)
_END_HOLDER = (
    "select pg_terminate_backend(l.pid) from pg_locks l join pg_stat_activity a on a.pid = l.pid"
    " where l.relation = 'public.c'::regclass and l.mode = 'AccessShareLock' and a.application_name = 'auditlake'"
)
_COPYING = (
    "select from pg_locks l join pg_stat_activity a on a.pid = l.pid"
    " where l.relation = to_regclass('public.t') and l.granted and a.application_name ~ '^auditlake copy'"
)
_WAITING = "select pid from pg_locks where not granted and locktype in ('relation', 'transactionid')"


@contextmanager
def _session(dsn: str, *statements: str) -> Iterator[_Conn]:
    """A session with these statements in an open transaction."""
    with closing(psycopg.connect(dsn)) as conn:
        for statement in statements:
            conn.execute(statement.encode())
        yield conn


@contextmanager
def _awaiting(dsn: str, statement: str) -> Iterator[int]:
    """A session whose statement waits for a lock during the context; yield its pid."""
    with _session(dsn) as conn, ThreadPoolExecutor(1) as pool, connect(dsn) as control:
        pid = conn.info.backend_pid
        pool.submit(conn.execute, statement.encode())
        try:
            await_true(lambda: control.execute("select from pg_locks where not granted and pid = %s", [pid]).fetchall())
            yield pid
        finally:
            conn.cancel()


def _public(*names: str) -> dict[TableName, list[TableName]]:
    return {TableName("public", name): [TableName("public", name)] for name in names}


def test_tables_that_cannot_be_locked_are_named(database: str) -> None:
    """Locked, awaited, dropped or denied tables are named; the others are locked, and a snapshot can be taken."""
    role = f"{conninfo_to_dict(database)['dbname']}_reader"
    execute(
        database,
        *(f"create table {name} (id int primary key)" for name in ("fine", "held", "denied", "part")),
        f"create role {role} login replication",
        f"grant select on fine, held, part to {role}",
    )
    source = make_conninfo(database, user=role)
    with (
        _session(database, "lock table held in access exclusive mode") as owner,
        SnapshotHolder(source) as holder,
    ):
        trees = {**_public("fine", "held", "denied", "gone"), TableName("public", "part"): [*_public("part", "gone")]}
        of_renamed_schema = TableName("renamed", "inside")
        why = holder.lock({**trees, of_renamed_schema: [of_renamed_schema]}, 0.3)
        assert sorted(name.table for name in why) == ["denied", "gone", "held", "inside", "part"]
        assert "was dropped or renamed" in why[of_renamed_schema].message
        held = why[TableName("public", "held")].message
        assert f"pid {owner.info.backend_pid} of postgres, which holds ACCESS EXCLUSIVE" in held
        assert "may not be read" in why[TableName("public", "denied")].message
        assert "was dropped" in why[TableName("public", "gone")].message
        query = "select relation::regclass::text from pg_locks where pid = %s and mode = 'AccessShareLock' and granted"
        owner.rollback()
        locked = {name for (name,) in owner.execute(query, [holder.pid]).fetchall()}
        assert locked & {"fine", "held", "denied", "part"} == {"fine"}
        replication = connect_replication(source)
        with connect(database) as control:
            created = create_slot(replication, control, "s", temporary=True, waiting=Waiting(60))
        holder.import_snapshot(created.snapshot_id)
        replication.close()


def test_slot_creation_names_the_transactions_it_waits_for(database: str) -> None:
    """A writer and a prepared transaction are named during the wait and in the error; no slot is left."""
    said: list[str] = []
    execute(database, "create table t (id int primary key)")
    with _session(database, "insert into t values (1)") as writer, connect(database) as control:
        replication = connect_replication(database)
        with pytest.raises(SourceUnready, match=f"pid {writer.info.backend_pid} of postgres"):
            create_slot(replication, control, "waits", temporary=False, waiting=Waiting(1.2, said.append))
        assert [line for line in said if f"pid {writer.info.backend_pid} of postgres (open for" in line]
        writer.execute("prepare transaction 'forgotten'")
        try:
            replication = connect_replication(database)
            with pytest.raises(SourceUnready, match="prepared transaction forgotten"):
                create_slot(replication, control, "waits", temporary=False, waiting=Waiting(1.2, said.append))
        finally:
            control.execute("rollback prepared 'forgotten'")
        await_true(lambda: not control.execute("select from pg_replication_slots where slot_name = 'waits'").fetchall())


def test_a_connection_that_is_lost_while_a_slot_is_created_is_a_source_that_is_away(database: str) -> None:
    """As on every other statement: it is no bug, and another attempt can help."""
    writing = _session(database, "select pg_current_xact_id()")
    with writing, connect(database) as control, closing(connect_replication(database)) as replication:

        def lose(_: str) -> None:
            with socket.socket(fileno=os.dup(replication.fileno())) as connection:
                connection.shutdown(socket.SHUT_RDWR)

        with pytest.raises(SourceAway, match="cannot be reached"):
            create_slot(replication, control, "lost", temporary=True, waiting=Waiting(60, lose))


def test_a_locked_table_is_not_published_and_names_the_blocking_session(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are added, but a publication is created with all or not at all; a VACUUM holds such a lock, too."""
    monkeypatch.setattr(blockers, "LOCK_TIMEOUT_S", 0.2)
    execute(database, "create table t (id int primary key)", "create table u (id int primary key)")
    with _session(database, "lock table u in share update exclusive mode") as owner, connect(database) as control:
        held = f"pid {owner.info.backend_pid} of postgres, which holds SHARE UPDATE EXCLUSIVE"
        plan = make_plan(control, None, "p", "s")
        with pytest.raises(SourceUnready, match=f"publication p could not be created in time because of {held}"):
            publish(control, "p", plan)
        execute(database, "create publication p")
        locked = publish(control, "p", make_plan(control, ("public.*",), "p", "s")) or {}
        assert [str(name) for name in locked] == ["public.u"]
        assert f"table public.u could not be published in time because of {held}" in str(*locked.values())
        assert [table.name.table for table in cast("Publication", read_publication(control, "p")).tables] == ["t"]
        execute(database, "drop publication p")
        owner.rollback()
        owner.execute("drop table u")
        with ThreadPoolExecutor(1) as pool:
            monkeypatch.setattr(blockers, "LOCK_TIMEOUT_S", 30)
            publishing = pool.submit(publish, control, "p", plan)
            with connect(database) as other:
                await_true(lambda: other.execute(_WAITING).fetchall())
            owner.commit()
            assert publishing.result() is None
        execute(database, "create schema before", "create table before.v (id int primary key)")
        plan = make_plan(control, None, "p", "s")
        execute(database, "alter schema before rename to after")
        assert publish(control, "p", plan) is None
        assert publish(control, "p", make_plan(control, None, "p", "s")) == {}


def test_timeouts_of_role_and_database_have_no_effect(server: Server, database: str) -> None:
    """TCP keepalives of the server are set too, so that it detects a lost client."""
    name, role = conninfo_to_dict(database)["dbname"], f"{conninfo_to_dict(database)['dbname']}_hurried"
    settings = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"]
    settings += ["transaction_timeout"] if chosen_version() >= 17 else []
    execute(database, f"create role {role} login replication superuser password 'p'")
    for setting in settings:
        execute(database, f"alter role {role} set {setting} = '2s'", f"alter database {name} set {setting} = '2s'")
    hurried = make_conninfo(server.dsn(str(name), tcp=True), user=role, password="p")
    with SnapshotHolder(hurried) as holder:
        found = {each: holder.connection.execute(f"show {each}".encode()).fetchone() for each in settings}
        assert found == dict.fromkeys(settings, ("0",))
        assert holder.connection.execute("show tcp_keepalives_idle").fetchone() == ("30",)
    replication = connect_replication(hurried)
    for setting in settings:
        assert replication.execute(f"show {setting}".encode()).fetchone() == ("0",)
    replication.close()


def test_a_role_that_the_database_sets_has_no_effect(server: Server, database: str) -> None:
    """Its owner, who needs no other privilege, would stop us with one that may not replicate."""
    name = conninfo_to_dict(database)["dbname"]
    execute(
        database,
        f"create role {name}_login login replication password 'p'; create role {name}_member",
        f"grant {name}_member to {name}_login; alter database {name} set role = {name}_member",
    )
    given = make_conninfo(server.dsn(str(name), tcp=True), user=f"{name}_login", password="p")
    with connect(given) as ordinary, closing(connect_replication(given)) as replication:
        assert ordinary.execute("select current_user").fetchone() == (f"{name}_login",)
        assert replication.execute("show role").fetchone() == ("none",)


@pytest.fixture
def tasks(database: str, tmp_path: Path) -> Iterator[Callable[..., list[CopyTask]]]:
    """Function that creates the copy tasks of tables under one snapshot, as bootstrap does."""
    with connect(database) as holder:

        def make(*names: str, **settings: str) -> list[CopyTask]:
            holder.execute("begin isolation level repeatable read")
            ((snapshot,),) = holder.execute("select pg_export_snapshot()").fetchall()
            tables = {table.name.table: table for table in read_tables(holder)}
            return [
                CopyTask(
                    pinned_conninfo(database, settings),
                    str(snapshot),
                    TableName("public", name),
                    tables[name].relation.columns,
                    PageRange(0, None),
                    tmp_path,
                    SnapshotMark(Lsn(1), 1),
                )
                for name in names
            ]

        yield make


_ODD_TYPE = (
    "create type odd",
    "create function odd_in(cstring) returns odd language internal immutable strict as 'int4in'",
    "create function odd_out(odd) returns cstring language internal immutable strict as 'trigger_out'",
    "create type odd (input = odd_in, output = odd_out, like = int4)",
    "create table unreadable (id int primary key, v odd)",
    "insert into unreadable values (1, '1')",
)


def test_prepared_transactions_that_hold_a_lock_are_named(database: str) -> None:
    """They have no session: neither the one that holds the lock, nor the one for which a waiting session waits."""
    prepared = []
    for table, mode in (("held", "access exclusive"), ("written", "row exclusive")):
        gid = f"{table} of {conninfo_to_dict(database)['dbname']}"
        prepared.append(gid)
        lock, prepare = f"lock table {table} in {mode} mode", f"prepare transaction '{gid}'"
        execute(database, f"create table {table} (id int primary key)")
        with closing(psycopg.connect(database)) as conn:
            for statement in (lock, prepare):
                conn.execute(statement.encode())
    source = make_conninfo(database)
    try:
        with (
            _awaiting(database, "lock table written in access exclusive mode") as waiting,
            SnapshotHolder(source) as holder,
        ):
            why = holder.lock(_public("held", "written"), 0.3)
    finally:
        execute(database, *(f"rollback prepared '{gid}'" for gid in prepared))
    held, written = (why[TableName("public", name)].message for name in ("held", "written"))
    assert f"because of prepared transaction {prepared[0]} of postgres, which holds ACCESS EXCLUSIVE (open for " in held
    assert f"because of pid {waiting} of postgres, which waits for ACCESS EXCLUSIVE" in written
    assert written.endswith(f" behind prepared transaction {prepared[1]} of postgres")


def test_a_failing_table_does_not_stop_the_others(database: str, tasks: Callable[..., list[CopyTask]]) -> None:
    """A type without output, a lost connection and a waiting rewrite are named, and the rest is copied."""
    tables = [f"create table {name} (id int primary key)" for name in ("lost", "behind", "last")]
    execute(database, *_ODD_TYPE, *tables, "insert into last select generate_series(1, 5)")
    made = tasks("unreadable", "lost", "behind", "last", lock_timeout="1s")
    with (
        _session(database, "lock table lost, behind in access share mode") as holder,
        _awaiting(database, "lock table behind in access exclusive mode") as rewriter,
        ThreadPoolExecutor(1) as copies,
        connect(database) as control,
    ):
        holding = holder.info.backend_pid
        with _awaiting(database, "lock table lost in access exclusive mode"):
            copying = copies.submit(copy_bundle, made)
            await_true(lambda: control.execute(_END_COPY).fetchall())
        unreadable, lost, behind, last = copying.result(60)
    assert isinstance(unreadable, SourceUnready)
    assert "public.unreadable could not be copied: SQLSTATE 0A000" in unreadable.message
    assert isinstance(lost, SourceUnreachable)
    assert "public.lost could not be copied: the connection was lost" in lost.message
    assert isinstance(behind, SourceUnready)
    assert "public.behind could not be copied" in behind.message
    assert f"pid {rewriter} of postgres, which waits for ACCESS EXCLUSIVE" in behind.message
    assert f" behind pid {holding} of postgres" in behind.message
    assert isinstance(last, CopiedFile)
    assert last.rows == 5


def test_rows_that_a_role_may_not_read_are_no_failed_statement(
    database: str, tasks: Callable[..., list[CopyTask]]
) -> None:
    """A policy that came while tables are followed would hide rows from a copy; auditlake check names the remedy."""
    with psycopg.connect(database) as conn:
        role = f"{conn.info.dbname}_limited"
    secured = "create table secured (id int primary key); alter table secured enable row level security"
    execute(database, f"create role {role} login", secured, f"grant select on secured to {role}")
    (made,) = tasks("secured")
    (refused,) = copy_bundle([replace(made, conninfo=make_conninfo(made.conninfo, user=role))])
    execute(database, f"drop owned by {role}", f"drop role {role}")
    assert isinstance(refused, SourceUnready)
    assert "public.secured could not be copied: its rows may not be read, or row security hides" in refused.message


def test_a_full_lake_fails_the_table_and_leaves_no_partial_file(
    database: str, tasks: Callable[..., list[CopyTask]], tmp_path: Path
) -> None:
    """The kernel limits file sizes: the table is named, and a smaller one is copied."""
    execute(
        database,
        "create table large (id int primary key, v text)",
        "insert into large select n, md5(n::text) from generate_series(1, 50000) n",
        "create table small (id int primary key)",
        "insert into small values (1)",
    )
    made = tasks("large", "small")
    with file_size_limit(1 << 18):
        large, small = copy_bundle(made)
    assert isinstance(large, LakeUnusable)
    assert re.fullmatch(r"table public.large could not be written to /\S+: File too large", large.message)
    assert isinstance(small, CopiedFile)
    assert [path.name for path in tmp_path.rglob("*.parquet")] == [Path(small.path).name]


class _InterruptedWorkers:
    """Copies in this process. Once `b` is about to be read, it truncates `b` and ends the session that holds its lock.

    The reader of `b` has imported the snapshot then and waits behind the TRUNCATE.
    """

    at_once = 1

    def __init__(self, dsn: str, lake: Lake) -> None:
        self._dsn = dsn
        self._lake = lake

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[CopiedFile | AuditlakeError]:
        if tasks[0].name.table != "b":
            return copy_bundle(tasks)
        await_true(lambda: open_history(self._lake, TableName("public", "a")))
        with ThreadPoolExecutor(2) as pool, connect(self._dsn) as control:
            truncating = pool.submit(execute, self._dsn, "truncate b")
            await_true(lambda: len(control.execute(_WAITING).fetchall()) == 1)
            copying = pool.submit(copy_bundle, tasks)
            await_true(lambda: len(control.execute(_WAITING).fetchall()) == 2)
            assert control.execute(_END_HOLDER).fetchall() == [(True,)]
            truncating.result()
            return copying.result()

    def close(self) -> None: ...


def test_a_lost_holder_fails_the_tables_that_are_not_committed(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its locks a table can be emptied while it is read; the next run copies what failed."""
    monkeypatch.setattr(lock_waits, "_LOOK_S", 60.0)
    monkeypatch.setattr(ranges, "_BUNDLE_COUNT", 1)
    for name, rows in (("a", 2000), ("b", 500), ("c", 5)):
        execute(database, f"create table {name} (id int primary key)")
        execute(database, f"insert into {name} select generate_series(1, {rows})")
    lake, progress = chosen_lake(tmp_path / "lake"), Progress()
    target = Target(database, lake, "auditlake", "auditlake", None)
    with pytest.raises(SourceUnreachable, match=r"public\.b was not copied.*public\.c was not copied"):
        bootstrap(target, lambda: _InterruptedWorkers(database, lake), lambda _: None, progress)
    assert [(table.name.table, table.rows) for table in progress.state().copied] == [("a", 2000)]
    execute(database, "insert into b select generate_series(1, 7)")
    copied = bootstrap(target, lambda: LocalWorkers(1), lambda _: None)
    assert [(table.name.table, table.rows) for table in copied] == [("b", 7), ("c", 5)]


def test_a_copy_gives_way_to_a_migration(database: str, tmp_path: Path) -> None:
    """ALTER TABLE during a copy of five seconds returns soon; the same bootstrap then copies the table as altered."""
    lake, said = _slowly_copied(database, tmp_path), list[str]()
    with ThreadPoolExecutor(1) as pool, connect(database) as control:
        copying = pool.submit(bootstrap, _slow(database, lake), lambda: LocalWorkers(1), said.append)
        await_true(lambda: control.execute(_COPYING).fetchall())
        execute(database, "set statement_timeout = '4s'; alter table t add column w int default 7")
        (copied,) = copying.result()
    assert any(
        re.search(r"public.t was not copied: .* waited for a lock on public.t, and the copy gave", one) for one in said
    )
    assert (copied.name.table, copied.rows) == ("t", 1500)
    table = history_of(lake, TableName("public", "t"))
    assert [column.name for column in table.columns] == ["id", "v", "w"]


def _slowly_copied(database: str, tmp_path: Path) -> Lake:
    execute(
        database,
        "create table t (id int primary key, v text)",
        "insert into t select n, repeat(md5(n::text), 20) from generate_series(1, 1500) n",
    )
    return chosen_lake(tmp_path / "lake")


def _slow(database: str, lake: Lake) -> Target:
    return Target(database, lake, "auditlake", "auditlake", None, limits=SourceLoad(bytes_per_s=200_000))


def test_a_kill_releases_locks_and_temporary_slot(database: str, tmp_path: Path) -> None:
    """The server ends the sessions, and only the main slot is left."""
    execute(database, "create table first (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    execute(database, "create table later (id int primary key)")
    arguments = ["bootstrap", "--table", "public.later", "--source", database, "--lake", str(lake.root)]
    done = command.run(arguments, {"AUDITLAKE_FAILPOINT": After.SLOT})
    assert done.code == -signal.SIGKILL, done.stderr
    sessions = "select from pg_stat_activity where datname = current_database() and application_name = 'auditlake'"
    slots = "select slot_name::text from pg_replication_slots where database = current_database()"
    with psycopg.connect(database, autocommit=True) as conn:
        await_true(lambda: not conn.execute(sessions).fetchall())
        await_true(lambda: conn.execute(slots).fetchall() == [("auditlake",)])
        conn.execute("set lock_timeout = '1s'; truncate first, later")


def test_an_interrupt_while_a_statement_waits_for_a_lock_is_no_failure_of_the_source(database: str) -> None:
    """The statement is still under way, so that no other could be sent: that was raised instead."""

    def interrupt() -> None:
        with (
            connect(database) as conn,
            blockers.locks_awaited(conn, "a table cannot be locked", [], (), time.monotonic() + 30),
        ):
            conn.pgconn.send_query(b"select pg_sleep(60)")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
