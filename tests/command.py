"""The command line: in a process of its own, which a test can kill, or in this one, which is faster."""

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from auditlake.cli import main

_ROOT = Path(__file__).parent.parent
_TIMEOUT_S = 240


@dataclass(frozen=True)
class Done:
    """What a process left behind."""

    code: int
    stdout: str
    stderr: str


def start(
    arguments: Sequence[str | Path], environment: Mapping[str, str] | None = None, code: str | None = None
) -> "subprocess.Popen[str]":
    """Start `auditlake` in a process group of its own; `code` is Python that runs before it."""
    line = ["-m", "auditlake"] if code is None else ["-c", f"{code}\nfrom auditlake.cli import main\nmain()"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AUDITLAKE_")}
    if jars := os.environ.get("AUDITLAKE_JARS"):
        inherited["AUDITLAKE_JARS"] = jars
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, *line, *map(str, arguments)],
        env={**inherited, "PYTHONPATH": str(_ROOT), **(environment or {})},
        cwd="/",  # where no auditlake.toml is
        start_new_session=True,
        text=True,
        **streams,
    )


def children() -> list[int]:
    """Pids of the processes that this one has started and that have not ended."""
    found = Path("/proc/self/task").glob("*/children")
    return [int(pid) for each in found for pid in each.read_text().split()]


def run(arguments: Sequence[str | Path], environment: Mapping[str, str] | None = None, code: str | None = None) -> Done:
    """Run `auditlake` to its end."""
    with start(arguments, environment, code) as process:
        try:
            stdout, stderr = process.communicate(timeout=_TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
    return Done(process.returncode, stdout, stderr)


def run_here(arguments: Sequence[str | Path]) -> Done:
    """Run `auditlake` in this process, with its settings and working folder."""
    stdout, stderr, code = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO(), 0
    argv = mock.patch.object(sys, "argv", ["auditlake", *map(str, arguments)])
    with argv, redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            main()
        except SystemExit as exc:
            code = int(exc.code or 0)
    stdout.seek(0)
    return Done(code, stdout.read(), stderr.getvalue())
