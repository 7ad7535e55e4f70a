"""The session of statements refuses by itself what the rewriting refuses before it; a canonical text means the same."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from auditlake.errors import BadUsage
from auditlake.lake.layout import Lake
from auditlake.query.lexical import canonical_sql
from auditlake.query.spark_engine import plan, session_for_statements
from auditlake.query.statement import PreparedQuery, prepare_statement, read_state
from tests.attacks import ATTACKS, READ_DIFFERENTLY, SUBSTITUTED
from tests.page import write_lake

pytestmark = pytest.mark.spark

_SECRET = "the content of a file"


@pytest.fixture(scope="module")
def closed(spark: SparkSession) -> SparkSession:
    """The session of the page and of the commands."""
    return session_for_statements(spark)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake of the page's tests."""
    return write_lake(tmp_path_factory.mktemp("closed") / "lake")


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the server's user that is no part of a lake."""
    path = tmp_path_factory.mktemp("secret") / "secret.txt"
    path.write_text(_SECRET)
    return path


def _typed(lake: Lake, sql: str) -> PreparedQuery:
    """Return a prepared statement with the text as it was typed: the first wall is bypassed."""
    return replace(prepare_statement(read_state(lake, None, UTC), "select 1 as a", {}), sql=sql)


@pytest.mark.parametrize("sql", ATTACKS)
def test_the_session_refuses_what_the_rewriting_refuses(
    closed: SparkSession, lake: Lake, secret: Path, sql: str
) -> None:
    """By Spark's own tree of it; nothing is written, set or registered."""
    before = sorted(secret.parent.iterdir())
    with pytest.raises(BadUsage):
        plan(closed, _typed(lake, sql.format(path=secret))).collect()
    assert sorted(secret.parent.iterdir()) == before
    assert closed.conf.get("spark.sql.runSQLOnFiles") == "false"


@pytest.mark.parametrize(
    "sql",
    [
        "select * from text.`{path}`",
        "select * from delta.`{path}`",
        "select reflect('java.lang.System', 'getenv', 'HOME')",
        "select try_reflect('java.lang.System', 'getenv', 'HOME')",
        "select system.builtin.java_method('java.lang.System', 'getenv', 'HOME')",
        "select from_xml('<p><a>1</a></p>', 'a int')",
        "select * from table_changes_by_path('{path}', 0)",
        "select xpath_string('<a>b</a>', 'a')",
    ],
)
def test_the_session_has_no_files_and_no_java(closed: SparkSession, secret: Path, sql: str) -> None:
    """Also without a check of any tree."""
    with pytest.raises(AnalysisException):
        closed.sql(sql.format(path=secret)).collect()


@pytest.mark.parametrize("sql", READ_DIFFERENTLY)
def test_a_comment_hides_nothing_from_spark(closed: SparkSession, lake: Lake, secret: Path, sql: str) -> None:
    """Spark gets no file, whatever another lexer makes of it."""
    try:
        rows = plan(closed, _typed(lake, sql.format(path=secret))).collect()
    except BadUsage:
        return
    assert _SECRET not in str(rows)


@pytest.mark.parametrize("text", SUBSTITUTED)
def test_a_text_is_not_replaced_by_the_environment(
    spark: SparkSession, closed: SparkSession, lake: Lake, text: str
) -> None:
    """In no session, neither as it is typed nor in a canonical text."""
    query = prepare_statement(read_state(lake, None, UTC), f"select '{text}' as a", {})
    assert "${" not in query.sql
    expected = [(text.replace("\\\\", "\\"),)]
    for session in (closed, spark):
        assert plan(session, query).collect() == expected
        assert session.sql(f"select '{text}' as a").collect() == expected


def test_a_name_that_no_table_has_is_no_function(closed: SparkSession, lake: Lake) -> None:
    """Spark takes `user` as a function then, which only the analysed tree shows."""
    query = prepare_statement(read_state(lake, None, UTC), "select user from orders", {})
    with pytest.raises(BadUsage, match="CurrentUser"):
        plan(closed, query)
    named = prepare_statement(read_state(lake, None, UTC), "select o.user from (select 1 as user) o", {})
    assert plan(closed, named).collect() == [(1,)]


def test_another_session_is_as_it_was(spark: SparkSession, closed: SparkSession) -> None:
    """The functions that Delta and the caller use still exist there."""
    assert closed is not spark
    assert spark.sql("select input_file_name(), xpath_string('<a>b</a>', 'a')").collect() == [("", "b")]


_TRAPS = r"""
select 'it''s', "a""b", 'a\'b', 'a' 'b', '', r'\d', R"\n", '\u0041\101\Z\%\_\q\0', 'größe', '\U0001F600', '$', '${'
select x'1F', X'ab', 1L, 2S, 3Y, 1.5BD, 1BD, 2.0D, 1F, .5, 1e3, 1.5E-3, 9223372036854775808, 007
select 1 -- comment
select /* a */ 1 /* b */ + /* c */ 2
select a<-1, a>-1, a<>-1, a!=-1, a<=>-b, -a, - -a, +a, ~a, a|b, a||b, a&b, a^b, a<<1, a>>1, a>>>1, a%b, !a from t
select a[0], a[0].b, m['x'], a.b.c, t.*, `a``b`, `a.b`, array(1)[0], v:a.b from t
select cast(a as array<array<int>>), cast(a as map<string,array<int>>), cast(a as struct<a:int,b:array<string>>) from t
select a::string, a::decimal(10,2), try_cast(a as int), interval 1 year 2 months, interval '1-2' year to month from t
select transform(a, x -> x + 1), aggregate(a, 0, (x, y) -> x + y), map_filter(m, (k, v) -> k <> v) from t
select a from t union all select b from u intersect select c from v except select d from w
from t select a where b
select date '2026-01-01', timestamp '2026-01-01 00:00:00', timestamp_ntz '2026-01-01', interval -1 day, - interval 1 day
select * from t tablesample (5 rows), u as x(a, b), lateral explode(a), (values (1)) y(a) lateral view explode(b) z as c
select count(distinct a), first(a) ignore nulls, sum(a) filter (where b) over (order by c rows 1 preceding) from t
select a like 'x!%' escape '!', a not in (1), a not between 1 and 2, a is not distinct from b, a rlike '\\d+' from t
select 1 + 1, upper('a'), 'a' || 'b', nvl(a, b), if(a, b, c), a + 1 as `x y`, count(*), (a), struct(1, 2), 1 = 1 from t
"""


def test_a_canonical_text_is_the_same_statement(spark: SparkSession) -> None:
    """Spark parses both to the same plan, so columns have the same names: literals, escapes, operators, types."""
    found = [sql for sql in _statements() if _parsed(spark, sql) != _parsed(spark, canonical_sql(sql))]
    assert not found, "\n".join(found)


def _statements() -> Iterator[str]:
    yield from _TRAPS.strip().splitlines()
    yield "select 'a\nb',\t1\r\n,\u00a02 -- x\r, 3"


def _parsed(spark: SparkSession, sql: str) -> str:
    plan: Any = cast("Any", spark)._jsparkSession.sessionState().sqlParser().parsePlan(sql)  # noqa: SLF001
    return re.sub(r"#\d+", "", f"{plan.toString()}")
