"""Fixed scenarios: the same steps each time, in which every mutation must make a check fail.

Capture ends at a failpoint by an exception. It leaves what SIGKILL leaves, because nothing is written or acknowledged
after it. One thread does all work, so nothing depends on chance.
"""

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock
from uuid import uuid4

import psycopg
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import auditlake.capture.capture as stage
import auditlake.capture.change_log as log
from auditlake.apply.apply import apply_pending
from auditlake.capture.preconditions import CaptureSource
from auditlake.capture.supervisor import make_task, open_capture, run_capture
from auditlake.delta.log_writer import moved, put_commit
from auditlake.errors import AuditlakeError, LakeConflict, SourceUnreachable
from auditlake.failpoints import After
from auditlake.lake.history import open_history
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, CURRENT_APP, Lake
from auditlake.lake.manifest import LSN_OFFSET_UNIT, require_manifest
from auditlake.lake.parking import Cause
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.replication.stream import BufferLimits
from auditlake.snapshot import ctid_ranges
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.copy import copy_bundle
from auditlake.snapshot.ctid_ranges import CopiedFile, CopyTask
from auditlake.source.connection import connect
from auditlake.source.server import wal_end
from auditlake.spark import log_store
from tests import oracle, shape_oracle
from tests.capture_lake import make_lake
from tests.read_lake import positions_of
from tests.replay import history_rows
from tests.running import await_true
from tests.server import install_trigger
from tests.torture import checks, work
from tests.torture.schema import EMPTY, LEAVES, LEDGER, RETYPE, RETYPED, TABLES
from tests.torture.testbed import commit_id_of

PARKED = "parts"
"""The table that loses a partition by DETACH, which the stream does not show."""
_TRANSACTIONS = 25
_PATIENCE_S = 60.0
_COPIED_ROWS = 500
_OFFSET, _CAPTURED_S = 3 * LSN_OFFSET_UNIT, 20.0
_RESHAPED = (
    "insert into t values (1, 'a', 1), (2, 'b', 2)",
    "insert into rewritten values (1, 'a', 1)",
    "alter table t add c int default 5",
    "update t set b = 3 where id = 1",
    "alter table t rename a to z; alter table t rename b to a; alter table t rename z to b",
    "update t set a = 4, b = 'swapped' where id = 2",
    "alter table t drop a, add a text default 'again'",
    "update t set a = 'changed' where id = 1",
    "alter table t rename c to d",
    "alter table rewritten alter b type bigint using b + 1",
    "update t set d = 6 where id = 2",
)
_PAIRS = 20
_IS_FREE = "select true from pg_replication_slots where slot_name = 'auditlake' and not active"
_COMMIT_LSNS = """
select ('x' || encode(substr(data, 3, 8), 'hex'))::bit(64)::bigint
  from pg_logical_slot_peek_binary_changes(
       'auditlake', null, null, 'proto_version', '1', 'publication_names', 'auditlake')
 where get_byte(data, 0) = ascii('C')
"""
_END_SNAPSHOT_SESSION = """
select pg_terminate_backend(pid) from pg_locks
 where relation = 'public.b'::regclass and mode = 'AccessShareLock' and granted
"""


class Killed(Exception):
    """Capture has reached the failpoint at which it is to end."""


def _kill() -> NoReturn:
    raise Killed


class _Failpoint:
    """Stands for `failpoints.reach`, and acts at one failpoint."""

    def __init__(self, place: After | None, times: int, act: Callable[[], None]) -> None:
        self._place = place
        self._left = times
        self._act = act

    def __call__(self, place: After) -> None:
        if place == self._place:
            self._left -= 1
            if not self._left:
                self._act()


