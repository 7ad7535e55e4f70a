"""Each task of cookbook.md runs on one lake, and prints what the page shows."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import run_here
from tests.server import Server

pytestmark = pytest.mark.pg

_ROOT = Path(__file__).parents[2]
_TASKS = (_ROOT / "docs" / "cookbook.md").read_text().split("\n## ")[1:]
_TABLES = """
create table customers (customer_id int primary key, name text);
create table orders (
    order_id int primary key, customer_id int references customers, status text, total numeric(10,2));
create table order_lines (
    order_id int references orders on delete cascade, line_no int, item text, price numeric(10,2),
    primary key (order_id, line_no));
"""
_SAYS = 'select pg_logical_emit_message(true, \'auditlake\', \'{"actor": "%s", "reason": "%s"}\');'
_DAY: tuple[LiteralString, ...] = (
    """insert into customers values (7, 'Ada');
       insert into orders values (41, 7, 'placed', 120), (42, 7, 'placed', 488.90), (43, 7, 'placed', 20);
       insert into order_lines values (41, 1, 'tray', 120), (42, 1, 'desk', 400), (42, 2, 'lamp', 88.90);
       insert into order_lines values (43, 1, 'pen', 20)""",
    _SAYS % ("ann", "payment 4711") + "update orders set status = 'paid' where order_id = 42",
    _SAYS % ("bob", "price list")
    + "update order_lines set price = 110 where order_id = 41; update orders set total = 110 where order_id = 41",
    "delete from orders where order_id = 43",
    _SAYS % ("ann", "parcel 1") + "update orders set status = 'shipped' where order_id = 42",
)
_MORNING, _PRICED, _DELETED = 0, 2, 3
"""Transactions at 9:30, 12:00 and 17:00."""


@pytest.fixture(scope="module")
def shop(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The shop's database and lake; returns what stands in the page for moments, and where both are."""
    name, folder = server.create_database(), tmp_path_factory.mktemp("shop")
    source = server.dsn(name)
    with psycopg.connect(source, autocommit=True) as conn:
        conn.execute(_TABLES)
        lake = make_lake(source, folder / "lake")
        for transaction in _DAY:
            conn.execute(transaction)
    capture(source, lake)
    done = oracle.transactions(lake)
    assert len(done) == len(_DAY)
    lsn = done[_PRICED]["lsn"]
    yield {
        "2026-11-21 09:30": _iso(done[_MORNING]["time"]),
        "2026-11-21 12:00": _iso(done[_PRICED]["time"]),
        "2026-11-21 17:00": _iso(done[_DELETED]["time"]),
        "0/16B3748": f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}",
        "xid:750": f"xid:{done[_PRICED]['xid']}",
        "folder": str(folder),
        "source": source,
        "path": f"{server.bin}:{os.environ['PATH']}",
    }
    server.drop_database(name)


def _iso(time: datetime) -> str:
    return time.isoformat()


def _here(text: str, shop: dict[str, str]) -> str:
    for example, ours in shop.items():
        if example[:1].isdigit() or example.startswith("xid:"):
            text = text.replace(example, ours)
    return text


def _output(command: str, shop: dict[str, str]) -> str:
    """Run a line of the page: in this process if it is no more than one command, which is faster."""
    if command.startswith("auditlake ") and not {"|", ">", "||"} & set(shlex.split(command)):
        done = run_here(shlex.split(command)[1:])
        assert done.code == 0, done.stderr
        return done.stdout + done.stderr
    script = f'set -eo pipefail; auditlake() {{ "{sys.executable}" -m auditlake "$@"; }}; {command}'
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PATH": shop["path"]}
    shell = subprocess.run(["/bin/bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert shell.returncode == 0, shell.stderr
    return shell.stdout


def test_there_are_twenty_tasks() -> None:
    """Numbered from one, each with something that runs."""
    assert [task.split(".")[0] for task in _TASKS] == [str(number) for number in range(1, 21)]
    assert all("```console\n$ " in task or "```python\n" in task for task in _TASKS)


@pytest.mark.parametrize("task", _TASKS, ids=lambda task: task.splitlines()[0])
def test_a_task_runs(task: str, shop: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands succeed and print the lines below them, in the dialect that is the default; its Python runs."""
    monkeypatch.chdir(shop["folder"])
    monkeypatch.setenv("AUDITLAKE_DIALECT", "")
    monkeypatch.setenv("AUDITLAKE_SOURCE", shop["source"])
    for block in re.findall(r"```console\n(.*?)```", task, re.DOTALL):
        for step in re.split(r"^\$ ", _here(block, shop), flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            printed = _output(command, shop)
            assert printed or ">" in command or " -o " in command or "psql -q" in command, command
            assert shown in printed
    for program in re.findall(r"```python\n(.*?)```", task, re.DOTALL):
        exec(compile(_here(program, shop), "cookbook.md", "exec"), {})  # noqa: S102 - the page's own program
