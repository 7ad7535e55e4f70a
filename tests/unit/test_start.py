"""The program's start: which command is called, and what a quick one does not load."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from auditlake.cli import auditlake
from auditlake.lake.manifest import FORMAT_VERSION
from auditlake.start import WITHOUT_PANDAS, command_of
from tests.small_lake import write_small_lake

_RUN = """
import sys
from auditlake.start import start
try:
    start()
except SystemExit as exc:
    assert not exc.code, exc.code
heavy = [name for name in ("pandas", "pyspark", "psycopg") if name in sys.modules]
print(*heavy, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["log", "--table", "t"], "log"),
        (["--config", "log", "sql", "select 1"], "sql"),
        (["--config=log", "status"], "status"),
        (["--help"], None),
        ([], None),
    ],
)
def test_the_command_is_found(arguments: list[str], command: str | None) -> None:
    """It is the first argument that is no option and no option's value."""
    assert command == command_of(arguments)


def test_quick_commands_exist() -> None:
    """Each is a command of the program."""
    assert set(auditlake.commands) >= WITHOUT_PANDAS


def test_an_audit_command_loads_little(tmp_path: Path) -> None:
    """No JVM's client, no driver and no pandas: a command of its own process answers at once."""
    lake = write_small_lake(tmp_path / "lake")
    source = {"system_identifier": "1", "timeline": 1, "database": "d", "slot": "s", "publication": "p"}
    lake.manifest.write_text(json.dumps({"format_version": FORMAT_VERSION, **source}))
    arguments = ["diff", "0/180", "0/300", "--lake", str(lake.root)]
    done = subprocess.run([sys.executable, "-c", _RUN, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "Ann → Anne" in done.stdout
