"""Examples of changes.md run: the feed, the command, and the consumer whose effects happen exactly once, killed."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psycopg
import pytest

import auditlake
from auditlake.lake.layout import Lake
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import run_here
from tests.server import Server

pytestmark = pytest.mark.pg

_ROOT = Path(__file__).parents[2]
_DOCUMENT = (_ROOT / "docs" / "changes.md").read_text()
_TRANSACTIONS = 300


def _example(words: str) -> str:
    """Return the indented block that contains some words."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", _DOCUMENT, re.MULTILINE)
    (found,) = (textwrap.dedent(block) for block in blocks if words in block)
    return found


@pytest.fixture
def lake(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Capture many transactions of two changes each, as `lake` in the working folder."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, v int)")
        made = make_lake(database, tmp_path / "lake")
        for number in range(_TRANSACTIONS):
            conn.execute(f"insert into orders values ({number}, 0); update orders set v = 1 where id = {number}")
    capture(database, made)
    monkeypatch.chdir(tmp_path)
    return made


def test_effects_happen_exactly_once_although_the_consumer_is_killed(server: Server, lake: Lake) -> None:
    """SIGKILL while it works, then again from the stored cursor: every change once, in commit order."""
    target = server.dsn(server.create_database("target"))
    program = _example("delete from progress")
    program = program.replace("postgresql:///target", target)
    with psycopg.connect(target, autocommit=True) as conn:
        conn.execute("create table progress (cursor text); create table seen (lsn text, ordinal int, n serial)")
        last = list(auditlake.changes(lake.root, since="beginning", follow=False))[-1].cursor
        for enough in ("count(*) > 20", f"count(*) = {2 * _TRANSACTIONS}"):
            _run_until(program, conn, enough)
        done = conn.execute("select count(*), count(distinct (lsn, ordinal)) from seen").fetchone()
        ordered = conn.execute(
            "select array_agg(lsn::pg_lsn order by n) = array_agg(lsn::pg_lsn order by lsn::pg_lsn, n) from seen"
        )
        assert ordered.fetchone() == (True,)
        cursor = conn.execute("select cursor from progress").fetchall()
    assert done == (2 * _TRANSACTIONS, 2 * _TRANSACTIONS)
    assert cursor == [(last,)]


def _run_until(program: str, conn: "psycopg.Connection[tuple[object, ...]]", enough: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        until = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < until:
            if (conn.execute(f"select {enough} from seen".encode()).fetchone() or (False,))[0]:
                break
            time.sleep(0.01)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)


def test_the_first_example_prints_changes(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """It waits for more at the end; here it ends there."""
    program = _example('since="-1h"').replace('since="-1h"', 'since="beginning", follow=False')
    exec(program, {})  # noqa: S102 - the document's example
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 * _TRANSACTIONS
    assert "insert {'id': 0} None {'id': 0, 'v': 0}" in printed[0]
    assert lake.root.exists()


def test_the_commands_print_transactions(lake: Lake) -> None:
    """Each line is an object, and each transaction ends with its cursor."""
    (command,) = (line.strip() for line in _DOCUMENT.splitlines() if line.startswith("    auditlake log"))
    arguments = [each for each in shlex.split(command)[1:] if each != "--follow"]
    done = run_here([*arguments, "-n", "2", "--lake", lake.root])
    assert done.code == 0, done.stderr
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert kinds == ["transaction", "change", "change", "end"] * 2
