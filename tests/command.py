"""Run the command line: in a separate process, which a test can kill, or in this one, which is faster."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from click import Abort

from auditlake.cli import options
from auditlake.cli.main import main
from auditlake.lake.layout import Lake
from auditlake.snapshot import worker_pool
from auditlake.snapshot.worker_pool import Workers
from tests.copied_here import WorkersHere
from tests.forked import fork

_ROOT = Path(__file__).parent.parent
_TIMEOUT_S, _STOP_TIMEOUT_S, _ABORT_TIMEOUT_S = 240, 60, 10


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command."""

    code: int
    stdout: str
    stderr: str


class Process(subprocess.Popen[str]):
    """A process that is killed if its context ends with an error, so that a failing test does not wait for it.

    One that did not end in time first prints the stacks of its threads.
    """

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, subprocess.TimeoutExpired):
            self.print_stacks()
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, trace)

    def print_stacks(self) -> None:
        """End the process with SIGABRT, on which `faulthandler` writes the stacks of its threads to stderr."""
        self.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            sys.stdout.writelines(self.communicate(timeout=_ABORT_TIMEOUT_S))


class _Fork(Process):
    """The same without an interpreter of its own: a fork of a process that has imported the program."""

    def _execute_child(self, arguments: Sequence[str], *given: Any) -> None:
        """Start it, where `subprocess` executes a program; it has made the pipes."""
        environment, pipes = given[5], given[9:15]
        self.pid = fork(arguments, environment, (pipes[0], pipes[3], pipes[5]))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def handle_ignored_signals() -> None:
    """Handle the signals that this process inherited as ignored (nohup, `make test &`), by doing nothing.

    Children inherit an ignored signal, but not a handler: those that tests start can be stopped by signals.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def start(
    arguments: Sequence[str | Path], environment: Mapping[str, str] | None = None, code: str | None = None
) -> Process:
    """Start `auditlake` in a process group of its own, after `code`, which needs an interpreter of its own, if any."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AUDITLAKE_")}
    if jars := os.environ.get("AUDITLAKE_JARS"):
        inherited["AUDITLAKE_JARS"] = jars
    line = [] if code is None else [sys.executable, "-c", f"{code}\nfrom auditlake.cli.start import start\nstart()"]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return (_Fork if code is None else Process)(
        [*line, *map(str, arguments)],
        env={**inherited, "PYTHONPATH": str(_ROOT), "PYTHONFAULTHANDLER": "1", **(environment or {})},
        cwd="/",  # has no auditlake.toml
        start_new_session=True,
        text=True,
        **streams,
    )


@contextmanager
def following(settings: Sequence[str | Path], environment: Mapping[str, str]) -> Iterator[list[str]]:
    """Run `auditlake follow` during the block, and require that it ends well; then the list has its stderr."""
    reported: list[str] = []
    with start(["follow", *settings], environment) as process:
        yield reported
        process.terminate()
        reported.append(process.communicate(timeout=_STOP_TIMEOUT_S)[1])
    assert process.returncode == 0, reported[0]


def children() -> list[int]:
    """Return the pids of this process's running children."""
    files = Path("/proc/self/task").glob("*/children")
    return [int(pid) for file in files for pid in file.read_text().split()]


def run(
    arguments: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    code: str | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> Done:
    """Run `auditlake` to its end."""
    with start(arguments, environment, code) as process:
        stdout, stderr = process.communicate(timeout=timeout_s)
    return Done(process.returncode, stdout, stderr)


def capture_here(dsn: str, lake: Lake) -> Done:
    """Run `auditlake capture` up to the end of the log, in this process."""
    return run_here(["capture", "--until-current", "--source", dsn, "--lake", lake.root])


def run_here(arguments: Sequence[str | Path], workers: Callable[[int], Workers] = WorkersHere) -> Done:
    """Run `auditlake` in this process, with its settings and working folder, and nothing on stdin.

    `workers` copy the tables, unless Spark does. SIGINT interrupts the tests, not the command alone.
    """
    stdout, stderr, code = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO(), 0
    argv = mock.patch.object(sys, "argv", ["auditlake", *map(str, arguments)])
    stdin = mock.patch.object(sys, "stdin", io.StringIO())
    copying = mock.patch.object(worker_pool, "LocalWorkers", workers)
    interrupted = mock.patch.object(options, "ENDING", (signal.SIGTERM, signal.SIGHUP))
    with argv, stdin, copying, interrupted, redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            main()
        except SystemExit as exc:
            if isinstance(exc.__context__, Abort) and isinstance(exc.__context__.__cause__, KeyboardInterrupt):
                raise exc.__context__.__cause__ from None
            code = int(exc.code or 0)
    stdout.seek(0)
    return Done(code, stdout.read(), stderr.getvalue())
