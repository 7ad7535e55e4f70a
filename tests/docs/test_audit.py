"""The examples of audit.md run, with moments and LSNs of a real lake in the place of those that stand there."""

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from auditlake.lake.layout import Lake
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.command import run_here, start

pytestmark = pytest.mark.pg

_DOCUMENT = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
_EXAMPLES = re.findall(r"^    auditlake (.*)$", _DOCUMENT, re.MULTILINE)
_PAST = re.compile(r"(?<!\S)(-[0-9]+[dm]|2026-11-21)(?!\S)")
_SAID = """select pg_logical_emit_message(true, 'auditlake', '{"actor": "ann", "reason": "refund 4711"}')"""


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A lake with the tables of the examples, and an order that is placed, refunded and deleted."""
    with psycopg.connect(database) as conn:
        conn.execute("create table orders (id int primary key, price numeric(8,2))")
        conn.execute("create table order_lines (order_id int, line_no int, item text, primary key (order_id, line_no))")
    made = make_lake(database, tmp_path / "lake")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("insert into orders values (7, 9.5); insert into order_lines values (7, 2, 'lamp')")
        conn.execute(f"begin; {_SAID}; update orders set price = 0 where id = 7; commit")
        conn.execute("delete from orders where id = 7")
    capture(database, made)
    return made


def _here(example: str, lake: Lake) -> list[str]:
    first, *_, last = oracle.transactions(lake)
    text = example.replace("0/16B3748", _lsn(first)).replace("0/16B4000", _lsn(last))
    text = text.replace("xid:750", f"xid:{first['xid']}")
    return [*shlex.split(_PAST.sub(first["time"].isoformat(), text)), "--lake", str(lake.root)]


def _lsn(transaction: dict[str, int]) -> str:
    return f"{transaction['lsn'] >> 32:X}/{transaction['lsn'] & 0xFFFFFFFF:X}"


def test_the_examples(lake: Lake) -> None:
    """Each is understood and answered, for people and for programs."""
    for example in _EXAMPLES:
        if "--follow" in example:
            continue
        for form in ([], ["--json"]):
            done = run_here([*_here(example, lake), *form])
            assert done.code == 0, (example, done.stderr)
            if form and "--format sql" not in example:
                assert all(isinstance(json.loads(line), dict) for line in done.stdout.splitlines())
    told = run_here(_here("row orders 7", lake)).stdout
    assert "ann: refund 4711" in told
    assert "price: 9.50 → 0.00" in told


def test_a_key_that_never_was(lake: Lake) -> None:
    """Nothing on stdout, a line on stderr, and no failure: that is an exact answer."""
    done = run_here(["row", "orders", "8", "--lake", lake.root])
    assert (done.code, done.stdout) == (0, "")
    assert "no row of public.orders had this key" in done.stderr


def test_follow(database: str, lake: Lake) -> None:
    """New transactions come as lines, oldest first, until the command is told to stop."""
    with start(["log", "--follow", "--json", "--lake", lake.root]) as process:
        try:
            assert process.stdout is not None
            before = [json.loads(process.stdout.readline()) for _ in oracle.transactions(lake)]
            with psycopg.connect(database) as conn:
                conn.execute("insert into orders values (8, 1)")
            capture(database, lake)
            new = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            _end(process)
    assert [each["lsn"] for each in (*before, new)] == [_lsn(each) for each in oracle.transactions(lake)]


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.kill()
