"""Test of schema changes while tables are followed: at each moment the lake has PostgreSQL's rows and columns.

Each step ends with a change of every altered table, so that the stream has sent the new shape. Rows exist before the
snapshot, and some never change again.
"""

from collections import Counter
from collections.abc import Iterator
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

import auditlake
from auditlake.apply.apply import apply_pending
from auditlake.capture.supervisor import make_task, run_capture
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.worker_pool import SparkWorkers
from auditlake.source.connection import connect
from auditlake.source.server import wal_end
from tests.server import Server

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_SCHEMA = """
set search_path = public;
create table keyed (id int primary key, a text, b int, day date);
insert into keyed select n, 'a' || n, n, case when n % 2 = 0 then date 'infinity' else '2026-11-22' end
  from generate_series(1, 8) n;
create table bag (n int, a text, b int);
alter table bag replica identity full;
insert into bag values (1, 'x', 1), (1, 'x', 2), (1, 'y', 1), (2, null, 3);
"""
_STEPS: tuple[tuple[str, ...], ...] = (
    # Renamed: the same column; two columns exchange their names.
    (
        "alter table keyed rename column a to c",
        "update keyed set c = 'renamed' where id = 1",
        """begin; alter table keyed rename b to x; alter table keyed rename id to b; alter table keyed rename x to id;
           update keyed set id = id + 100 where b = 2; commit""",
    ),
    # Dropped: values stay in the past; rows of a table without a key become equal.
    (
        """begin; update keyed set day = 'infinity' where b = 3; alter table keyed drop column day;
           update keyed set c = c || '!' where b in (3, 4); delete from keyed where b = 5; commit""",
        "insert into bag values (3, 'before', 9)",
        "alter table bag drop column b",
        "delete from bag where ctid = (select min(ctid) from bag where n = 1 and a = 'x')",
        "insert into bag values (1, 'y')",
    ),
    # Dropped and added again under the same name, in another place; added and dropped.
    (
        "alter table keyed drop column c, add column c text default 'again'",
        "alter table keyed add column day date default '-infinity'",
        "update keyed set c = null where b = 6",
        "alter table keyed add column short int default 5; update keyed set short = 6 where b = 7",
        "alter table keyed drop column short; update keyed set c = 'last' where b = 7",
    ),
    # Rolled back; several changes in one transaction with row changes between them.
    (
        "begin; alter table keyed drop column day; update keyed set c = 'never'; rollback",
        """begin;
             insert into keyed (id, b, c, day) values (1, 20, 'new', 'infinity');
             alter table keyed rename c to d;
             update keyed set d = 'renamed' where b = 20;
             alter table keyed add column c int default 7;
             update keyed set c = 8 where b = 1;
             alter table keyed drop column id;
             delete from keyed where b = 2;
           commit""",
        "truncate bag",
        "insert into bag values (1, 'z')",
    ),
    # The name of the table.
    (
        "alter table keyed rename to renamed",
        "update renamed set d = 'elsewhere' where b = 3",
        "create schema other",
        "alter table renamed set schema other",
        "insert into other.renamed (b, d) values (30, 'there')",
    ),
)


class Walk:
    """A lake, and PostgreSQL's columns and rows of every table by LSN."""

    def __init__(self, conninfo: str, lake: Lake) -> None:
        self.conninfo = conninfo
        self.lake = lake
        self.moments: list[tuple[Lsn, dict[str, tuple[list[str], Counter[tuple[Any, ...]]]], str]] = []

    def note(self, conn: "psycopg.Connection[Any]") -> None:
        """Record the present state."""
        lsn = Lsn(wal_end(conn).lsn - 1)
        found = conn.execute("select to_regclass('keyed'), to_regclass('renamed')").fetchone()
        name = next((str(each) for each in found or () if each), "other.renamed")
        self.moments.append((lsn, {"keyed": _shown(conn, name), "bag": _shown(conn, "bag")}, name))


def _shown(conn: "psycopg.Connection[Any]", table: str) -> tuple[list[str], Counter[tuple[Any, ...]]]:
    cursor = conn.execute(f"select * from {table}")
    columns = [column.name for column in cursor.description or ()]
    texts = ", ".join(f'"{column}"::text' for column in columns)
    return columns, Counter(conn.execute(f"select {texts} from {table}").fetchall())


@pytest.fixture(scope="module")
def walk(server: Server, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """Bootstrap and execute the steps, with a capture after each; apply nothing."""
    name = server.create_database("shapes")
    made = Walk(server.dsn(name), Lake(tmp_path_factory.mktemp("shapes") / "lake"))
    with connect(made.conninfo) as conn:
        conn.execute(_SCHEMA)
        bootstrap(
            Target(made.conninfo, made.lake, "shapes", "shapes", None), lambda: SparkWorkers(spark), lambda _: None
        )
        for step in ((), *_STEPS):
            for statement in step:
                conn.execute(statement)
                if "keyed" not in statement or "update" in statement:
                    _capture(made)
            made.note(conn)
    _capture(made)
    yield made
    server.drop_database(name)


def _capture(walk: Walk) -> None:
    run_capture(make_task(walk.conninfo, walk.lake, "current"), Flag(), lambda _: None)


def _check_states(walk: Walk, spark: "SparkSession", numbers: range) -> None:
    """Check columns and rows of every moment, in Spark and in Arrow."""
    for number in numbers:
        lsn, tables, name = walk.moments[number]
        for table, asked in (("keyed", name), ("bag", "bag")):
            columns, rows = tables[table]
            frame = auditlake.read(spark, walk.lake.root, asked, str(lsn), raw=True)
            assert frame.columns == [*columns, "_raw"], (number, table)
            texts = [F.coalesce(F.col("_raw")[c], F.col(c).cast("string")).alias(c) for c in columns]
            assert Counter(map(tuple, frame.select(*texts).collect())) == rows, (number, table)


def test_every_moment_has_postgresqls_columns_and_rows(walk: Walk, spark: "SparkSession") -> None:
    """All applied."""
    applied = apply_pending(lambda: spark, walk.lake)
    assert [parked.reason for parked in applied.parked.values()] == []
    _check_states(walk, spark, range(len(walk.moments)))