class CaptureScenario:
    """Capture on one fresh database: crashes, a second writer, and a table that has to be parked."""

    def __init__(self, dsn: str, root: Path) -> None:
        with psycopg.connect(dsn) as conn:
            conn.execute(EMPTY)
        self.dsn = dsn
        self.lake = make_lake(dsn, root, without=[LEDGER, *LEAVES])
        self.moments: list[oracle.Moment] = []
        self._chance = random.Random(8)  # noqa: S311 - the same each time

    @property
    def evidence(self) -> checks.Evidence:
        return checks.Evidence(self.dsn, self.lake, self.moments, parked=(PARKED, RETYPED))

    def run(self) -> None:
        """Run all steps; AssertionError if one of them ends otherwise than it must."""
        with psycopg.connect(self.dsn, autocommit=True) as one, psycopg.connect(self.dsn, autocommit=True) as other:
            self._work(one)
            self._capture(After.TRANSACTIONS, 1)
            self._commit_crossed(one, other, 7)
            self._move_unchanged_values(one)
            self._work(one)
            self._capture(After.CHANGES, 2)
            self._commit_crossed(one, other, 6)  # the end of a tail may come between two such transactions
            self._stream_large_transaction(one)
            self._capture(After.PART, 2)
            self._capture(After.PART, 1)
            self._take_moment()
            one.execute("truncate orders, bags")
            self._work(one)
            self._lose_race_for_a_version()
            self._commit_back_to_back(one, other)
            self._take_moment()
            self._capture(After.RELATIONS, 1)
            self._capture()
            self._take_moment()
            self._detach_partition(one)
            self._change_type(one)
            self._capture()
            self._take_moment()

    def drop_slot(self) -> None:
        """Drop the slot, so that the next run on this server can create one of that name."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute("select pg_terminate_backend(active_pid, 10000) from pg_replication_slots where active")
            conn.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")

    def _work(self, conn: work.Conn) -> None:
        for _ in range(_TRANSACTIONS):
            work.transact(conn, self._chance, 100_000)

    def _commit_crossed(self, one: work.Conn, other: work.Conn, key: int) -> None:
        """Change one row in two transactions; the first to begin commits last."""
        one.execute("insert into accounts values (%s, 'crossed', 0, true)", [key])
        with one.transaction():
            one.execute("select pg_current_xact_id()")
            other.execute("update accounts set balance = 1 where id = %s", [key])
            one.execute("update accounts set balance = 2 where id = %s", [key])

    def _move_unchanged_values(self, conn: work.Conn) -> None:
        """Move a row with an unchanged TOAST value to a key that another row, with another value, had before."""
        conn.execute("insert into notes select n, 'large', repeat(md5(n::text), 90) from generate_series(1, 2) n")
        conn.execute("delete from notes where id = 2")
        conn.execute("update notes set id = 2 where id = 1")
        conn.execute("update notes set title = 'moved' where id = 2")

    def _stream_large_transaction(self, conn: work.Conn) -> None:
        """Commit a transaction that is streamed and partly rolled back."""
        with conn.transaction():
            conn.execute("insert into accounts select n, 'many' from generate_series(900000, 901500) n")
            with conn.transaction():
                conn.execute("insert into accounts select n, 'undone' from generate_series(910000, 911500) n")
                raise psycopg.Rollback
            conn.execute("update accounts set owner = 'more' where id >= 900000")

    def _lose_race_for_a_version(self) -> None:
        """Let another process commit the version of `changes` that capture is about to commit: capture must stop."""
        entries: dict[Path, str | None] = {}

        def commit() -> None:
            now = positions_of(self.lake)
            version = now.delta_version + 1
            kept = {CHANGES_APP: now.watermark, ACKNOWLEDGED_APP: now.acknowledged, CURRENT_APP: now.current_us}
            put_commit(self.lake.changes, version, "WRITE", moved(kept))
            entry = self.lake.changes / "_delta_log" / f"{version:020}.json"
            entries[entry] = commit_id_of(entry)

        with suppress(LakeConflict):
            self._capture(After.TRANSACTIONS, 1, commit)
        assert entries, "capture did not commit"
        assert all(commit_id_of(entry) == commit_id for entry, commit_id in entries.items()), "an entry was replaced"

    def _detach_partition(self, conn: work.Conn) -> None:
        """Detach a partition with rows."""
        conn.execute("insert into parts values (1, 700001, 'detached')")
        self._capture()
        self._take_moment()
        conn.execute("alter table parts detach partition parts_one")
        conn.execute("insert into parts values (2, 700002, 'kept')")
        conn.execute("insert into accounts values (700002, 'after', 0, true)")

    def _change_type(self, conn: work.Conn) -> None:
        """Change a column's type, and the rows before and after."""
        conn.execute("insert into retyped values (700002, 1), (700003, 2)")
        conn.execute(RETYPE)
        conn.execute("update retyped set amount = 'a text' where id = 700002")
        conn.execute("delete from retyped where id = 700003")

    def _commit_back_to_back(self, one: work.Conn, other: work.Conn) -> None:
        """Commit a transaction whose record begins where that of the last captured one ends."""
        for key in range(8, 8 + 2 * _PAIRS, 2):
            with one.transaction():
                one.execute("insert into accounts values (%s, 'first', 0, true)", [key])
                other.execute("insert into accounts values (%s, 'second', 0, true)", [key + 1])
                self._capture()
            await_true(lambda: other.execute(_IS_FREE).fetchone())
            if (oracle.transactions(self.lake)[-1]["end_lsn"],) in other.execute(_COMMIT_LSNS).fetchall():
                return
        raise AssertionError("the server wrote a record of its own between the two commits each time")

    def _take_moment(self) -> None:
        self.moments.append(oracle.take_moment(self.dsn, TABLES))

    def _capture(self, place: After | None = None, times: int = 1, act: Callable[[], None] = _kill) -> None:
        """Capture up to the end of WAL, or up to a failpoint; the lake must hold whatever was acknowledged."""
        stage._BATCH = BufferLimits(frames=200, size_bytes=20_000)  # noqa: SLF001
        stage._FULL = BufferLimits(frames=600, size_bytes=60_000)  # noqa: SLF001
        at_place = _Failpoint(place, times, act)
        setattr(stage, "reach", at_place)  # noqa: B010 - a name that the module only imports
        setattr(log, "reach", at_place)  # noqa: B010
        with connect(self.dsn) as conn:
            end = wal_end(conn)
        stop = threading.Event()
        patience = threading.Timer(_PATIENCE_S, stop.set)  # a mutant may wait for ever
        patience.start()
        try:
            with suppress(Killed):
                open_capture(CaptureSource(self.dsn, require_manifest(self.lake)), self.lake, stop).run(end)
                assert place is None or act is not _kill, f"{place} was not reached"
        finally:
            patience.cancel()
        assert not stop.is_set(), "capture did not come to the end of the log"
        checks.acknowledged(self.evidence)


