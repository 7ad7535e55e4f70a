"""The digest of `make peers`: equal for equal rows in PostgreSQL and DuckDB, different for any other value."""

import duckdb
import pytest
from peers.digest import Digest, columns_of, of_relation, on_server

from tests.server import Server, execute

pytestmark = pytest.mark.pg

_COLUMNS = "id bigint primary key, d date, n numeric(12,2), c char(5), v varchar(9)"
_ROWS = "(1, '2026-11-25', 1.50, 'ab', 'x|y'), (2, '0001-01-01', -0.01, null, ''), (3, null, null, '', null)"


def _digests(server: Server, theirs: str) -> tuple[Digest, Digest]:
    dsn = server.dsn(server.create_database())
    execute(dsn, f"create table t ({_COLUMNS})", f"insert into t values {_ROWS}")
    with duckdb.connect() as conn:
        conn.execute(f"create table t ({_COLUMNS})")
        conn.execute(f"insert into t values {theirs}")
        return on_server(dsn, ["t"]), Digest.of_tables({"t": of_relation(conn, "t", columns_of(dsn, "t")["t"])})


def test_equal_rows_have_one_digest(server: Server) -> None:
    """Whatever their order, and the blanks of char(n)."""
    source, copied = _digests(server, ", ".join(reversed(_ROWS.replace("), (", ");(").split(";"))))
    assert source == copied
    assert source.rows == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [("1.50", "1.51"), ("2026-11-25", "2026-11-26"), ("'x|y'", "'x|Y'"), ("''), (3", "null), (3"), ("(1,", "(4,")],
)
def test_another_value_has_another_digest(server: Server, before: str, after: str) -> None:
    """Also NULL instead of an empty text."""
    source, copied = _digests(server, _ROWS.replace(before, after, 1))
    assert source.rows == copied.rows
    assert source.checksum != copied.checksum
