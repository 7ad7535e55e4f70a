"""Random statements in DuckDB and in PostgreSQL, which knows nothing of Spark's rules or ours. No JVM.

Where the dialects differ by intention, a statement is left out: division, `round` of integers, the digits of `avg`, an
integer that no double is in a list with doubles (Spark compares all of the list as doubles), and what PostgreSQL
refuses.
"""

import os
import random
import re
from collections import Counter
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import sqlglot

from auditlake.errors import AuditlakeError
from auditlake.lake.layout import Lake
from auditlake.query.embedded.cells import NotEmbedded
from auditlake.query.embedded.engine import Embedded
from auditlake.query.formats import python_rows
from auditlake.query.statement import prepare_statement, read_state
from tests import random_sql
from tests.random_seeds import random_seeds
from tests.random_sql import TABLES, statement, write_lake

pytestmark = [pytest.mark.pg, pytest.mark.timeout(1800)]

_STATEMENTS = 300
_OTHER_MEANING = ("/", "round(", "avg(", "9007199254740993")
_LAST_ZEROS = re.compile(r"\.0+(?!\d)|(\.\d*[1-9])0+(?!\d)")
_PG_TYPES = {"smallint": "smallint", "string": 'text collate "C"', "binary": "bytea", "float": "real"}
_PG_TYPES |= {"double": "float8", "timestamp": "timestamptz", "timestamp_ntz": "timestamp", "array<int>": "int[]"}


class _Both:
    """One random lake, and its tables as of now in PostgreSQL."""

    def __init__(self, conn: "psycopg.Connection[Any]", lake: Lake) -> None:
        self._conn = conn
        self._state = read_state(lake, None, UTC)
        self._engine = Embedded({})
        columns = ", ".join(f"{name} {_PG_TYPES.get(kind, kind)}" for name, kind in random_sql.COLUMNS.items())
        for table in TABLES:
            conn.execute(f"drop table if exists {table}; create table {table} ({columns})".encode())
            places = ", ".join(["%s"] * len(random_sql.COLUMNS))
            with conn.cursor() as cursor:
                cursor.executemany(f"insert into {table} values ({places})".encode(), self._of_duckdb(table)[1])

    def _of_duckdb(self, sql: str) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
        sql = f"select * from {sql}" if sql in TABLES else sql
        rows = self._engine.answer(self._state, prepare_statement(self._state, sql, {}))
        schema, batches = rows.batches()
        return schema, list(python_rows(schema, batches))

    def compare(self, sql: str) -> str | None:
        """Return the difference between the answers, empty if there is none; None if one of the two has no answer."""
        try:
            schema, ours = self._of_duckdb(sql)
            theirs = self._conn.execute(sqlglot.transpile(sql, read="spark", write="postgres")[0].encode()).fetchall()
        except (NotEmbedded, AuditlakeError, psycopg.Error):
            return None
        columns = [pa.array([_as(kind.type, row[n]) for row in theirs], kind.type) for n, kind in enumerate(schema)]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        found, expected = (Counter(map(_shown, rows)) for rows in (ours, python_rows(schema, iter([batch]))))
        only, missing = found - expected, expected - found
        return f"{sql}\n  only DuckDB {only}\n  only PostgreSQL {missing}" if only or missing else ""


def _as(kind: pa.DataType, value: Any) -> Any:
    """Return a value of PostgreSQL as Arrow takes it: `sum` of integers is numeric there."""
    if isinstance(value, Decimal) and not pa.types.is_decimal(kind):
        return float(value) if pa.types.is_floating(kind) else int(value)
    return Decimal(value) if isinstance(value, int) and pa.types.is_decimal(kind) else value


def _shown(row: tuple[Any, ...]) -> str:
    """Return a row as text; 0 and -0 are one value in PostgreSQL.

    A decimal printed by a statement ends as its type does in Spark, as its value in PostgreSQL: `coalesce(rate, .25)`.
    """
    return _LAST_ZEROS.sub(r"\1", repr([each + 0.0 if isinstance(each, float) else each for each in row]))


def test_duckdb_gives_the_answers_of_postgresql(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expressions, joins, grouping, subqueries, set operations and order over values that PostgreSQL can have."""
    monkeypatch.setenv("AUDITLAKE_PROPERTY_S", os.environ.get("AUDITLAKE_ENGINES_S", "60"))
    monkeypatch.setattr(random_sql, "_NAMES", [name for name in random_sql._NAMES if "\0" not in name])  # noqa: SLF001
    with psycopg.connect(database, autocommit=True, options="-c timezone=UTC -c statement_timeout=10s") as conn:
        for seed in random_seeds():
            both, draw = _Both(conn, write_lake(tmp_path / str(seed), seed, 40)), random.Random(seed)  # noqa: S311
            drawn = (
                sql for sql in (statement(draw) for _ in range(_STATEMENTS)) if not any(map(sql.count, _OTHER_MEANING))
            )
            compared = [found for found in map(both.compare, drawn) if found is not None]
            different = [each for each in compared if each]
            assert not different, "\n".join(different)
            assert len(compared) > _STATEMENTS // 10, "too few to prove anything"