class _LosesSession:
    """Workers in this process; once the table `b` is about to be read, they end the snapshot session.

    TRUNCATE of `b` waits for the session's lock then, and the copy, which has imported the snapshot, for the TRUNCATE.
    """

    at_once = 1

    def __init__(self, dsn: str, lake: Lake) -> None:
        self._dsn = dsn
        self._lake = lake

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[CopiedFile | AuditlakeError]:
        if tasks[0].name.table != "b":
            return copy_bundle(tasks)
        with ThreadPoolExecutor(2) as pool, psycopg.connect(self._dsn, autocommit=True) as conn:
            truncating = pool.submit(self._truncate)
            self._await_waiting(conn, 1)
            copying = pool.submit(copy_bundle, tasks)
            self._await_waiting(conn, 2)
            assert conn.execute(_END_SNAPSHOT_SESSION).fetchall() == [(True,)]
            truncating.result()
            return copying.result()

    def close(self) -> None: ...

    def _truncate(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            conn.execute("truncate b")

    def _await_waiting(self, conn: work.Conn, sessions: int) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while (
            len(conn.execute("select from pg_locks where not granted and locktype = 'relation'").fetchall()) < sessions
        ):
            assert time.monotonic() < deadline, "TRUNCATE or copy does not wait"
            time.sleep(0.01)


def run_bootstrap(dsn: str, root: Path) -> None:
    """Bootstrap two tables and lose the snapshot session: a table without its rows must not be committed."""
    with psycopg.connect(dsn) as conn:
        for name in ("a", "b"):
            conn.execute(f"create table {name} (id int primary key)")
            conn.execute(f"insert into {name} select generate_series(1, {_COPIED_ROWS})")
    lake = Lake(root)
    with mock.patch.object(ctid_ranges, "_BUNDLE_COUNT", 1), suppress(SourceUnreachable):
        bootstrap(Target(dsn, lake, "auditlake", "auditlake", None), lambda: _LosesSession(dsn, lake), lambda _: None)
    for name in ("a", "b"):
        table = open_history(lake, TableName("public", name))
        rows = None if table is None else len(list(history_rows(lake, table, "true", table.position)))
        assert rows in {None, _COPIED_ROWS}, f"{name} was committed with {rows} rows of {_COPIED_ROWS}"
        assert name == "a" or rows is None, "the snapshot session was not lost in time"


def run_reshaped(dsn: str, root: Path) -> None:
    """Change a table's shape at a second source, whose LSNs are shifted; compare with PostgreSQL after every step.

    Only the rewritten table may be refused.
    """
    moments, verdict = [], shape_oracle.Verdict()
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name in ("t", "rewritten"):
            conn.execute(f"create table {name} (id int primary key, a text, b int)")
        lake = make_lake(dsn, root, lsn_offset=_OFFSET)
        install_trigger(dsn)
        for step in _RESHAPED:
            conn.execute(step.encode())
            seen = shape_oracle.observe(conn, ["public"], step)
            moments.append(replace(seen, lsn=Lsn(seen.lsn + _OFFSET)))
            if "update" in step:
                _capture_within(dsn, lake)
        row = conn.execute("select confirmed_flush_lsn::text from pg_replication_slots").fetchone()
    positions = read_positions(lake)
    assert row is not None
    assert positions is not None
    assert Lsn.parse(row[0]) == positions.acknowledged - _OFFSET, "the server was acknowledged another LSN"
    shape_oracle.compare(lake, moments, shape_oracle.ask_python, verdict)
    assert not verdict.wrong, verdict.wrong[0]
    assert verdict.right >= 2 * len(_RESHAPED) - 2, verdict.refused


def _capture_within(dsn: str, lake: Lake) -> None:
    stop = threading.Event()
    timer = threading.Timer(_CAPTURED_S, stop.set)
    timer.start()
    try:
        run_capture(make_task(dsn, lake, "current"), stop, lambda _: None)
    finally:
        timer.cancel()


def apply_copy(spark: SparkSession, evidence: checks.Evidence, root: Path, tables: tuple[str, ...]) -> checks.Evidence:
    """Apply some tables of a captured lake, in a copy of it, in three batches: each meets what the last one left."""
    shutil.copytree(evidence.lake.root, root)
    lake = Lake(root)
    lake.parked(TableName("public", RETYPED), Cause.SHAPE).unlink()  # apply must park it without capture, too
    for table in set(TABLES) - set(tables):
        shutil.rmtree(lake.histories / "public" / table)
    for upto in _thirds(lake, tables[0]):
        apply_pending(lambda: spark, lake, upto=upto)
    apply_pending(lambda: spark, lake)
    _put_twice(spark, root)
    states = [
        oracle.Moment(each.lsn, {name: Counter(each.states[name]) for name in tables}) for each in evidence.moments
    ]
    return checks.Evidence(evidence.dsn, lake, states, tables, evidence.parked)


def _thirds(lake: Lake, table: str) -> list[Lsn]:
    """Return commits that changed the table among others: the last one of a tail must not be in the next."""
    commits = sorted({change["lsn"] for change in oracle.changes(lake) if change["table"] == table})
    return [Lsn(commits[len(commits) * third // 3]) for third in (1, 2)]


def _put_twice(spark: SparkSession, root: Path) -> None:
    """Put two entries of one version through Spark's log store, compiled from this package's source."""
    entry = root / "put_twice" / "_delta_log" / f"{1:020}.json"
    entry.parent.mkdir(parents=True)
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to it
    name = f"LinkLogStore{uuid4().hex}"
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(log_store.SOURCE.replace("LinkLogStore", name))
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - the same
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    arguments[0] = configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - the same
    store = compiler.getClassLoader().loadClass(f"auditlake.{name}").getConstructors()[0].newInstance(arguments)
    path = jvm.org.apache.hadoop.fs.Path(str(entry))
    for writer in ("first", "second"):
        actions = jvm.java.util.Collections.singletonList(f'{{"commitInfo":{{"txnId":"{writer}"}}}}').iterator()
        with suppress(Py4JJavaError):
            store.write(path, actions, False, configuration)
    assert commit_id_of(entry) == "first", "Spark's log store replaced an entry"
    shutil.rmtree(root / "put_twice")
