"""TPC-H's 22 queries in both dialects, as of three moments: DuckDB gives PostgreSQL's answer to all of them.

The scale factor is 0.01, 60,000 rows in lineitem; AUDITLAKE_TPCH_SCALE sets another one. Each moment but the first
follows a refresh. All three are asked about while the second refresh is not applied, and again when it is, so states
come from open versions, from closed ones, and from a fold of both. Spark gives the same answers as of the first moment.
"""

import os
from collections.abc import Iterator
from datetime import UTC
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple, NoReturn

import psycopg
import pytest
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_pending
from auditlake.lake.layout import Lake
from auditlake.query.embedded.engine import Embedded
from auditlake.query.formats import python_rows
from auditlake.query.postgres import statement as in_postgres
from auditlake.query.postgres.engine import PostgresEngines
from auditlake.query.spark_engine import batches, plan
from auditlake.query.statement import LakeState, prepare_statement, read_state
from tests import tpch
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.postgres_dialect import answer_of_postgresql, create_database
from tests.server import Server, execute

pytestmark = [pytest.mark.pg, pytest.mark.timeout(3600)]

_SCALE = float(os.environ.get("AUDITLAKE_TPCH_SCALE", "0.01"))
_BPCHAR = 1042
_DIGITS = Context(prec=80)
_REFRESHES = (
    (),
    (
        "delete from lineitem where l_orderkey % 7 = 0",
        "delete from orders where o_orderkey % 7 = 0",
        "update lineitem set l_discount = 0.10, l_shipmode = 'RAIL' where l_orderkey % 11 = 1",
        "update customer set c_acctbal = -c_acctbal, c_mktsegment = 'BUILDING' where c_custkey % 5 = 2",
        "update supplier set s_comment = 'Customer Complaints' where s_suppkey % 13 = 3",
        """insert into orders select o_orderkey + 7000000, o_custkey, 'F', 1, o_orderdate, '1-URGENT', o_clerk, 0, ''
             from orders where o_orderkey % 17 = 2""",
    ),
    (
        """insert into orders select o_orderkey + 8000000, o_custkey, o_orderstatus, o_totalprice, o_orderdate + 31,
             o_orderpriority, o_clerk, 0, o_comment from orders where o_orderkey % 5 = 1 and o_orderkey < 7000000""",
        """insert into lineitem select l_orderkey + 8000000, l_partkey, l_suppkey, l_linenumber, l_quantity + 1,
             l_extendedprice, l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate + 31, l_commitdate + 31,
             l_receiptdate + 31, l_shipinstruct, l_shipmode, '' from lineitem where l_orderkey % 5 = 1""",
        "delete from lineitem where l_orderkey % 13 = 4",
        "delete from orders where o_orderkey % 13 = 4",
        "update partsupp set ps_supplycost = ps_supplycost / 2, ps_availqty = ps_availqty + 9 where ps_partkey % 3 = 0",
        "update part set p_brand = 'Brand#23', p_container = 'MED BOX', p_size = 15 where p_partkey % 9 = 5",
        "update nation set n_name = 'FRANCE' where n_name = 'FRANCE'",
    ),
)
_FEWEST_CHANGED = 12


class _Answer(NamedTuple):
    """An answer of PostgreSQL: names and texts, and the values without the blanks of a `char(n)`."""

    texts: Any
    values: list[tuple[Any, ...]]


Answers = dict[int, _Answer]


class _Asked(NamedTuple):
    """The lake before its last changes are applied, and PostgreSQL's answers by the moment at which they were given."""

    lake: Lake
    answers: dict[str, Answers]

    def states(self) -> Iterator[tuple[str, LakeState, int, _Answer]]:
        """Yield every query at every moment, with a name of both."""
        for moment, answers in self.answers.items():
            state = read_state(self.lake, moment, UTC)
            for number, answer in answers.items():
                yield f"query {number} as of {moment}", state, number, answer


def _without_spark() -> NoReturn:
    pytest.fail("Spark was started")


def _of_postgresql(conn: "psycopg.Connection[Any]") -> Answers:
    answers = {}
    for number, sql in tpch.QUERIES.items():
        cursor = conn.execute(sql.encode())
        padded = [each.type_code == _BPCHAR for each in cursor.description or ()]
        values = [
            tuple(v.rstrip(" ") if is_padded and v else v for v, is_padded in zip(row, padded, strict=True))
            for row in cursor.fetchall()
        ]
        answers[number] = _Answer(answer_of_postgresql(conn, sql), values)
    return answers


@pytest.fixture(scope="module")
def asked(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Asked]:
    """The tables, followed and changed twice; what was changed last is not applied."""
    folder = tmp_path_factory.mktemp("tpch")
    base = server.create_database()
    create_database(server.dsn(base), "tpch")
    dsn = server.dsn("tpch")
    execute(dsn, *(f"create table {name} ({columns})" for name, columns in tpch.TABLES.items()))
    lake = make_lake(dsn, folder / "lake")
    answers = {}
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name, file in tpch.generate(folder, _SCALE).items():
            with conn.cursor().copy(f"copy {name} from stdin (format csv)".encode()) as copy:
                copy.write(file.read_bytes())
        conn.execute(b"create index on lineitem (l_partkey)")  # without it, two queries take PostgreSQL half a minute
        for n, changes in enumerate(_REFRESHES):
            for statement in changes:
                conn.execute(statement.encode())
            capture(dsn, lake)
            if n < len(_REFRESHES) - 1:
                apply_pending(_without_spark, lake)
            conn.execute(b"analyze")
            answers[str(read_state(lake, None, UTC).lsn)] = _of_postgresql(conn)
    yield _Asked(lake, answers)
    server.drop_database("tpch")  # also its slot, whose name the lakes of other tests have, too


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


def _assert_answers_of_duckdb(asked: _Asked) -> None:
    engines = PostgresEngines()
    for label, state, number, answer in asked.states():
        sql = tpch.QUERIES[number]
        schema, found = Embedded({}).answer(state, prepare_statement(state, sql, {})).batches()
        _assert_equal(list(python_rows(schema, found)), answer.values, f"{label} in Spark's dialect")
        rows = engines.rows(state, in_postgres.prepare_query(state, sql))
        assert (rows.columns, list(rows.texts())) == answer.texts, f"{label} in PostgreSQL's dialect"


@pytest.mark.xdist_group("jvm")  # the worker of the test below, which needs the same database
def test_duckdb_answers_every_query_as_postgresql(asked: _Asked) -> None:
    """None is left to Spark, in neither dialect; also after the changes are applied."""
    _assert_answers_of_duckdb(asked)
    apply_pending(_without_spark, asked.lake)
    _assert_answers_of_duckdb(asked)
    first, second, third = asked.answers.values()
    for one, other in ((first, second), (second, third)):
        assert sum(one[number] != other[number] for number in one) >= _FEWEST_CHANGED


@pytest.mark.spark
def test_spark_answers_every_query_as_postgresql(spark: SparkSession, asked: _Asked) -> None:
    """As of the first moment, which closed versions show."""
    moment = next(iter(asked.answers))
    for label, state, number, answer in _Asked(asked.lake, {moment: asked.answers[moment]}).states():
        schema, found = batches(plan(spark, prepare_statement(state, tpch.QUERIES[number], {})))
        _assert_equal(list(python_rows(schema, found)), answer.values, label)
