"""`char(n)` in Spark: values without padding, and the printed text from `exact_text`, `_raw` and Python's API."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import auditlake
from tests.padded_lake import NAMES, write_padded_lake

pytestmark = pytest.mark.spark


def test_spark_prints_the_padding_where_exact_text_is_promised(spark: SparkSession, tmp_path: Path) -> None:
    """In states and versions, of scalars and arrays."""
    lake = write_padded_lake(tmp_path / "lake")
    sql = "select code, exact_text(code) as c, exact_text(name) as n, exact_text(tags) as t from nations"
    shown = {row["code"]: (row["c"], row["n"], row["t"]) for row in auditlake.sql(spark, lake.root, sql).collect()}
    assert {code: printed[1] for code, printed in shown.items()} == {
        code: None if name is None else name.ljust(12) for code, name in NAMES.items()
    }
    assert (shown["AT"][0], shown["AT"][2], shown["I"][2]) == ("AT ", '{"x ",NULL}', '{xy,"  "}')
    rows = {row["code"]: row for row in auditlake.read(spark, lake.root, "nations", raw=True).collect()}
    assert {code: row["name"] for code, row in rows.items()} == NAMES
    assert rows["AT"]["_raw"] == {"code": "AT ", "name": "Österreich  ", "free": "a ", "tags": '{"x ",NULL}'}
    versions = auditlake.sql(spark, lake.root, "select exact_text(name) as n from nations for system_time all")
    assert "Deutschland ".ljust(12) in {row["n"] for row in versions.collect()}
