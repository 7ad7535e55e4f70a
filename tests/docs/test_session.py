"""The session on README's first screen, run line by line against a real server, ends in the answer it shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from auditlake.postgres.connection import connect
from tests.crash.killed import SPARK
from tests.server import Server

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_README = Path(__file__).parents[2] / "README.md"


def _session() -> tuple[list[str], list[str]]:
    """The commands of the first console block, and what the last one prints."""
    block = _README.read_text().split("```console\n")[1].split("```")[0].splitlines()
    return [line[2:] for line in block if line.startswith("$ ")], [line for line in block if not line.startswith("$ ")]


def test_readme_session(server: Server, database: str, tmp_path: Path) -> None:
    """Copy, change, follow, and the price of before the change is the answer."""
    commands, answer = _session()
    with connect(database) as conn:
        conn.execute("create table public.products (product_id int primary key, name text, price numeric(10,2))")
        conn.execute("insert into public.products values (3, 'standing desk', 449)")
    script = "\n".join(["set -e", *(line for line in commands if "export AUDITLAKE_SOURCE" not in line)])
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
    assert done.stdout.count("public.products") == 1
