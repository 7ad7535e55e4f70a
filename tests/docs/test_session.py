"""README's first session, run against a real server: the undo restores every row, and the history shows it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from auditlake.source.connection import Row, connect, fetch
from tests.crash.killed import SPARK
from tests.server import Server

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_README = Path(__file__).parents[2] / "README.md"
_SCHEMA = """
create table public.orders (order_id int primary key, status text);
create table public.order_lines (
    order_id int references public.orders on delete cascade, line_no int, item text, primary key (order_id, line_no));
create table public.payments (
    payment_id int primary key, order_id int references public.orders on delete cascade, amount numeric(10,2));
insert into public.orders values (41, 'placed'), (42, 'paid');
insert into public.order_lines values (41, 1, 'cable tray'), (42, 1, 'standing desk'), (42, 2, 'desk lamp');
insert into public.payments values (7, 42, 400.00), (8, 42, 88.90);
"""
_TABLES: tuple[LiteralString, ...] = ("orders", "order_lines", "payments")


def _rows(conn: psycopg.Connection[Row]) -> list[list[Row]]:
    """Return the rows of every table, in order."""
    return [fetch(conn, f"select * from public.{table} order by 1, 2") for table in _TABLES]


def _session() -> tuple[list[str], list[str]]:
    """Return the commands of the first console block, and the output shown for the last one."""
    block = _README.read_text().split("```console\n")[1].split("```")[0].splitlines()
    return [line[2:] for line in block if line.startswith("$ ")], [line for line in block if not line.startswith("$ ")]


def test_the_session_of_the_readme_undoes_a_cascading_delete(server: Server, database: str, tmp_path: Path) -> None:
    """An order with its lines and payments is deleted and restored; the last command prints what README shows."""
    commands, answer = _session()
    with connect(database) as conn:
        conn.execute(_SCHEMA)
        before = _rows(conn)
    script = "\n".join(["set -eo pipefail", *(line for line in commands if "export AUDITLAKE_SOURCE" not in line)])
    binaries = tmp_path / "bin"
    binaries.mkdir()
    launcher = binaries / "auditlake"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m auditlake "$@"\n')
    launcher.chmod(0o755)
    environment = {
        **os.environ,
        **SPARK,
        "AUDITLAKE_SOURCE": database,
        "PATH": f"{binaries}:{server.bin}:{os.environ['PATH']}",
        "PYTHONPATH": str(_README.parent),
    }
    done = subprocess.run(
        ["/bin/bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert answer == done.stdout.splitlines()[-len(answer) :]
    with connect(database) as conn:
        assert before == _rows(conn)
