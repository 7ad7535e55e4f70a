"""The engine `spark`: every stage on Spark, and the lake is PostgreSQL's; `auto` goes on where `duckdb` stopped."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from auditlake.capture.supervisor import make_task
from auditlake.delta.log_reader import entry
from auditlake.engine import Engine
from auditlake.follow import Applier, follow
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.maintenance import maintain
from auditlake.lake.records import read_last_batch
from auditlake.snapshot import worker_pool
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.spark.on_demand import SparkOnDemand
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.s3_server import chosen_lake
from tests.server import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]


def last_commit(table: HistoryTable) -> tuple[str, str]:
    """Return operation and writer of the last commit."""
    (info,) = (action["commitInfo"] for action in entry(table.path, table.delta_version) if "commitInfo" in action)
    return info["operation"], str(info.get("engineInfo", ""))


@pytest.mark.usefixtures("spark")
def test_every_stage_runs_on_spark(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are tasks, commits are MERGEs of Delta's, compaction is an OPTIMIZE."""
    monkeypatch.setattr(worker_pool, "LocalWorkers", pytest.fail)
    execute(database, "create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    lake, spark, said = chosen_lake(tmp_path / "lake"), SparkOnDemand({}, Engine.SPARK), list[str]()
    target = Target(database, lake, "engine", "engine", None)
    (copied,) = bootstrap(target, lambda: worker_pool.start_workers(spark), said.append)
    assert copied.rows == 2
    moments = [oracle.take_moment(database, ["t"])]
    for statement in ("update t set v = 'c' where id = 1", "insert into t values (3, 'd')"):
        execute(database, statement)
        moments.append(oracle.take_moment(database, ["t"]))
        follow(make_task(database, lake, "current"), spark, threading.Event(), said.append)
        (table,) = list_histories(lake)
        operation, writer = last_commit(table)
        assert operation in {"MERGE", "WRITE"}
        assert "Delta-Lake" in writer
    assert "applied 1 changes to public.t in Spark" in said
    assert (read_last_batch(lake) or pytest.fail("no batch")).engine == "spark"
    maintain(spark, lake, said.append)
    (table,) = list_histories(lake)
    assert last_commit(table)[0] == "OPTIMIZE"
    assert "Delta-Lake" in last_commit(table)[1]
    assert oracle.assert_histories_at(lake, moments) == [1] * 3
    oracle.assert_periods(lake)


def test_auto_goes_on_where_duckdb_stopped(spark: "SparkSession", database: str, tmp_path: Path) -> None:
    """The table is no longer parked, and the message says why Spark folded it."""
    assert spark is not None
    execute(database, "create table t (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    execute(database, "insert into t values (1)", "alter table t add c int default 7", "insert into t values (2)")
    capture(database, lake)
    applied_by(lake, Engine.DUCKDB)
    assert applied_by(lake, Engine.AUTO) == [
        "applied 1 changes to public.t in Spark, because a new column has a value in older rows"
    ]
    batch = read_last_batch(lake)
    assert batch is not None
    assert (batch.engine, batch.reason) == ("spark", "a new column has a value in older rows")
    assert oracle.assert_histories_at(lake, [oracle.take_moment(database, ["t"])]) == [1]


def applied_by(lake: Lake, engine: Engine) -> list[str]:
    """Apply with an engine; return what was said."""
    said: list[str] = []
    Applier(lake, SparkOnDemand({}, engine), said.append).apply()
    return said
