"""The systemd units: valid, hardened, and without a typing error in what they run; checked by systemd's own tools."""

import subprocess
import sys
from pathlib import Path

import pytest

from auditlake.cli.main import auditlake

_UNITS = Path(__file__).parents[2] / "conf" / "systemd"
_SERVICES = sorted(_UNITS.glob("*.service"))
_MOST_EXPOSED = 25
"""Of 100; systemd calls up to 40 "OK"."""


def analyze(*arguments: str | Path) -> str:
    """Run systemd-analyze, which has to succeed; return what it says."""
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)  # noqa: S607 - Debian's
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_units_are_valid(tmp_path: Path) -> None:
    """With the command at its place, systemd has no remark."""
    installed = str(Path(sys.executable).with_name("auditlake"))
    for unit in _UNITS.iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/auditlake/bin/auditlake", installed))
    assert analyze("verify", "--man=no", *sorted(tmp_path.iterdir())) == ""


@pytest.mark.parametrize("unit", _SERVICES, ids=lambda unit: unit.stem)
def test_units_are_hardened(unit: Path) -> None:
    """The exposure is at most 2.5 of 10."""
    analyze("security", "--offline=true", f"--threshold={_MOST_EXPOSED}", "--no-pager", unit)


@pytest.mark.parametrize("unit", _SERVICES, ids=lambda unit: unit.stem)
def test_units_run_commands_with_options_that_exist(unit: Path) -> None:
    """Click parses the command of each unit."""
    (line,) = (line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
    _, _, _, name, *arguments = line.split()
    auditlake.commands[name].make_context(name, arguments, resilient_parsing=False)
