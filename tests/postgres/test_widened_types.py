"""Columns that got wider types: statements in PostgreSQL's dialect compute with the type of their moment."""

from pathlib import Path

import psycopg
import pytest

from tests import command
from tests.server import execute, install_trigger, wal_end

pytestmark = pytest.mark.pg

_STATEMENTS = (
    "select sum(n) / 2 as half, n * 2 as twice, pg_typeof(n), pg_typeof(m), pg_typeof(a) from t group by n, m, a",
    "select e[1] * 3000000000 as large, pg_typeof(e), d[1] * 1000 as d, pg_typeof(d) from t",
)
_WIDEN = "alter table t alter {} type {}"


def _asked(lake: Path, statement: str, *options: str) -> list[str]:
    done = command.run_here(["sql", "--format", "csv", "--lake", lake, *options, statement])
    assert done.code == 0, done.stderr
    return done.stdout.splitlines()[1:]


def _at_source(dsn: str, statement: str) -> list[str]:
    with psycopg.connect(dsn) as conn, conn.cursor().copy(f"copy ({statement}) to stdout csv".encode()) as rows:
        return b"".join(map(bytes, rows)).decode().splitlines()


def test_statements_compute_with_the_type_of_their_moment(database: str, tmp_path: Path) -> None:
    """Before and after apply, as of both moments; of versions with the last type. The history keeps the first type."""
    lake, settings = tmp_path / "lake", ["--source", database, "--lake", str(tmp_path / "lake")]
    columns = "n int, m smallint, a varchar(3), e int[], d numeric(5, 2)[]"
    execute(database, f"create table t (id int primary key, {columns})")
    execute(database, "insert into t values (1, 1000000001, 2, 'a', '{2}', '{1.5}')")
    install_trigger(database)
    assert command.run_here(["bootstrap", *settings]).code == 0
    before = str(wal_end(database))
    narrow = [_at_source(database, statement) for statement in _STATEMENTS[:1]]
    widened = {"n": "bigint", "m": "int", "a": "text", "e": "bigint[]", "d": "numeric(9, 2)[]"}
    for column, wider in widened.items():  # each alone: only then does the trigger know that there was no USING
        execute(database, _WIDEN.format(column, wider))
    assert command.run_here(["capture", "--until-current", *settings]).code == 0
    for _ in ("captured", "applied"):
        for statement in _STATEMENTS:
            assert _asked(lake, statement) == _at_source(database, statement)
        versions = _STATEMENTS[0].replace("from t", "from t for system_time all")
        assert _asked(lake, versions) == _at_source(database, _STATEMENTS[0])
        assert [_asked(lake, _STATEMENTS[0], "--as-of", before)] == narrow
        assert command.run_here(["apply", "--until-current", "--lake", lake]).code == 0
    execute(database, "update t set n = 5000000000, a = 'longer', d = '{1234567.5}'")
    assert command.run_here(["capture", "--until-current", *settings]).code == 0
    assert _asked(lake, "select n, a, d[1] from t") == _at_source(database, "select n, a, d[1] from t")


def test_a_value_of_a_wider_type_is_read_before_a_change_that_ends_the_history(database: str, tmp_path: Path) -> None:
    """A rewrite to a type that is not wider, or narrower again, does not change what a moment before it shows."""
    lake, settings = tmp_path / "lake", ["--source", database, "--lake", str(tmp_path / "lake")]
    execute(database, *(f"create table {table} (id int primary key, n numeric(5, 2))" for table in ("t", "u")))
    install_trigger(database)
    assert command.run_here(["bootstrap", *settings]).code == 0
    for table in ("t", "u"):
        execute(database, _WIDEN.format("n", "numeric(8, 2)").replace("table t", f"table {table}"))
        execute(database, f"insert into {table} values (2, 12345.67)")
    asked = str(wal_end(database))
    rows = {table: _at_source(database, f"select * from {table}") for table in ("t", "u")}
    execute(database, "alter table t alter n type float8 using n::float8", "truncate u")
    execute(database, "alter table u alter n type numeric(6, 2)")
    assert command.run_here(["capture", "--until-current", *settings]).code == 0
    for table, expected in rows.items():
        assert _asked(lake, f"select * from {table}", "--as-of", asked) == expected
        shown = command.run_here(["row", table, "2", "--until", asked, "--lake", lake])
        assert (shown.code, "12345.67" in shown.stdout) == (0, True), shown.stderr
