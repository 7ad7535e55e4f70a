"""Tests of the copy with concurrent writers, and of a table added while `follow` runs."""

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import psycopg
import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from psycopg import sql

from auditlake.delta.table import open_table
from auditlake.follow import follow
from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.snapshot import copy
from auditlake.snapshot import ctid_ranges as ranges
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.progress import Progress
from auditlake.snapshot.worker_pool import LocalWorkers, SparkWorkers
from auditlake.spark.on_demand import SparkOnDemand
from tests import oracle
from tests.read_lake import history_of
from tests.running import Running, await_true
from tests.s3_server import chosen_lake
from tests.writers import SCHEMA, TABLES, Writers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_FILLED = """
insert into accounts select n, 'owner ' || n, n, n % 2 = 0 from generate_series(0, 5999) n;
insert into orders select n, 1, 'item', n from generate_series(0, 2999) n;
insert into notes select n, 'title', repeat(md5(n::text), 90) from generate_series(0, 29) n;
"""
_FIRST, _LATER = ("accounts", "notes"), "orders"
_PATIENCE_S = 150
# Pause between transactions: what is written during a merge lengthens the next one.
_PAUSE_S = 0.3

_State = dict[str, Counter[tuple[Any, ...]]]


def test_a_copy_with_concurrent_writers_equals_its_snapshot(
    database: str, tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture passes the snapshot before the copy begins; then a table is added while `follow` runs."""
    monkeypatch.setattr(ranges, "_RANGE_BYTES", 8 * 8192)
    monkeypatch.setattr(ranges, "_BUNDLE_COUNT", 2)
    with psycopg.connect(database) as conn:
        conn.execute((SCHEMA + _FILLED).encode())
    lake, exported, progress = chosen_lake(tmp_path / "lake"), list[_State](), Progress()
    with Writers(database) as writers:

        def start_workers() -> SparkWorkers:
            exported.append(_as_exported(database))
            writers.await_transactions(20)
            _await(lambda: (found := read_positions(lake)) and found.watermark > _slot_start(database))
            return SparkWorkers(spark)

        patterns = tuple(f"public.{name}" for name in _FIRST)
        bootstrap(_target(database, lake, patterns), start_workers, lambda _: None, progress)
        for name in _FIRST:
            assert exported[0][name] == _copied(lake, name), name
        assert len(open_table(lake.history(TableName("public", "accounts"))).file_uris()) > 4
        state = progress.state()
        assert (state.done_bytes, state.failed) == (state.expected_bytes, ())
        assert state.rows == sum(sum(exported[0][name].values()) for name in _FIRST)
    _add_during_follow(database, lake)


class _Following(Running):
    """A running `follow`, which applies the captured changes."""

    def __enter__(self) -> Self:
        self._run = self._pool.submit(follow, self._task, SparkOnDemand({}), self._stop, self.said.append)
        return self


def _add_during_follow(database: str, lake: Lake) -> None:
    """Add a table during `follow`, which keeps reading the main slot and applies the new table's changes, too."""
    reports: list[str] = []
    with Writers(database, 2, _PAUSE_S) as writers, _Following(database, lake) as following:
        _await(lambda: following.failure or _reader(database) is not None)
        reader = _reader(database)
        bootstrap(_target(database, lake, (f"public.{_LATER}",)), lambda: LocalWorkers(2), reports.append)
        assert "capture runs in another process" in reports
        earlier, added = (open_history(lake, TableName("public", name)) for name in (_FIRST[0], _LATER))
        assert earlier is not None
        assert added is not None
        assert added.horizon > earlier.horizon
        writers.await_transactions(20)
        moment = oracle.take_moment(database, TABLES)
        # The writers continue, so every table has a tail until its position passes the moment.
        _await(lambda: following.failure or all(_position(lake, name) > moment.lsn for name in (*_FIRST, _LATER)))
        assert (following.failure, _reader(database)) == (None, reader)
    assert oracle.assert_histories_at(lake, [moment]) == [len((*_FIRST, _LATER))]


def _position(lake: Lake, name: str) -> int:
    history = history_of(lake, TableName("public", name))
    return history.position


def _reader(database: str) -> int | None:
    with psycopg.connect(database) as conn:
        row = conn.execute("select active_pid from pg_replication_slots where slot_name = 'auditlake'").fetchone()
    return row[0] if row else None


def _target(database: str, lake: Lake, patterns: tuple[str, ...]) -> Target:
    return Target(database, lake, "auditlake", "auditlake", patterns)


def _as_exported(database: str) -> _State:
    """Return the rows under the copy's snapshot, as soon as it is exported."""
    with psycopg.connect(database) as conn:
        while True:
            conn.rollback()
            exported = conn.execute("select pg_ls_dir('pg_snapshots')").fetchall()
            conn.rollback()
            if not exported:
                continue
            conn.execute("set transaction isolation level repeatable read")
            try:
                conn.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(exported[0][0])))
            except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject):
                continue  # removed meanwhile: the snapshot session exports it again
            rows_of = {name: conn.execute(f"select * from public.{name}".encode()).fetchall() for name in TABLES}
            return {name: Counter(rows) for name, rows in rows_of.items()}


def _copied(lake: Lake, name: str) -> Counter[tuple[Any, ...]]:
    history = history_of(lake, TableName("public", name))
    listed = ", ".join(f'"{column.name}"' for column in history.columns)
    query = QueryBuilder().register("t", open_table(history.path)).execute(f"select {listed} from t")
    return Counter(tuple(row.values()) for row in pa.table(query.read_all()).to_pylist())


def _await(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            await_true(condition)
        except AssertionError:
            continue
        return
    raise AssertionError(f"the condition was false for {_PATIENCE_S} s")


def _slot_start(database: str) -> Lsn:
    with psycopg.connect(database) as conn:
        row = conn.execute(
            "select restart_lsn::text from pg_replication_slots where slot_name = 'auditlake'"
        ).fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def test_closing_ends_a_bundle_that_spark_copies(
    tmp_path: Path, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the end of `follow` would wait for the whole copy; other jobs of the session go on."""
    begun, task = tmp_path / "begun", SimpleNamespace(name="public.t")

    def copied(_tasks: object) -> list[object]:
        begun.touch()
        Event().wait(30)  # longer than the test waits
        return []

    monkeypatch.setattr(copy, "copy_bundle", copied)
    workers = SparkWorkers(spark)
    with ThreadPoolExecutor(1) as pool:
        copying = pool.submit(workers.run, [task])  # type: ignore[list-item]
        await_true(begun.exists)
        workers.close()
        (lost,) = copying.result(15)
    assert "its Spark task failed" in str(lost)
    (lost,) = workers.run([task])  # type: ignore[list-item]
    assert "the copy was ended" in str(lost)
    assert spark.range(3).count() == 3
