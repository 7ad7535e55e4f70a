"""The types of the Python API under mypy --strict in a client's project: right code passes, each mistake is found."""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_RIGHT = """
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import auditlake

lake = auditlake.Lake("./lake")
an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
for transaction in lake.log(table="orders", since=an_hour_ago):
    print(transaction.lsn + 1, transaction.time, transaction.actor or "unknown", transaction.tables)
for event in lake.row("public.orders", {"id": 7}, until="now"):
    print(event.op.upper(), event.changed, event.commit.time, event.after)
blamed = lake.blame("orders", 7, as_of=an_hour_ago)[0]
print(blamed.column.title(), blamed.commit.actor)
for difference in lake.diff(an_hour_ago, tables=["orders"]):
    print(difference.kind, difference.key["id"])
rows = lake.as_of(an_hour_ago).table("orders", where=[("price", ">", Decimal("1.50"))], order_by=["-price"])
total: int = rows.count()
names: list[str] = lake.sql("select id from orders", as_of="-2h").columns
print(total, names, rows.to_polars().head(3).height, rows.to_arrow().num_rows, rows.to_pandas())
for committed in auditlake.changes("./lake", since=an_hour_ago, tables=["orders"], follow=False):
    for change in committed.changes:
        print(committed.cursor, change.op, change.after)
"""
_WRONG = {
    "lake.log(since=7)": "arg-type",
    'lake.row("orders")': "call-arg",
    'lake.as_of().table("orders").count(1)': "call-arg",
    'number: str = lake.as_of().table("orders").count()': "assignment",
    'lake.sql("select 1").rows': "attr-defined",
}


def _errors(folder: Path, code: str) -> list[str]:
    """Return the messages about a client's module; those about libraries without types are not its own."""
    (folder / "client.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={folder / 'cache'}", "client.py"],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "client.py" in done.stdout or "checked 1 source file" in done.stdout, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("client.py:")]


def test_a_client_is_checked_strictly(tmp_path: Path) -> None:
    """Questions with datetimes, keys and results have types; each mistake is found on its line."""
    assert _errors(tmp_path, _RIGHT) == []
    lines = _errors(tmp_path, "\n".join(["import auditlake", 'lake = auditlake.Lake("./lake")', *_WRONG]))
    found = [(line.split(":")[1], line.rpartition("[")[2].rstrip("]")) for line in lines]
    assert found == [(str(number), kind) for number, kind in enumerate(_WRONG.values(), 3)]
