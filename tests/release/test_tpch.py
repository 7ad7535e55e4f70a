"""TPC-H's 22 queries as of two moments: both engines give PostgreSQL's answers, and DuckDB gives all of them.

The scale factor is 0.01, 60,000 rows in lineitem; AUDITLAKE_TPCH_SCALE sets another one. Between the moments rows are
deleted, inserted and updated, so the first moment is read from closed versions.
"""

import os
from datetime import UTC
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple, NoReturn

import psycopg
import pytest
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_pending
from auditlake.lake.layout import Lake
from auditlake.query.embedded.engine import Embedded
from auditlake.query.output import rows_of
from auditlake.query.spark_engine import batches, plan
from auditlake.query.statement import prepare_statement, read_state
from tests import tpch
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.server import Server, execute

pytestmark = [pytest.mark.pg, pytest.mark.timeout(3600)]

_SCALE = float(os.environ.get("AUDITLAKE_TPCH_SCALE", "0.01"))
_BPCHAR = 1042
_DIGITS = Context(prec=80)
_REFRESHED = (
    "delete from lineitem where l_orderkey % 7 = 0",
    "delete from orders where o_orderkey % 7 = 0",
    "update lineitem set l_discount = 0.10, l_shipmode = 'RAIL' where l_orderkey % 11 = 1",
    "update customer set c_acctbal = -c_acctbal, c_mktsegment = 'BUILDING' where c_custkey % 5 = 2",
    "update supplier set s_comment = 'Customer Complaints' where s_suppkey % 13 = 3",
    """insert into orders select o_orderkey + 7000000, o_custkey, 'F', 1, o_orderdate, '1-URGENT', o_clerk, 0, ''
         from orders where o_orderkey % 17 = 2""",
)
Answers = dict[int, list[tuple[Any, ...]]]


class _Asked(NamedTuple):
    """The lake, and PostgreSQL's answers by the moment at which they were given."""

    lake: Lake
    answers: dict[str, Answers]


def _without_spark() -> NoReturn:
    pytest.fail("Spark was started")


def _of_postgresql(conn: "psycopg.Connection[Any]") -> Answers:
    """Ask all queries; values of `char(n)` are compared without the blanks that PostgreSQL prints."""
    answers = {}
    for number, sql in tpch.QUERIES.items():
        cursor = conn.execute(sql.encode())
        padded = [each.type_code == _BPCHAR for each in cursor.description or ()]
        answers[number] = [
            tuple(v.rstrip(" ") if is_padded and v else v for v, is_padded in zip(row, padded, strict=True))
            for row in cursor.fetchall()
        ]
    return answers


@pytest.fixture(scope="module")
def asked(server: Server, tmp_path_factory: pytest.TempPathFactory) -> _Asked:
    """The tables, followed and applied, and then changed."""
    folder = tmp_path_factory.mktemp("tpch")
    dsn = server.dsn(server.create_database())
    execute(dsn, *(f"create table {name} ({columns})" for name, columns in tpch.TABLES.items()))
    lake = make_lake(dsn, folder / "lake")
    answers = {}
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name, file in tpch.generate(folder, _SCALE).items():
            with conn.cursor().copy(f"copy {name} from stdin (format csv)".encode()) as copy:
                copy.write(file.read_bytes())
        for changes in ((), _REFRESHED):
            for statement in changes:
                conn.execute(statement.encode())
            capture(dsn, lake)
            apply_pending(_without_spark, lake)
            answers[str(read_state(lake, None, UTC).lsn)] = _of_postgresql(conn)
    return _Asked(lake, answers)


def _as_shown(theirs: Any, ours: Any) -> Any:
    """Return PostgreSQL's value with as many digits as ours: its quotients and averages have more."""
    if not isinstance(theirs, Decimal):
        return theirs
    if not isinstance(ours, Decimal):
        return int(theirs) if theirs == int(theirs) else theirs
    return theirs.quantize(ours, ROUND_HALF_UP, _DIGITS)


def _assert_equal(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], label: str) -> None:
    assert len(ours) == len(theirs), label
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == tuple(map(_as_shown, other, mine)), label


def test_duckdb_answers_every_query_as_postgresql(asked: _Asked) -> None:
    """None is left to Spark."""
    for moment, answers in asked.answers.items():
        state = read_state(asked.lake, moment, UTC)
        for number, sql in tpch.QUERIES.items():
            schema, found = Embedded({}).answer(state, prepare_statement(state, sql, {})).batches()
            _assert_equal(list(rows_of(schema, found)), answers[number], f"query {number} as of {moment}")
    first, second = asked.answers.values()
    assert sum(first[number] != second[number] for number in first) >= 12


@pytest.mark.spark
def test_spark_answers_every_query_as_postgresql(spark: SparkSession, asked: _Asked) -> None:
    """As of the first moment, which closed versions show."""
    moment, answers = next(iter(asked.answers.items()))
    state = read_state(asked.lake, moment, UTC)
    for number, sql in tpch.QUERIES.items():
        schema, found = batches(plan(spark, prepare_statement(state, sql, {})))
        _assert_equal(list(rows_of(schema, found)), answers[number], f"query {number} as of {moment}")
