"""Without Java and without pyspark: what starts no JVM works, what needs Spark says what to install.

The import of pyspark is blocked, as if it were not installed; the PATH has no Java.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from auditlake.cli.main import auditlake
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from tests.small_lake import write_lake_with_manifest
from tests.without_spark import WITHOUT_SPARK

_START = "from auditlake.cli.start import start; start()"
_MARK = "-- answered --\n"
_EACH = f"""
import json, sys
from auditlake.cli.main import auditlake
for command in sys.argv[1:]:
    auditlake(json.loads(command), standalone_mode=False)
    print({_MARK!r}, end="", flush=True)
"""
_HELP = """
from auditlake.cli.main import auditlake
for name in auditlake.commands:
    auditlake([name, "--help"], standalone_mode=False)
"""


def run(lake: Lake, *arguments: str, program: str = _START) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment without Spark and Java."""
    inherited = {name: text for name, text in os.environ.items() if name not in {"JAVA_HOME", "PATH"}}
    inherited = {name: text for name, text in inherited.items() if not name.startswith("AUDITLAKE_")}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK + program, *arguments],
        env={**inherited, "PATH": "/nonexistent", "AUDITLAKE_LAKE": str(lake.root)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The small lake."""
    return write_lake_with_manifest(tmp_path_factory.mktemp("without") / "lake")


def test_questions_need_no_spark(lake: Lake) -> None:
    """Neither the package nor Java."""
    questions = [
        (["status"], "orders"),
        (["log"], "public.customers"),
        (["show", "xid:12"], "Anne"),
        (["row", "customers", "1"], "Anne"),
        (["sql", "--format", "csv", "select name from customers"], "Anne"),
        (["views", "--engine", "duckdb"], "create"),
        (["seal"], ""),
    ]
    done = run(lake, *(json.dumps(command) for command, _ in questions), program=_EACH)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split(_MARK)[:-1]
    for (command, shown), answer in zip(questions, answers, strict=True):
        assert shown in answer, command


def test_every_command_has_help(lake: Lake) -> None:
    """Also those that need Spark."""
    done = run(lake, program=_HELP)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: ") == len(auditlake.commands)


def test_histories_are_written_without_spark(tmp_path: Path) -> None:
    """Two transactions that no history has yet are applied, and their files compacted."""
    behind = write_lake_with_manifest(tmp_path / "lake")
    for command in (["apply", "--until-current"], ["maintain"]):
        done = run(behind, *command)
        assert done.returncode == 0, done.stderr
    assert {table.position for table in list_histories(behind)} == {Lsn(0x300)}


@pytest.mark.parametrize("command", [["sql", "--engine", "spark", "select 1"], ["verify"]])
def test_what_needs_spark_says_what_to_install(lake: Lake, command: list[str]) -> None:
    """The extra, as an error of the installation and not as a bug."""
    done = run(lake, *command, "--source", "host=127.0.0.1 port=1")
    assert done.returncode == 3
    assert "is not installed, this needs Spark" in done.stderr
    assert "pip install 'auditlake[spark]'" in done.stderr
