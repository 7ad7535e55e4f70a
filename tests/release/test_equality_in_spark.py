"""Comparisons of every type in Spark: PostgreSQL's answers, for each statement that is not refused.

`tests/postgres/test_equality.py` asks DuckDB the same, and which types are refused.
"""

from collections import Counter, defaultdict
from datetime import UTC
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_pending
from auditlake.errors import NotAnswerable
from auditlake.lake.layout import Lake
from auditlake.query.formats import python_rows
from auditlake.query.spark_engine import batches, plan
from auditlake.query.statement import LakeState, prepare_statement, read_state
from tests import type_values
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.server import execute

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.timeout(3600)]

_AT_ONCE = 10
"""Of more tables in one statement Spark takes longer for the plan than for the rows."""


def _without_spark() -> NoReturn:
    pytest.fail("Spark was started")


def _lake(dsn: str, root: Path) -> Lake:
    execute(dsn, *type_values.schema())
    lake = make_lake(dsn, root)
    execute(dsn, *type_values.rows())
    capture(dsn, lake)
    apply_pending(_without_spark, lake)
    return lake


def _is_answered(state: LakeState, sql: str) -> bool:
    try:
        prepare_statement(state, sql, {})
    except NotAnswerable:
        return False
    return True


def _of_postgresql(conn: "psycopg.Connection[Any]", sql: str) -> list[Any] | None:
    try:
        return [row[0] for row in conn.execute(sql.encode()).fetchall()]
    except psycopg.Error:
        return None


def _literal(conn: "psycopg.Connection[Any]", column: str) -> str:
    row = conn.execute(f"select {column}::text from t where id = 1".encode()).fetchone()
    return "'" + str(row[0] if row else "").replace("'", "''").replace("\\", "\\\\") + "'"


def test_a_comparison_in_spark_is_that_of_postgresql(spark: SparkSession, database: str, tmp_path: Path) -> None:
    """In each clause that compares, with the values as PostgreSQL prints them."""
    state = read_state(_lake(database, tmp_path / "lake"), None, UTC)
    kinds, asked = list(type_values.TYPES), defaultdict[str, dict[int, str]](dict)
    answers = dict[tuple[str, int], list[Any]]()
    with psycopg.connect(database, autocommit=True, options="-c timezone=UTC") as conn:
        for number in range(len(kinds)):
            clauses = type_values.comparisons(f"c{number}", _literal(conn, f"c{number}"))
            for clause, sql in clauses.items():
                if "[]" in kinds[number] and clause == "=":  # Spark refuses to compare an array with a text
                    continue
                expected = _of_postgresql(conn, sql) if _is_answered(state, sql) else None
                if expected is not None:
                    asked[clause][number], answers[clause, number] = sql, expected
    assert len(answers) > 200
    for clause, statements in asked.items():
        numbers = list(statements)
        for chunk in (numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE)):
            sql = type_values.together({number: statements[number] for number in chunk})
            schema, found = batches(plan(spark, prepare_statement(state, sql, {})))
            theirs = Counter((number, value) for number in chunk for value in answers[clause, number])
            ours = Counter(python_rows(schema, found))
            wrong = {f"{kinds[number]}: {value}" for number, value in (ours - theirs) + (theirs - ours)}
            assert not wrong, f"{clause}: {wrong}"
