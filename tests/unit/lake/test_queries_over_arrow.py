"""Joins of tables whose rows are partly in files and partly in memory, as with changes that are not applied yet."""

from typing import TYPE_CHECKING

import pyarrow as pa

from auditlake.delta.sql import open_duckdb

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ROWS = 3000


def _table(connection: "DuckDBPyConnection", name: str, rows: pa.Table) -> None:
    """Create a view of a twentieth of the rows in memory, and of the others in a table."""
    in_memory = rows.num_rows // 20
    connection.register(f"new_{name}", rows.slice(0, in_memory))
    connection.register("rest", rows.slice(in_memory))
    connection.execute(f"create table old_{name} as select * from rest")
    connection.execute(f"create view {name} as select * from old_{name} union all select * from new_{name}")


def test_a_join_filters_rows_in_memory_by_itself() -> None:
    """DuckDB would push a Bloom filter into the scan of Arrow, which fails: sparse keys, and a condition."""
    connection = open_duckdb()
    _table(connection, "orders", pa.table({"id": [n * 37 for n in range(_ROWS)]}))
    lines = {"id": [n // 4 * 37 for n in range(4 * _ROWS)], "place": list(range(4 * _ROWS))}
    _table(connection, "lines", pa.table(lines))
    sql = "select count(*) from orders join lines using (id) where place between 100 and 1200"
    assert connection.execute(sql).fetchall() == [(1101,)]


def test_no_join_pushes_a_filter_into_a_scan() -> None:
    """Such filters lose rows if threads run in parallel, too rarely for a test; no cursor may turn them on."""
    sql = "select count(*) from range(100000) a(n) join range(0, 100000, 1000) b(n) using (n)"
    with open_duckdb() as connection, connection.cursor() as cursor:
        (disabled,) = cursor.execute("select current_setting('disabled_optimizers')").fetchall()[0]
        assert "join_filter_pushdown" in disabled.split(",")
        assert cursor.execute(sql).fetchall() == [(100,)]
