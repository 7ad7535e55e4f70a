"""Audit commands against PostgreSQL's own states, while every change is still in the tail."""

import json
import os
from pathlib import Path

import pytest

from auditlake.lsn import Lsn
from auditlake.source.connection import connect
from tests.audit_oracle import AuditOracle
from tests.audit_walk import SCHEMA, Walk
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import run_here
from tests.server import Server

pytestmark = pytest.mark.pg

_SEEDS = range(1, 1 + int(os.environ.get("AUDITLAKE_AUDIT_WALKS", "1")))
_MOST = int(os.environ.get("AUDITLAKE_AUDIT_MOST", "4"))
_TRANSACTIONS = int(os.environ.get("AUDITLAKE_AUDIT_TRANSACTIONS", "20"))


@pytest.fixture
def target(server: Server) -> str:
    """Another database with the tables of the walk."""
    return make_target(server)


def make_target(server: Server) -> str:
    """Make it."""
    dsn = server.dsn(server.create_database("patched"))
    with connect(dsn) as conn:
        conn.execute(SCHEMA.encode())
    return dsn


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_answer_follows_from_the_states(database: str, target: str, tmp_path: Path, seed: int) -> None:
    """Of a random walk; `tests/release` has a longer one."""
    check_answers(database, target, tmp_path, seed, _TRANSACTIONS)


def check_answers(database: str, target: str, folder: Path, seed: int, transactions: int) -> None:
    """Check differences, row histories, blame, deletions, columns, transactions and undo scripts."""
    with connect(database) as conn:
        conn.execute(SCHEMA.encode())
    lake = make_lake(database, folder / "lake")
    with Walk(database, seed) as walk:
        walk.step(transactions)
    capture(database, lake)
    oracle = AuditOracle(lake, walk.placed(lake), _MOST)
    oracle.check(pairs=4)
    oracle.check_patches(target, count=2)


@pytest.mark.parametrize(
    ("statements", "op"),
    [
        ("delete from public.plain where id = 1; insert into public.plain values (1); truncate public.plain", "delete"),
        ("truncate public.plain; insert into public.plain values (1); delete from public.plain", "truncate"),
        ("update public.plain set id = 2; insert into public.plain values (1); truncate public.plain", "truncate"),
        ("insert into public.plain values (2); truncate public.plain", "truncate"),
    ],
)
def test_the_first_end_of_a_row_in_its_last_transaction_is_named(
    database: str, tmp_path: Path, statements: str, op: str
) -> None:
    """A key that is deleted, inserted again and truncated in one transaction was a row that was deleted."""
    with connect(database) as conn:
        conn.execute(SCHEMA.encode())
    lake = make_lake(database, tmp_path / "lake")
    with connect(database) as conn:
        conn.execute("insert into public.plain values (1)")
        conn.execute(f"begin; {statements}; commit".encode())
    capture(database, lake)
    life = [
        json.loads(line) for line in run_here(["row", "plain", "1", "--json", "--lake", lake.root]).stdout.splitlines()
    ]
    ends = [event["op"] for event in life if event["lsn"] != life[-1]["lsn"]]
    gone = [
        json.loads(line) for line in run_here(["deleted", "plain", "--json", "--lake", lake.root]).stdout.splitlines()
    ]
    assert (ends, [row["op"] for row in gone]) == ([op], [op])


def test_an_undo_script_of_invalid_text_is_refused_before_its_first_statement(database: str, tmp_path: Path) -> None:
    """No SQL literal can hold the byte; the error names table, column and key, but no value."""
    with connect(database) as conn:
        conn.execute("create cast (bytea as text) without function")
        conn.execute("create table public.t (id int primary key, note text, v text)")
        conn.execute("create table public.heap (note text); alter table public.heap replica identity full")
    lake = make_lake(database, tmp_path / "lake")
    with connect(database) as conn:
        conn.execute(r"insert into public.t values (4711, '\x736563e9'::bytea::text, 'a'), (4712, 'valid', 'b')")
        conn.execute(r"insert into public.heap values ('valid'), ('\x736563e9'::bytea::text)")
        conn.execute("update public.t set v = 'c' where id = 4712; insert into public.heap values ('valid')")
    capture(database, lake)
    listed = run_here(["log", "--json", "-n", "0", "--lake", lake.root])
    lsns = [json.loads(line)["lsn"] for line in reversed(listed.stdout.splitlines())]
    for table, since, refused in (("t", "0", True), ("heap", "0", True), ("t", "1", False), ("heap", "1", False)):
        begin = str(Lsn(Lsn.parse(lsns[0]) - 1)) if since == "0" else lsns[1]
        done = run_here(["diff", begin, "now", table, "--format", "sql", "--lake", lake.root])
        assert (done.code, bool(done.stdout)) == ((7, False) if refused else (0, True)), done.stderr
        assert (f"public.{table}: a row that differs has bytes in note that" in done.stderr) == refused
        assert "4711" not in done.stderr
        assert "sec" not in done.stderr
