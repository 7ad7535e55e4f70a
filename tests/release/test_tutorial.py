"""tutorial.md from its first command to its last: each prints what the page shows, and Spark is never started."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server import Server

pytestmark = pytest.mark.pg

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "tutorial.md").read_text()
_MARK = "-- shown --"


def _script() -> tuple[str, list[str]]:
    """Return the commands of all blocks with a mark after each, and what the page shows for each."""
    lines, shown = ["set -eo pipefail"], []
    for block in re.findall(r"```console\n(.*?)```", _PAGE, re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            if "<<'SQL'" in command:
                body, _, output = output.partition("SQL\n")
                command += f"\n{body}SQL"
            if not command.startswith("export AUDITLAKE_SOURCE"):
                lines += [command, f"echo '{_MARK}'"]
                shown.append(output)
    return "\n".join(lines), shown


def test_the_tutorial_runs_from_beginning_to_end(server: Server, database: str, tmp_path: Path) -> None:
    """In an empty folder, with a Java that fails if it is started."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, text in (("auditlake", f'exec "{sys.executable}" -m auditlake "$@"'), ("java", "exit 99")):
        (binaries / name).write_text(f"#!/bin/sh\n{text}\n")
        (binaries / name).chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment = {
        **inherited,
        "AUDITLAKE_SOURCE": database,
        "PATH": f"{binaries}:{server.bin}:{os.environ['PATH']}",
        "PYTHONPATH": str(_ROOT),
    }
    script, shown = _script()
    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run(
        ["/bin/bash", "-c", script], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-500:]}\n{done.stderr[-2000:]}"
    printed = done.stdout.split(f"{_MARK}\n")[:-1]
    assert len(printed) == len(shown)
    for ours, theirs in zip(printed, shown, strict=True):
        assert not theirs or ours == theirs
    assert "Spark" not in done.stderr
