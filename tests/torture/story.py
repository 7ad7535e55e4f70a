"""A short scenario that is the same each time, for seeing that each check fails when its rule is broken.

Capture is ended right after an effect by an exception, which leaves what SIGKILL leaves: nothing is written, and
nothing acknowledged, after it. Work is one thread's, and nothing waits for chance.
"""

import random
import shutil
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

import auditlake.capture.capture as stage
import auditlake.lake.changes as log
from auditlake.apply.apply import apply_tail
from auditlake.capture.claiming import Source
from auditlake.capture.running import open_capture
from auditlake.failpoints import After
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.postgres.buffer import Limits
from auditlake.postgres.connection import connect
from auditlake.postgres.server import wal_end
from tests import oracle
from tests.capture_lake import make_lake
from tests.torture import checks, work
from tests.torture.schema import EMPTY, LEDGER, TABLES

_PARTS = ("parts", "parts_one", "parts_rest")
KEPT = tuple(table for table in TABLES if table not in _PARTS)
_TRANSACTIONS = 25
_PATIENCE_S = 120.0


class Killed(Exception):
    """Capture has come to the place where it is to end."""


class _Place:
    """Stands for `failpoints.reach`, and ends the run at one place."""

    def __init__(self, place: After | None, times: int) -> None:
        self._place = place
        self._left = times

    def __call__(self, place: After) -> None:
        if place == self._place:
            self._left -= 1
            if not self._left:
                raise Killed


class Story:
    """The scenario of capture on one fresh database."""

    def __init__(self, dsn: str, root: Path) -> None:
        with psycopg.connect(dsn) as conn:
            conn.execute(EMPTY)
        self.dsn = dsn
        self.lake = make_lake(dsn, root, without=[LEDGER, *_PARTS])
        self.moments: list[oracle.Moment] = []
        self._chance = random.Random(8)  # noqa: S311 - the same each time

    @property
    def evidence(self) -> checks.Evidence:
        return checks.Evidence(self.dsn, self.lake, self.moments, KEPT)

    def tell(self) -> None:
        """Run it; AssertionError where something was acknowledged too soon."""
        with psycopg.connect(self.dsn, autocommit=True) as one, psycopg.connect(self.dsn, autocommit=True) as other:
            self._work(one)
            self._capture(After.TRANSACTIONS, 1)
            self._crossed(one, other, 7)
            self._moved(one)
            self._work(one)
            self._capture(After.CHANGES, 2)
            self._crossed(one, other, 6)  # where one tail ends between such two, they are in order all the same
            self._large(one)
            self._capture(After.PART, 2)
            self._capture(After.PART, 1)
            self._moment()
            one.execute("truncate orders, bags")
            self._work(one)
            self._back_to_back(one, other)
            self._moment()
            self._capture(After.RELATIONS, 1)
            self._capture()
            self._moment()

    def drop_slot(self) -> None:
        """Let the next story on this server have a slot of that name."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute("select pg_terminate_backend(active_pid, 10000) from pg_replication_slots where active")
            conn.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")

    def _work(self, conn: work.Conn) -> None:
        for _ in range(_TRANSACTIONS):
            work.transact(conn, self._chance, 100_000)

    def _crossed(self, one: work.Conn, other: work.Conn, key: int) -> None:
        """Two transactions change one row, and the one that began first comes last."""
        one.execute("insert into accounts values (%s, 'crossed', 0, true)", [key])
        with one.transaction():
            one.execute("select pg_current_xact_id()")
            other.execute("update accounts set balance = 1 where id = %s", [key])
            one.execute("update accounts set balance = 2 where id = %s", [key])

    def _moved(self, conn: work.Conn) -> None:
        """A row takes its large value along, unsent, to a key that another row with another value had."""
        conn.execute("insert into notes select n, 'large', repeat(md5(n::text), 90) from generate_series(1, 2) n")
        conn.execute("delete from notes where id = 2")
        conn.execute("update notes set id = 2 where id = 1")
        conn.execute("update notes set title = 'moved' where id = 2")

    def _large(self, conn: work.Conn) -> None:
        """A transaction that is streamed, with a part that is rolled back."""
        with conn.transaction():
            conn.execute("insert into accounts select n, 'many' from generate_series(900000, 901500) n")
            with conn.transaction():
                conn.execute("insert into accounts select n, 'undone' from generate_series(910000, 911500) n")
                raise psycopg.Rollback
            conn.execute("update accounts set owner = 'more' where id >= 900000")

    def _back_to_back(self, one: work.Conn, other: work.Conn) -> None:
        """A commit that begins where the last one ended, which is acknowledged by then."""
        with one.transaction():
            one.execute("insert into accounts values (8, 'first', 0, true)")
            other.execute("insert into accounts values (9, 'second', 0, true)")
            while not self._at_end(other):  # now and then the server writes something of its own
                self._capture()

    def _at_end(self, conn: work.Conn) -> bool:
        row = conn.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        positions = read_positions(self.lake)
        assert row is not None
        assert positions is not None
        return Lsn.parse(row[0]) == positions.acknowledged

    def _moment(self) -> None:
        self.moments.append(oracle.take_moment(self.dsn, KEPT))

    def _capture(self, place: After | None = None, times: int = 1) -> None:
        """Capture what there is, or up to a place; nothing may be acknowledged that is not in the lake."""
        stage._BATCH = Limits(frames=200, size_bytes=20_000)  # noqa: SLF001
        stage._FULL = Limits(frames=600, size_bytes=60_000)  # noqa: SLF001
        at_place = _Place(place, times)
        setattr(stage, "reach", at_place)  # noqa: B010 - a name that the module only imports
        setattr(log, "reach", at_place)  # noqa: B010
        with connect(self.dsn) as conn:
            end = wal_end(conn)
        stop = threading.Event()
        patience = threading.Timer(_PATIENCE_S, stop.set)  # a mutant may wait for ever
        patience.start()
        with suppress(Killed):
            open_capture(Source(self.dsn, require_manifest(self.lake)), self.lake, stop).run(end)
            assert place is None, f"{place} was not reached"
        patience.cancel()
        assert not stop.is_set(), "capture did not come to the end of the log"
        checks.acknowledged(self.evidence)


def applied(spark: SparkSession, evidence: checks.Evidence, root: Path, tables: tuple[str, ...]) -> checks.Evidence:
    """Apply some tables of a captured lake in three batches, in a copy of it: the last meets what the others left."""
    shutil.copytree(evidence.lake.root, root)
    lake = Lake(root)
    for table in set(KEPT) - set(tables):
        shutil.rmtree(lake.histories / "public" / table)
    for upto in _thirds(lake, tables[0]):
        apply_tail(spark, lake, upto=upto)
    apply_tail(spark, lake)
    states = [
        oracle.Moment(each.lsn, {name: Counter(each.states[name]) for name in tables}) for each in evidence.moments
    ]
    return checks.Evidence(evidence.dsn, lake, states, tables)


def _thirds(lake: Lake, table: str) -> list[Lsn]:
    """Commits that changed the table, among others: what one tail ends with must not be in the next."""
    commits = sorted({change["lsn"] for change in oracle.changes(lake) if change["table"] == table})
    return [Lsn(commits[len(commits) * third // 3]) for third in (1, 2)]
