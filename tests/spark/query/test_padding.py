"""`char(n)` in Spark: the same values as in DuckDB, and the printed text from `exact_text`, `_raw` and Python's API."""

from collections import Counter
from datetime import UTC
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import auditlake
from auditlake.query.embedded.engine import Embedded
from auditlake.query.formats import python_rows
from auditlake.query.spark_engine import batches, plan
from auditlake.query.statement import prepare_statement, read_state
from tests.padded_lake import NAMES, write_padded_lake

pytestmark = pytest.mark.spark

_STATEMENTS = (
    "select *, length(name) as n from nations where name in ('Germany', 'Österreich', 'x')",
    "select free, count(*) as n, max(name) as m from nations group by free",
    "select x.code, y.code as c from nations x join nations y on x.free = y.free where x.code < 'E'",
    "select distinct name || '!' as n, tags from nations for system_time as of '0/100'",
)


def test_both_engines_show_values_without_padding(spark: SparkSession, tmp_path: Path) -> None:
    """In a history, and in changes that are not applied yet; versions are read without the arrays."""
    lake = write_padded_lake(tmp_path / "lake")
    state = read_state(lake, None, UTC)
    for sql in _STATEMENTS:
        query = prepare_statement(state, sql, {})
        schema, theirs = batches(plan(spark, query))
        expected = Counter(map(repr, python_rows(schema, theirs)))
        if "||" not in sql:
            assert Counter(map(repr, python_rows(schema, Embedded({}).answer(state, query).batches()[1]))) == expected
        assert expected


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
