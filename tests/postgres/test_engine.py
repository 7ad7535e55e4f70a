"""The engine `duckdb`: no JVM, and a change that needs Spark parks its table before the commit that has it."""

import json
from pathlib import Path

import pytest

from auditlake.engine import Engine
from auditlake.errors import Unsupported
from auditlake.follow import Applier
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.spark.on_demand import SparkOnDemand
from tests import command, oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.read_lake import positions_of
from tests.server import execute

pytestmark = pytest.mark.pg

_T, _OTHER = TableName("public", "t"), TableName("public", "other")


def test_what_needs_spark_parks_its_table_before_its_commit(database: str, tmp_path: Path) -> None:
    """Commits before it are folded, other tables go on; message, record, status and exit code say so."""
    execute(database, "create table t (id int primary key)", "create table other (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    execute(database, "insert into t values (1)", "insert into t values (2)", "insert into other values (1)")
    before = oracle.take_moment(database, ["t"])
    execute(database, "alter table t add c int default 7", "insert into t values (3)", "insert into other values (2)")
    after = oracle.take_moment(database, ["other"])
    capture(database, lake)

    said: list[str] = []
    applier = Applier(lake, SparkOnDemand({}, Engine.DUCKDB), said.append)
    applier.apply()
    (parked,) = applier.parked.values()
    assert parked.table == _T
    assert f"in the commit at {parked.until} need Spark: a new column has a value in older rows" in parked.reason
    assert "--engine auto" in parked.remedy
    assert parked.needs_spark
    assert parked.lsn >= before.lsn - 1
    assert oracle.assert_histories_at(lake, [before]) == [1]
    assert oracle.assert_histories_at(lake, [after]) == [1]
    assert "applied 2 changes to public.other in DuckDB" in said

    positions = positions_of(lake)
    with pytest.raises(Unsupported, match="need Spark"):
        applier.require_reached(Lsn(positions.watermark + 1))
    done = command.run_here(["apply", "--until-current", "--engine", "duckdb", "--lake", lake.root])
    assert done.code == 3, done.stderr
    assert "--engine auto" in done.stderr
    status = json.loads(command.run_here(["status", "--json", "--source", database, "--lake", lake.root]).stdout)
    assert (status["apply_engine"], status["apply_engine_reason"]) == ("duckdb", None)
    assert [table["parked"] is not None for table in status["tables"]] == [False, True]
