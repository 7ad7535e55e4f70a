"""Test of as-of queries on a real server: at each recorded moment they return what PostgreSQL returned.

A walk is statements of every kind, each followed by queries to PostgreSQL. The lake is queried three times: while all
changes are in the tail, after half of them were merged, and after all were.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from auditlake.apply.apply import apply_pending
from auditlake.audit.lake_reader import Reader
from auditlake.capture.supervisor import make_task, run_capture
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.query.embedded.engine import Embedded
from auditlake.query.formats import python_rows
from auditlake.query.spark_engine import run_sql
from auditlake.query.statement import prepare_statement, read_state
from auditlake.relation import TableName
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.worker_pool import LocalWorkers
from auditlake.source.connection import connect, fetch
from auditlake.source.server import wal_end
from tests.arrow_state import texts_at
from tests.s3_server import chosen_lake
from tests.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_SCHEMA = """
create table public.orders (id int primary key, status text, total numeric(10,2), note text);
alter table public.orders alter note set storage external;
create table public."Order Lines" (id int, "line no" smallint, amount numeric(10,2), primary key (id, "line no"));
insert into public.orders select n, 'placed', n * 1.5, repeat(n::text, 3000) from generate_series(1, 20) n;
insert into public."Order Lines" select n, m, 1 from generate_series(1, 20) n, generate_series(1, 3) m;
"""

_LARGE = "(select string_agg(md5(n::text), '') from generate_series(1, 300) n)"
_STEPS = (
    "insert into public.orders values (21, 'placed', 0.01, null), (22, null, null, '')",
    "update public.orders set status = 'paid' where id < 5",
    'delete from public."Order Lines" where id = 3',
    "update public.orders set id = 100, status = 'moved' where id = 4",
    f"update public.orders set note = {_LARGE} where id = 5",
    "update public.orders set total = total + 1 where id in (5, 6)",
    """begin;
       update public.orders set status = 'a' where id = 7;
       update public.orders set status = 'b' where id = 7;
       delete from public.orders where id = 8;
       insert into public.orders values (8, 'again', 8, 'again');
       insert into public.orders values (900, 'never', 1, 'seen');
       delete from public.orders where id = 900;
       commit""",
    """begin;
       update public.orders set id = -1 where id = 9;
       update public.orders set id = 9 where id = 10;
       update public.orders set id = 10 where id = -1;
       commit""",
    f"""begin;
       insert into public.orders values (30, 'chain', 1, {_LARGE});
       update public.orders set total = 2 where id = 30;
       update public.orders set id = 31 where id = 30;
       update public.orders set status = 'end' where id = 31;
       commit""",
    """begin;
       insert into public."Order Lines" values (77, 1, 7);
       truncate public."Order Lines";
       insert into public."Order Lines" values (1, 1, 42);
       commit""",
    "update public.orders set status = status",
    "begin; truncate public.orders; commit",
    "insert into public.orders values (1, 'back', 1, 'x')",
)
_QUESTIONS = {
    "orders": "select id, status, total, note from public.orders order by id",
    "lines": 'select id, "line no", amount from public."Order Lines" order by 1, 2',
    "join": "select o.id, o.status, count(l.id), sum(l.amount) from public.orders o"
    ' left join public."Order Lines" l on l.id = o.id group by o.id, o.status order by o.id',
}


@dataclass(frozen=True)
class Walk:
    """A lake, and PostgreSQL's answers at each moment: LSN, time, answers."""

    conninfo: str
    lake: Lake
    moments: list[tuple[Lsn, int, dict[str, list[tuple[object, ...]]]]]


@pytest.fixture
def walk(server: Server, tmp_path: Path) -> Iterator[Walk]:
    """Bootstrap, execute every step, and capture; apply nothing yet."""
    name = server.create_database("walk")
    conninfo = server.dsn(name)
    lake = chosen_lake(tmp_path / "lake")
    with connect(conninfo) as conn:
        conn.execute(_SCHEMA)
        bootstrap(Target(conninfo, lake, "walk", "walk", None), lambda: LocalWorkers(2), lambda _: None)
        moments = []
        for step in ("select 1", *_STEPS):
            conn.execute(step)
            answers = {key: fetch(conn, question) for key, question in _QUESTIONS.items()}
            end = wal_end(conn)
            moments.append((Lsn(end.lsn - 1), end.time_us, answers))
            fetch(conn, "select pg_sleep(0.002)")
    run_capture(make_task(conninfo, lake, "current"), Event(), lambda _: None)
    yield Walk(conninfo, lake, moments)
    server.drop_database(name)


