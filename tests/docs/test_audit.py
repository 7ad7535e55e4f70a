"""Examples of audit.md run, with their moments and LSNs replaced by those of a real lake."""

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
    """Capture the tables of the examples, and an order that is placed, refunded and deleted."""
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
    text = text.replace("xid:750", f"xid:{first['xid']}").partition(" | ")[0]
    return [*shlex.split(_PAST.sub(first["time"].isoformat(), text)), "--lake", str(lake.root)]


def _lsn(transaction: dict[str, int]) -> str:
    return f"{transaction['lsn'] >> 32:X}/{transaction['lsn'] & 0xFFFFFFFF:X}"


def test_the_undo_script_of_the_command_restores_the_row(lake: Lake, database: str) -> None:
    """Sent in one message, as programs other than psql may do; a second run is refused."""
    (example,) = (example for example in _EXAMPLES if "--format sql" in example)
    script = run_here(_here(example, lake)).stdout
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(script.encode())
        assert conn.execute("select id, price::text from orders").fetchall() == [(7, "9.50")]
        with pytest.raises(psycopg.errors.RaiseException, match="are there already"):
            conn.execute(script.encode())


@pytest.mark.parametrize(("actor", "found"), [("ann", 1), ("Ann", 1), ("an", 0), ("", 0)])
def test_an_actor_is_found_ignoring_case(lake: Lake, actor: str, found: int) -> None:
    """The whole name counts; a transaction without an actor has none."""
    done = run_here(["log", "--actor", actor, "--json", "--lake", lake.root])
    assert (done.code, len(done.stdout.splitlines())) == (0, found)


def test_every_example_is_answered(lake: Lake) -> None:
    """As text and as JSON."""
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


@pytest.mark.parametrize("command", ["row", "blame"])
def test_a_key_that_no_row_had_is_an_exact_answer(lake: Lake, command: str) -> None:
    """Nothing on stdout, a line on stderr, exit code 0."""
    done = run_here([command, "orders", "8", "--lake", lake.root])
    assert (done.code, done.stdout) == (0, "")
    assert "no row of public.orders had this key" in done.stderr


def test_log_follow_prints_new_transactions_until_a_signal(database: str, lake: Lake) -> None:
    """One line for each, oldest first."""
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
