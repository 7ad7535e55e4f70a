"""Every command on a lake in S3, with `kill -9` in between; what PostgreSQL shows is what the lake shows."""

import csv
import io
from pathlib import Path

import psycopg
import pytest

from auditlake.failpoints import After
from auditlake.store.place import Remote
from tests import command
from tests.crash.killed import SPARK, killed_at
from tests.s3_server import SECRET

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1200)]

_QUERY = "select id, note, total from public.orders order by id"


def _run(*arguments: str | Path) -> str:
    done = command.run(arguments, SPARK)
    assert done.code == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done.stdout


def test_every_command_works_on_a_bucket_and_survives_kills(database: str, remote_folder: Remote) -> None:
    """Bootstrap is killed before its commit, follow after each of its effects."""
    lake = ["--lake", str(remote_folder)]
    both = ["--source", database, *lake]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, note text, total numeric(10,2))")
        conn.execute("insert into orders select n, 'note ' || n, n * 1.5 from generate_series(1, 500) n")
        killed_at(After.FILES_COPIED, ["bootstrap", *both])
        _run("bootstrap", *both)
        before = conn.execute(_QUERY).fetchall()
        assert "orders" in _run("status", "--json", *both)
        for step, place in enumerate((After.CHANGES, After.ROWS_WRITTEN, After.TABLE_MERGED)):
            conn.execute("update orders set note = %s where id %% 7 = %s", [f"step {step}", step])
            conn.execute("delete from orders where id = %s", [step + 100])
            conn.execute("insert into orders values (%s, 'new', 1)", [1000 + step])
            killed_at(place, ["follow", "--until-current", *both])
        conn.execute("update orders set total = 0 where id > 400")
        _run("follow", "--until-current", *both)
        after = conn.execute(_QUERY).fetchall()

    assert len(_run("log", "--json", *lake).splitlines()) == 10
    assert _as_rows(_run("sql", "--engine", "spark", "--format", "csv", _QUERY, *lake)) == _text(after)
    assert _as_rows(_run("sql", "--format", "csv", _QUERY, *lake)) == _text(after)
    _run("maintain", *lake)
    assert _as_rows(_run("sql", "--engine", "spark", "--format", "csv", _QUERY, *lake)) == _text(after)
    versions = "select count(*) from public.orders for system_time all where _op = 'snapshot'"
    assert _as_rows(_run("sql", "--format", "csv", versions, *lake)) == [(str(len(before)),)]
    assert "step 0" in _run("row", "orders", "7", *lake)
    with command.start(["follow", *both], SPARK) as following:
        report = _run("verify", *both)
        following.terminate()
        following.communicate()
    assert "damaged" not in report


def _as_rows(text: str) -> list[tuple[str, ...]]:
    return [tuple(row) for row in list(csv.reader(io.StringIO(text)))[1:]]


def _text(rows: list[tuple[object, ...]]) -> list[tuple[str, ...]]:
    return [tuple(str(value) for value in row) for row in rows]