def _ask(walk: Walk, spark: "SparkSession", question: str, when: str | None = None) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in run_sql(spark, walk.lake, question.replace('"', "`"), when).collect()]


def _check_moment(walk: Walk, spark: "SparkSession", number: int, when: Callable[[Lsn, int], str], *keys: str) -> None:
    """Compare the answers to these questions, by default all, as of one moment."""
    lsn, time_us, answers = walk.moments[number]
    for key in keys or _QUESTIONS:
        assert answers[key] == _ask(walk, spark, _QUESTIONS[key], when(lsn, time_us)), (key, number)


def _check_versions(walk: Walk, spark: "SparkSession") -> None:
    """Read all versions of the tables once, and compare the states that they imply with every moment."""
    for key in ("orders", "lines"):
        columns, table = _QUESTIONS[key].removeprefix("select ").split(" order by")[0].split(" from ")
        every = _ask(walk, spark, f"select _from_lsn, _to_lsn, {columns} from {table} for system_time all")
        for lsn, _, answers in walk.moments:
            state = [row[2:] for row in every if row[0] <= lsn and (row[1] is None or row[1] > lsn)]
            assert answers[key] == sorted(state), (key, lsn)


def _of_duckdb(lake: Lake, when: str) -> dict[str, list[tuple[Any, ...]]]:
    """Answer every question as of one moment."""
    state, engine = read_state(lake, when, UTC), Embedded({})
    queries = {key: prepare_statement(state, sql.replace('"', "`"), {}) for key, sql in _QUESTIONS.items()}
    return {key: list(python_rows(*engine.answer(state, query).batches())) for key, query in queries.items()}


def _check_states(walk: Walk) -> None:
    """Check the states of every moment, and the answers of DuckDB to every question, without Spark."""
    for lsn, _, answers in walk.moments:
        assert answers == _of_duckdb(walk.lake, str(lsn)), lsn
    reader = Reader(walk.lake, datetime(2026, 11, 21, tzinfo=UTC))
    for lsn, _, answers in walk.moments:
        for key, table in (("orders", "orders"), ("lines", "Order Lines")):
            printed = Counter(tuple(None if v is None else str(v) for v in row) for row in answers[key])
            assert printed == texts_at(reader, TableName("public", table), lsn)[1], (key, lsn)


def _by_lsn(lsn: Lsn, _: int) -> str:
    return str(lsn)


def _by_time(_: Lsn, time_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()


def test_every_moment_equals_postgresql_before_during_and_after_apply(walk: Walk, spark: "SparkSession") -> None:
    """History and tail together return PostgreSQL's answers, at any position; then, another run changes nothing."""
    _check_states(walk)
    _check_versions(walk, spark)
    _check_moment(walk, spark, len(_STEPS) // 2, _by_time)

    apply_pending(lambda: spark, walk.lake, upto=walk.moments[len(walk.moments) // 2][0])
    _check_moment(walk, spark, -3, _by_lsn)
    _check_states(walk)

    apply_pending(lambda: spark, walk.lake)
    _check_states(walk)
    _check_versions(walk, spark)
    for number, when, key in ((0, _by_lsn, "join"), (4, _by_time, "orders"), (len(_STEPS), _by_lsn, "lines")):
        _check_moment(walk, spark, number, when, key)
    _check_periods(walk, spark)
    _check_idle_run(walk, spark)


def _check_periods(walk: Walk, spark: "SparkSession") -> None:
    """Check that no two versions of a key overlap, none is empty, and at most one is open."""
    wrong = _ask(
        walk,
        spark,
        "select a.id from public.orders for system_time all a join public.orders for system_time all b"
        " on a.id = b.id and a._from_lsn < b._from_lsn and (a._to_lsn is null or a._to_lsn > b._from_lsn)"
        " union all select id from public.orders for system_time all where _to_lsn <= _from_lsn"
        " union all select id from public.orders for system_time all where _to_lsn is null"
        " group by id having count(*) > 1",
    )
    assert wrong == []


def _check_idle_run(walk: Walk, spark: "SparkSession") -> None:
    """Check that capture up to the same point moves no watermark, and apply finds no tail."""
    before = read_positions(walk.lake)
    run_capture(make_task(walk.conninfo, walk.lake, "current"), Event(), lambda _: None)
    after = read_positions(walk.lake)
    assert before is not None
    assert after is not None
    assert before.watermark == after.watermark
    assert dict(apply_pending(lambda: spark, walk.lake).rows) == {}
