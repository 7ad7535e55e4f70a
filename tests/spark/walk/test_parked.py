"""Tests of parked tables: each is parked at the change that cannot be followed, and all others continue."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

import pytest

import auditlake
from auditlake import follow as stage
from auditlake.audit.lake_reader import Reader
from auditlake.audit.queries import DiffQuestion
from auditlake.capture.supervisor import make_task, run_capture
from auditlake.errors import NotAnswerable, Unsupported
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Parked
from auditlake.lsn import Lsn
from auditlake.query.exported_views import exact_up_to
from auditlake.relation import TableName
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.worker_pool import SparkWorkers
from auditlake.source.connection import connect
from auditlake.source.ddl_trigger import install_ddl_trigger
from auditlake.source.server import wal_end
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.temporal.moments import read_known
from auditlake.values.escapes import decode_bytes
from tests.s3_server import chosen_lake
from tests.server import Server

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_SCHEMA = r"""
set search_path = public;
create cast (bytea as text) without function; create cast (text as bytea) without function;
create type mood as enum ('good', 'bad');
create type pair as (a int, b text);
create table fine (id int primary key, v text);
create table wide (id int primary key, v varchar(10), n numeric(8,2), s smallint, a int[], t timestamp(3));
create table moods (m mood, n int); alter table moods replica identity full;
create table pairs (p pair, n int); alter table pairs replica identity full;
create table narrow (id int primary key, gone text);
insert into fine values (1, 'a'), (2, '\x63e9'::bytea::text);
insert into wide values (1, 'x', 1.50, 1, '{1}', '2026-01-01');
insert into moods values ('good', 1), ('bad', 2);
insert into pairs values ((1, 'x'), 1);
insert into narrow values (1, 'g');
"""
_CHANGED = (
    "update fine set v = '\\xff'::bytea::text where id = 1",
    "update moods set n = 3 where n = 2",
    "insert into narrow values (2, 'h')",
    "alter table wide alter id type bigint, alter v type text, alter n type numeric(12,2), alter s type int",
    "alter table wide alter a type bigint[], alter t type timestamp",
    "insert into wide values (2, 'longer than ten', 2.25, 2, '{2}', '2026-01-01 00:00:00.123456')",
    "update wide set s = 5 where id = 1",
)
_STOPPED = (
    "alter type mood rename value 'good' to 'great'",
    "alter type pair add attribute c int",
    "update moods set n = 4 where n = 1",
    "update pairs set n = 2",
    "alter table narrow drop column gone",
    "update narrow set id = 3 where id = 2",
    "insert into wide (id) values (3000000000)",
)
_AFTER = ("insert into fine values (3, 'c')", "insert into wide (id) values (4)", "insert into narrow values (5)")
_TABLES = ("fine", "wide", "moods", "pairs", "narrow")


@dataclass(frozen=True)
class Site:
    """A lake with everything captured, and PostgreSQL's rows before any parking and at the end."""

    dsn: str
    lake: Lake
    before: Lsn
    shown: dict[str, Counter[tuple[Any, ...]]]
    followed: dict[str, Counter[tuple[Any, ...]]]
    steps: list[tuple[Lsn, Lsn]]


@pytest.fixture
def site(server: Server, spark: "SparkSession", tmp_path: Path) -> Iterator[Site]:
    """Bootstrap, change the tables, and capture."""
    name = server.create_database("parked")
    lake, dsn = chosen_lake(tmp_path / "lake"), server.dsn(name)
    try:
        with connect(dsn) as conn:
            conn.execute(_SCHEMA.encode())
            install_ddl_trigger(conn)  # so that each change is parked at its commit
            target = Target(dsn, lake, "parked", "parked", None)
            bootstrap(target, lambda: SparkWorkers(spark), lambda _: None)
            _run(conn, *_CHANGED)
            before, shown = Lsn(wal_end(conn).lsn - 1), {table: _shown(conn, table) for table in _TABLES}
            steps = [_run(conn, statement) for statement in _STOPPED]
            _run(conn, *_AFTER)
            followed = {table: _shown(conn, table) for table in ("fine", "narrow")}
        run_capture(make_task(dsn, lake, "current"), Flag(), lambda _: None)
        yield Site(dsn, lake, before, shown, followed, steps)
    finally:
        server.drop_database(name)


