"""History tables stay readable by Spark, deltalake, DuckDB and polars after changes of their columns.

After each change the four readers return the same rows of the physical table, all versions of the past included, and
its open versions are PostgreSQL's rows in the columns of that moment.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta
import polars as pl
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.parking import read_parked
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.worker_pool import LocalWorkers
from auditlake.sql_names import standard_identifier
from tests.server import Server
from tests.spark.resync.site import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.timeout(1800)]

Rows = Counter[tuple[str | None, ...]]
Reader = Callable[[Path, list[str]], list[tuple[Any, ...]]]
_SCHEMA = """
create type mood as enum ('sad', 'ok');
create table t (id int primary key, a text, "B c" int, n numeric(8,2), m mood, v varchar(20));
insert into t select n, 'row ' || n, n, n, 'sad', 'v' from generate_series(1, 6) n;
"""
_CHANGES = (
    "alter table t add d int default 7",
    "alter table t add e text; update t set e = 'e' where id = 1",
    'alter table t rename "B c" to b; update t set b = 0 where id = 2',
    "alter table t drop a; delete from t where id = 3",
    "alter table t add a int default 1; update t set a = 2 where id = 1",
    "alter table t add \"A\" text default 'upper'",
    "alter table t alter v type text; update t set v = repeat('v', 50) where id = 1",
    "alter table t alter b type bigint; insert into t (id, b) values (20, 3000000000)",
    "alter table t alter n type numeric(12,2); update t set n = 12345678.25 where id = 1",
    "alter table t alter d type text using 'd' || d; insert into t (id, d) values (21, 'text')",
    "alter table t alter id type bigint; insert into t (id) values (5000000000)",
    "alter table t add x float default random()",
)


@pytest.fixture
def site(server: Server, spark: "SparkSession", tmp_path: Path) -> Iterator[Site]:
    """Bootstrap one table."""
    name = server.create_database("readers")
    made = Site(server.dsn(name), Lake(tmp_path / "lake"), spark)
    made.run(_SCHEMA)
    bootstrap(Target(made.dsn, made.lake, "readers", "readers", None), lambda: LocalWorkers(1), lambda _: None)
    yield made
    server.drop_database(name)


@pytest.fixture
def readers(spark: "SparkSession") -> Iterator[Mapping[str, Reader]]:
    """Return the readers by name: each returns all rows in these columns."""

    def by_spark(path: Path, columns: list[str]) -> list[tuple[Any, ...]]:
        quoted = [f"`{name}`" for name in columns]
        return [tuple(row) for row in spark.read.format("delta").load(str(path)).select(*quoted).collect()]

    def by_deltalake(path: Path, columns: list[str]) -> list[tuple[Any, ...]]:
        found = QueryBuilder().register("t", DeltaTable(path)).execute(f"select {_listed(columns)} from t").read_all()
        return _tuples(pa.table(found))

    def by_polars(path: Path, columns: list[str]) -> list[tuple[Any, ...]]:
        return pl.scan_delta(str(path)).select(columns).collect().rows()

    folder = Path(duckdb_extension_delta.__file__).parent
    with duckdb.connect() as connection:
        connection.load_extension(str(next(folder.rglob("delta.duckdb_extension"))))

        def by_duckdb(path: Path, columns: list[str]) -> list[tuple[Any, ...]]:
            return connection.execute(f"select {_listed(columns)} from delta_scan('{path}')").fetchall()

        yield {"spark": by_spark, "deltalake": by_deltalake, "polars": by_polars, "duckdb": by_duckdb}


def _listed(columns: list[str]) -> str:
    return ", ".join(map(standard_identifier, columns))


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _texts(rows: list[tuple[Any, ...]]) -> Rows:
    return Counter(tuple(None if value is None else str(value) for value in row) for row in rows)


def _source_rows(dsn: str, table: HistoryTable) -> Rows:
    columns = ", ".join(f"{standard_identifier(column.name)}::text" for column in table.current)
    with psycopg.connect(dsn) as conn:
        return Counter(conn.execute(f"select {columns} from t".encode()).fetchall())


def test_every_reader_returns_the_same_rows_after_each_change(site: Site, readers: Mapping[str, Reader]) -> None:
    """A table that is parked by a change gets its new snapshot before it is read."""
    shapes = set()
    for change in _CHANGES:
        site.run(*change.split("; "))
        site.catch_up()
        if read_parked(site.lake, list_histories(site.lake)):
            site.resync("t")
            site.catch_up()
        (table,) = list_histories(site.lake)
        physical = [column.stored for column in table.columns]
        columns = [*physical, "_from_lsn", "_to_lsn", "_op", "_end_op", "_part"]
        found = {name: _texts(read(table.path, columns)) for name, read in readers.items()}
        assert found == dict.fromkeys(found, found["spark"]), change
        opened = Counter[tuple[str | None, ...]]()
        places = [columns.index(column.stored) for column in table.current]
        for row, count in found["deltalake"].items():
            if row[-1] == "open":
                opened[tuple(row[place] for place in places)] += count
        assert opened == _source_rows(site.dsn, table), change
        shapes.add(tuple(physical))
    assert len(shapes) >= len(_CHANGES) // 2
