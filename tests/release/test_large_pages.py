"""Pages, facets and neighbours of large tables, compared with PostgreSQL: from memory, and with a tail.

The database has the locale C, so that texts of both are in the same order.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest

from auditlake.apply.apply import apply_pending
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.page import Page
from tests.postgres_dialect import create_database
from tests.server import Server

pytestmark = pytest.mark.pg
_ROWS = 21_000
_VALUES = {
    "m money": "((n * 7919 % 20011 - 10000) / 100.0)::numeric::money",
    "d date": "case n % 5 when 0 then 'infinity' when 1 then date '0044-03-15 BC' - n when 2 then date '9999-12-01' + n"
    " else date '1970-01-01' + n % 9000 end",
    "a numeric": "case n % 3 when 0 then 'NaN' when 1 then n % 50 else (n % 50)::numeric(10,2) / 4 end",
    "p numeric(6,2)": "case n % 9 when 0 then 'NaN' else n * 13 % 99999 / 100.0 end",
    "i interval": "n % 40 * case n % 2 when 0 then interval '1 day' else interval '24 hours' end",
    "f float8": "case n % 3 when 0 then '-0' when 1 then 'NaN' else n % 777 / 8.0 end",
    "j jsonb": "case n % 2 when 0 then to_jsonb((n % 20)::numeric(10,1)) else to_jsonb(n % 20) end",
    "c char(4)": "chr(97 + n % 26) || repeat(' ', n % 3)",
}
"""Columns, with their value in row n; in some rows it is NULL."""
_KEYS = ("m, id", "d, id", "a, p, id", "i, f, id")
"""In the order of the table's columns, as the stream does not tell that of the index."""
_PAGE = 40


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """A database with the locale C."""
    base = server.create_database()
    create_database(server.dsn(base), "large_pages")
    yield server.dsn("large_pages")
    server.drop_database("large_pages")
    server.drop_database(base)


def test_large_tables_are_paged_counted_and_walked_as_in_postgresql(database: str, tmp_path: Path) -> None:
    """Every column of the table in both directions, and tables with keys of these types."""
    with psycopg.connect(database, autocommit=True, options="-c lc_monetary=C -c timezone=UTC") as conn:
        tables = {"t": "id", **{f"k{n}": key for n, key in enumerate(_KEYS)}}
        for table, key in tables.items():
            conn.execute(f"create table {table} ({', '.join(_VALUES)}, id int, primary key ({key}))".encode())
        made = make_lake(database, tmp_path / "lake")
        _fill(conn, tables)
        capture(database, made)
        apply_pending(_without_spark, made)
        page = Page(made)
        for table in tables:
            page.json("rows", table=table, limit=1)
            page.resources.held.wait()
        assert len(page.resources.held.names) == len(tables)
        _require_same(conn, page, tables)
        for table in tables:
            conn.execute(f"delete from {table} where id % 7 = 3".encode())
            conn.execute(f"update {table} set m = m + '0.01', f = -f where id % 700 = 1".encode())
        capture(database, made)
        _require_same(conn, page, tables)


def _without_spark() -> NoReturn:
    pytest.fail("Spark was started")


def _fill(conn: psycopg.Connection, tables: dict[str, str]) -> None:
    for table in tables:
        may_be_null = [
            f"case when n % 41 = {place} then null else {value} end" for place, value in enumerate(_VALUES.values())
        ]
        values = ", ".join(may_be_null if table == "t" else _VALUES.values())
        conn.execute(f"insert into {table} select {values}, n from generate_series(1, {_ROWS}) n".encode())


def _require_same(conn: psycopg.Connection, page: Page, tables: dict[str, str]) -> None:
    sortable = {column["name"] for column in page.json("rows", table="t", limit=1)["columns"] if column["sortable"]}
    assert sortable == {"id", *(each.partition(" ")[0] for each in _VALUES)} - {"j"}
    for name in sorted(sortable):
        for sign, way in (("", "asc"), ("-", "desc")):
            _require_pages(conn, page, "t", f"t.{name} {way}, id", {"sort": sign + name})
    for name in (each.partition(" ")[0] for each in _VALUES):
        _require_facets(conn, page, name)
    for table, key in tables.items():
        _require_pages(conn, page, table, key, {})
        _require_walk(page, table)


def _require_pages(conn: psycopg.Connection, page: Page, table: str, order: str, given: dict[str, str]) -> None:
    expected = [number for (number,) in conn.execute(f"select id from {table} t order by {order}".encode())]
    for offset in (6000, len(expected) - 20):
        found = page.json("rows", table=table, offset=offset, limit=_PAGE, **given)
        assert found["count"] == len(expected), (table, order)
        assert [int(row["key"][-1]) for row in found["rows"]] == expected[offset : offset + _PAGE], (order, offset)


def _require_facets(conn: psycopg.Connection, page: Page, name: str) -> None:
    groups = [n for (n,) in conn.execute(f"select count(*) from t group by {name} order by 1 desc".encode())]
    found = page.json("facets", table="t", column=name)
    assert found["distinct"] == (len(groups) if len(groups) <= 10_000 else None), name
    assert [each["rows"] for each in found["values"] or ()] == groups[: len(found["values"] or ())], name


def _require_walk(page: Page, table: str) -> None:
    for offset in (0, _ROWS // 3):
        first, *_, last, following = (
            row["key"] for row in page.json("rows", table=table, offset=offset, limit=_PAGE + 1)["rows"]
        )
        for key, way, beside in ((last, "next", following), (following, "previous", last)):
            assert page.json("neighbour", table=table, key=key, way=way)["key"] == beside, (table, key)
        if not offset:
            assert page.json("neighbour", table=table, key=first, way="previous")["key"] is None
