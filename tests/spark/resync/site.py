"""A lake with three tables of a database, whose new snapshots are tested."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import QueryBuilder

import auditlake
from auditlake.apply.apply import apply_pending
from auditlake.capture.supervisor import make_task, run_capture
from auditlake.delta.table import open_table
from auditlake.lake.layout import Lake
from auditlake.relation import TableName
from auditlake.resync.renewal import Renewal
from auditlake.resync.resync import ResyncTarget, Starters, resync
from auditlake.resync.supersede import Resynced
from auditlake.snapshot.bootstrap import Target, bootstrap
from tests import oracle
from tests.copied_here import WorkersHere
from tests.s3_server import chosen_lake
from tests.server import Server, execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SCHEMA = """
create table parts (id int, k text, v float8, primary key (id, k)) partition by list (k);
create table parts_a partition of parts for values in ('a');
create table parts_b partition of parts for values in ('b');
create table copies (x int, "file" text); alter table copies replica identity full;
create table other (id int primary key, d date, v text);
insert into parts select n, k, n / 3.0 from generate_series(1, 40) n, unnest(array['a', 'b']) k;
insert into copies select n % 5, 'c' from generate_series(1, 20) n;
insert into other values (1, 'infinity', 'a'), (2, '4000-01-01 BC', 'b'), (3, '2026-01-01', null);
"""
TABLES = ("parts", "copies", "other")


@dataclass(frozen=True)
class Site:
    """A lake with three tables of a database."""

    dsn: str
    lake: Lake
    spark: "SparkSession"

    def run(self, *statements: str) -> None:
        """Execute statements, each in a transaction."""
        execute(self.dsn, *statements)

    def catch_up(self) -> None:
        """Capture and apply everything."""
        run_capture(make_task(self.dsn, self.lake, "current"), Event(), lambda _: None)
        apply_pending(lambda: self.spark, self.lake)

    def resync(self, *tables: str, renewal: Renewal | None = None) -> list[Resynced]:
        """Give tables a new snapshot."""
        start = Starters(lambda: self.spark, lambda: WorkersHere(1))
        names = [TableName("public", table) for table in tables]
        return resync(ResyncTarget(self.dsn, self.lake, renewal=renewal), names, start, lambda _: None)

    def moment(self) -> oracle.Moment:
        """Return PostgreSQL's rows now."""
        return oracle.take_moment(self.dsn, TABLES)

    def rows(self, sql: str, as_of: str | None = None) -> Counter[tuple[Any, ...]]:
        """Query the lake."""
        return Counter(map(tuple, auditlake.sql(self.spark, self.lake.root, sql, as_of).collect()))

    def shown(self, sql: str) -> Counter[tuple[Any, ...]]:
        """Query PostgreSQL."""
        with psycopg.connect(self.dsn) as conn:
            return Counter(conn.execute(sql.encode()).fetchall())

    def versions(self, table: str, condition: str = "true") -> Counter[str]:
        """Return the versions of a table as they are stored."""
        found = QueryBuilder().register("h", open_table(self.lake.history(TableName("public", table))))
        rows = pa.table(found.execute(f"select * from h where {condition}").read_all()).to_pylist()
        return Counter(str(row) for row in rows)


@pytest.fixture
def site(server: Server, spark: "SparkSession", tmp_path: Path) -> Iterator[Site]:
    """Bootstrap the tables."""
    name = server.create_database("resync")
    made = Site(server.dsn(name), chosen_lake(tmp_path / "lake"), spark)
    try:
        made.run(SCHEMA)
        bootstrap(Target(made.dsn, made.lake, "resync", "resync", None), lambda: WorkersHere(1), lambda _: None)
        yield made
    finally:
        server.drop_database(name)
