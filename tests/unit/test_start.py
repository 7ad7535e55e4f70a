"""Start of the program: the command is recognised, and a quick one imports little."""

import subprocess
import sys
from pathlib import Path

import pytest

from auditlake.cli.main import auditlake
from auditlake.cli.start import WITHOUT_PANDAS, command_of
from tests.small_lake import write_lake_with_manifest

_RUN = """
import sys
from auditlake.cli.start import start
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
    """The first argument that is neither an option nor the value of one."""
    assert command == command_of(arguments)


def test_quick_commands_exist() -> None:
    """Each is a command of the program."""
    assert set(auditlake.commands) >= WITHOUT_PANDAS


@pytest.mark.parametrize(
    ("command", "shown"),
    [(["diff", "0/180", "0/300"], "Ann → Anne"), (["sql", "select name from customers"], "Anne")],
)
def test_a_quick_command_loads_little(tmp_path: Path, command: list[str], shown: str) -> None:
    """Neither pyspark nor a driver nor pandas."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    arguments = [*command, "--lake", str(lake.root)]
    done = subprocess.run([sys.executable, "-c", _RUN, *arguments], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if line and line != "auditlake: answered by duckdb"]
    assert (done.returncode, said) == (0, [])
    assert shown in done.stdout
