"""One database followed into two lakes, each with its slot and publication: what remains of its order (scaling.md)."""

from pathlib import Path

import psycopg
import pytest

from auditlake.api.lake import Lake
from auditlake.errors import NotAnswerable
from tests.capture_lake import make_lake
from tests.capture_once import capture

pytestmark = pytest.mark.pg


def _rows(lake: Lake, moment: str, table: str) -> list[tuple[int, int]]:
    rows = lake.as_of(moment).table(table, order_by=["id"]).to_arrow().to_pylist()
    return [(row["id"], row["quantity"]) for row in rows]


def test_an_lsn_means_the_same_moment_in_both_lakes(database: str, tmp_path: Path) -> None:
    """A transaction over tables of both has one LSN and one xid; a lake that is behind refuses the moment."""
    with psycopg.connect(database, autocommit=True) as conn:
        for table in ("orders", "stock"):
            conn.execute(f"create table {table} (id int primary key, quantity int)")
        sides = {
            "orders": make_lake(database, tmp_path / "one", {"stock"}, name="side_orders"),
            "stock": make_lake(database, tmp_path / "two", {"orders"}, name="side_stock"),
        }
        with conn.transaction():
            conn.execute("insert into orders values (1, 3)")
            conn.execute("insert into stock values (1, 97)")
        conn.execute("update stock set quantity = 50")
        for lake in sides.values():
            capture(database, lake)
        with conn.transaction():
            conn.execute("update orders set quantity = 4")
            conn.execute("update stock set quantity = 49")
        capture(database, sides["stock"])
    orders, stock = Lake(sides["orders"].root), Lake(sides["stock"].root)
    (both,) = orders.log(limit=None)
    last, middle, first = stock.log(limit=None)
    assert (both.lsn, both.xid) == (first.lsn, first.xid)
    assert _rows(orders, str(first.lsn), "orders") == [(1, 3)]
    assert _rows(stock, str(first.lsn), "stock") == [(1, 97)]
    assert _rows(orders, str(middle.lsn), "orders") == [(1, 3)]
    assert _rows(stock, str(middle.lsn), "stock") == [(1, 50)]
    with pytest.raises(NotAnswerable):
        _rows(orders, str(last.lsn), "orders")
    assert [len(orders.tables()), len(stock.tables())] == [1, 1]
