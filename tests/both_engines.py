"""A plugin of pytest (`-p tests.both_engines`): every statement that a test asks of Spark is asked of DuckDB too.

What DuckDB answers must have the names, types and rows of Spark's answer; what Spark refuses, DuckDB must leave to it.
The summary has the number of statements that were compared.
"""

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from auditlake.errors import AuditlakeError
from auditlake.query import spark_engine, spark_values
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.embedded.engine import Embedded, EmbeddedRows
from auditlake.query.formats import python_rows
from auditlake.query.spark_engine import batches
from auditlake.query.statement import LakeState, PreparedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_of_spark = spark_engine.plan
_left: "Counter[str]" = Counter()
_compared: list[str] = []


def _of_duckdb(spark: "SparkSession", query: PreparedQuery) -> EmbeddedRows | None:
    state = LakeState(query.known, datetime.now(UTC), None, query.lsn)
    given = spark.conf.get(spark_values.SETTING, None)
    try:
        return Embedded({} if given is None else {spark_values.SETTING: given}).answer(state, query)
    except NotEmbedded as reason:
        _left[str(reason)] += 1
        return None


def _plan(spark: "SparkSession", query: PreparedQuery) -> "DataFrame":
    found = _of_duckdb(spark, query)
    try:
        rows = _of_spark(spark, query)
    except AuditlakeError:
        assert found is None, f"only DuckDB answers {query.sql}"
        raise
    if found is None:
        return rows
    (schema, ours), (others, theirs) = found.batches(), batches(rows)
    expected = Counter(map(repr, python_rows(others, theirs)))
    assert (schema, schema.metadata) == (others, others.metadata), query.sql
    assert Counter(map(repr, python_rows(schema, ours))) == expected, query.sql
    _compared.append(query.sql)
    return rows


def pytest_configure() -> None:
    """Take the place of Spark's planning, which every way to Spark goes through."""
    spark_engine.plan = _plan


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how much was compared."""
    terminalreporter.write_line(f"{len(_compared)} statements compared, {_left.total()} left to Spark: {dict(_left)}")