def test_one_table_that_cannot_be_followed_does_not_stop_the_others(site: Site, spark: "SparkSession") -> None:
    """Values stay exact in a wider type. Unfit values and rewritten texts park their table there."""
    _check_refused_before_apply(site, spark)
    said: list[str] = []
    with pytest.raises(Unsupported, match="all other tables have reached") as caught:
        stage.follow(make_task(site.dsn, site.lake, "current"), SparkOnDemand({}), Flag(), said.append)
    parked = {name.table: each for name, each in read_known(site.lake).parked.items()}
    assert sum("other tables are followed" in line for line in said) == len(parked)
    assert all(f"public.{table} is parked at {each.lsn}" in caught.value.message for table, each in parked.items())
    reasons = {
        "moods": (0, "ALTER TYPE changed the text of existing rows"),
        "pairs": (1, "ALTER TYPE changed the text of existing rows"),
        "wide": (6, "Spark cannot read a value"),
    }
    assert parked.keys() == reasons.keys()
    for table, (step, reason) in reasons.items():
        low, high = site.steps[step]
        assert low <= parked[table].lsn + 1 < high, table
        assert reason in parked[table].reason

    assert _read(spark, site.lake, "fine", None) == site.followed["fine"]
    assert _read(spark, site.lake, "narrow", None, "id") == site.followed["narrow"]
    for table in _TABLES:
        assert _read(spark, site.lake, table, str(site.before)) == site.shown[table], table
    for table, each in parked.items():
        _check_refused(spark, site.lake, table, each)


def _check_refused_before_apply(site: Site, spark: "SparkSession") -> None:
    """Check that queries detect, before apply, the changes that cannot be followed."""
    reader = Reader(site.lake, datetime(2026, 11, 21, tzinfo=UTC))
    for table in ("moods", "pairs"):
        with pytest.raises(NotAnswerable, match=rf"public\.{table} .* ALTER TYPE changed the text of existing rows"):
            auditlake.sql(spark, site.lake.root, f"select * from {table}")
        with pytest.raises(NotAnswerable, match="ALTER TYPE changed the text of existing rows"):
            DiffQuestion(str(site.before), None, (table,), reverse=False).diffs(reader)


def _run(conn: "psycopg.Connection[Any]", *statements: str) -> tuple[Lsn, Lsn]:
    low = wal_end(conn).lsn
    for statement in statements:
        conn.execute(statement.encode())
    return low, wal_end(conn).lsn


def _shown(conn: "psycopg.Connection[Any]", table: str) -> Counter[tuple[Any, ...]]:
    cursor = conn.execute(f"select * from {table} limit 0")
    texts = ", ".join(f"{column.name}::text::bytea" for column in cursor.description or ())
    rows = conn.execute(f"select {texts} from {table}").fetchall()
    return Counter(tuple(None if raw is None else decode_bytes(raw) for raw in row) for row in rows)


def _read(spark: "SparkSession", lake: Lake, table: str, as_of: str | None, *names: str) -> Counter[tuple[Any, ...]]:
    columns = [column.name for column in read_known(lake).tables[TableName("public", table)].columns]
    texts = ", ".join(f"exact_text({name})" for name in names or columns)
    rows = auditlake.sql(spark, lake.root, f"select {texts} from {table}", as_of).collect()
    return Counter(tuple(row) for row in rows)


def _check_refused(spark: "SparkSession", lake: Lake, table: str, parked: Parked) -> None:
    after, reason = Lsn(parked.lsn + 1), re.escape(parked.reason)
    for as_of in (None, str(after)):
        with pytest.raises(NotAnswerable, match=f"known up to {parked.lsn}: {reason}"):
            auditlake.sql(spark, lake.root, f"select * from {table}", as_of)
    ended = f"select count(*) from {table} for system_time all"
    assert auditlake.sql(spark, lake.root, ended).collect()[0][0] > 0
    known = read_known(lake)
    reach = {each.name.table: upto for each, upto in exact_up_to(known).items()}
    assert reach[table] <= parked.lsn
