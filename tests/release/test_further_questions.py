"""Further questions through Spark: more readers and engines than in `make test`."""

from collections import Counter
from datetime import UTC
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_pending
from auditlake.query import as_of
from auditlake.query.embedded.engine import Embedded
from auditlake.query.formats import python_rows
from auditlake.query.spark_engine import batches, plan
from auditlake.query.statement import prepare_statement, read_state
from tests.padded_lake import write_padded_lake
from tests.postgres.test_own_schema import check_left_out, settings_of
from tests.random_sql import write_lake
from tests.small_lake import write_small_lake
from tests.spark.query.test_as_of import STATES, states
from tests.spark.query.test_shell import check_session

pytestmark = pytest.mark.spark

_PERIODS = (
    "all",
    "from '0/100' to '0/200'",
    "between '0/100' and '0/200'",
    "contained in ('0/100', '0/200')",
    "from '0/210' to '0/260'",
)
_VERSION = "id, name, _from_lsn, _to_lsn, _from_time, _to_time, _op, _end_op, _xid, _end_xid, _ordinal, _raw"
_PADDED = (
    "select *, length(name) as n from nations where name in ('Germany', 'Österreich', 'x')",
    "select free, count(*) as n, max(name) as m from nations group by free",
    "select x.code, y.code as c from nations x join nations y on x.free = y.free where x.code < 'E'",
    "select distinct name || '!' as n, tags from nations for system_time as of '0/100'",
)


def test_open_versions_of_many_marked_rows_are_read_by_delta(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows as our own reader's."""
    lake = write_small_lake(tmp_path / "a {b,c} lake")
    apply_pending(lambda: spark, lake)
    assert states(spark, lake) == STATES
    monkeypatch.setattr(as_of, "_MARKED_ROWS", -1)
    assert states(spark, lake) == STATES


def test_versions_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """In every clause, with the period's columns and `_raw`; of changes that are not applied too."""
    state, engine = read_state(write_lake(tmp_path / "lake", 1, 20), None, UTC), Embedded({})
    clauses = [f"select '{n}' as n, {_VERSION} from things for system_time {each}" for n, each in enumerate(_PERIODS)]
    for sql in ("select * from things for system_time all", " union all ".join(clauses)):
        query = prepare_statement(state, sql, {})
        found, expected = engine.answer(state, query), plan(spark, query)
        (schema, rows), (theirs, others) = found.batches(), batches(expected)
        assert (schema, schema.metadata) == (theirs, theirs.metadata)
        assert Counter(map(repr, python_rows(schema, rows))) == Counter(map(repr, python_rows(theirs, others)))


def test_both_engines_show_values_without_padding(spark: SparkSession, tmp_path: Path) -> None:
    """In a history, and in changes that are not applied yet; versions are read without the arrays."""
    state = read_state(write_padded_lake(tmp_path / "lake"), None, UTC)
    for sql in _PADDED:
        query = prepare_statement(state, sql, {})
        schema, theirs = batches(plan(spark, query))
        expected = Counter(map(repr, python_rows(schema, theirs)))
        if "||" not in sql:
            assert Counter(map(repr, python_rows(schema, Embedded({}).answer(state, query).batches()[1]))) == expected
        assert expected


def test_a_session_keeps_its_state_and_survives_errors(
    spark: SparkSession, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """With Spark for every statement."""
    check_session(spark, tmp_path, capsysbinary, "spark")


@pytest.mark.pg
@pytest.mark.usefixtures("spark")
def test_tables_of_the_schema_auditlake_are_left_out_by_name(database: str, tmp_path: Path) -> None:
    """Of a publication that bootstrap makes."""
    check_left_out(settings_of(database, tmp_path, for_all_tables=False))
