"""Values that their typed column cannot hold, in Spark: computing with the NULL that stands for one is refused."""

from datetime import UTC
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.errors import NotAnswerable
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP
from auditlake.query.languages import SPARK_SQL
from auditlake.query.spark_engine import plan
from auditlake.query.statement import prepare_sql, read_state
from auditlake.relation import Column, TableName
from tests.small_lake import version, write_history, write_small_lake

pytestmark = pytest.mark.spark

_PRICE = ((6 << 16) | 2) + 4


@pytest.mark.parametrize(
    "script",
    [
        "select sum(price) as n from prices",
        "select id from prices for system_time all where price > 5",
        "select id from prices where ints[0] = 1",
        "create temporary view v as select id, price as p from prices; select max(p) as n from v",
    ],
)
def test_a_computation_with_such_a_column_is_refused(spark: SparkSession, tmp_path: Path, script: str) -> None:
    """Also one through a view of the session; a statement that shows the column or casts it is answered."""
    lake = write_small_lake(tmp_path / "lake")
    columns = (
        Column("id", 23, -1, key=True),
        Column("price", 1700, _PRICE, key=False),
        Column("due", 1082, -1, key=False),
        Column("ints", 1007, -1, key=False),
    )
    row = {"id": 1, "price": None, "due": None, "ints": None, **version(0x180, None, "snapshot", None)}
    row["_raw"] = [("price", "NaN"), ("ints", "{{1}}")]
    write_history(lake, TableName("public", "prices"), columns, [row], {HISTORY_APP: 0x180, SNAPSHOT_APP: 0x180})
    answered = "select id, price from prices where cast(price as decimal(6,2)) is null and due is null"
    rows = plan(spark, prepare_sql(lake, answered))
    assert [tuple(each) for each in rows.collect()] == [(1, None)]
    with pytest.raises(NotAnswerable, match=r"computes with public\.prices\.(price|p|ints), which is NULL here"):
        [plan(spark, query) for query in SPARK_SQL.prepare_all(read_state(lake, None, UTC, script=script), script)]
