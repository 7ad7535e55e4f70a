"""A signal ends a wait at whichever instruction it arrives."""

import contextlib
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import click
import pytest

from auditlake.cli.main import auditlake
from auditlake.cli.options import Stop, stopped_by_signals
from auditlake.signals import ENDING, handled
from tests import command


def _wait_with_a_signal_at(line: int) -> bool:
    """Wait in a thread whose `line`th line is followed by the handler; return whether the wait ended."""
    stop, ended, lines = Stop(), threading.Event(), 0

    def trace(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines == line:
            sys.settrace(None)
            stop.by(signal.SIGTERM)
        return trace

    def wait() -> None:
        sys.settrace(trace)
        stop.wait(0.001)
        sys.settrace(None)
        stop.by(signal.SIGTERM)
        if stop.wait(60):
            ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended.wait(10)


def test_a_signal_at_any_line_of_a_wait_ends_it() -> None:
    """`threading.Event` stands still for ever if the handler sets it while the same thread holds its lock."""
    assert [line for line in range(1, 40) if not _wait_with_a_signal_at(line)] == []


def test_a_wait_without_a_signal_ends_after_its_timeout() -> None:
    """The event stays unset, until a signal sets it for good."""
    with stopped_by_signals() as stop:
        assert not stop.wait(0.001)
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait()
        assert stop.is_set()
        assert stop.signal == "SIGTERM"


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """Under nohup, a terminal that is closed ends neither a command nor the page."""
    before, arrived = signal.signal(signal.SIGHUP, signal.SIG_IGN), list[int]()
    try:
        with handled(ENDING, lambda number, _: arrived.append(number)):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert (arrived, signal.getsignal(signal.SIGHUP)) == ([signal.SIGTERM], signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGHUP, before)


_CHILD = "import signal; print([signal.getsignal(number).name for number in (signal.SIGHUP, signal.SIGQUIT)])"
_PARENT = f"""
import subprocess, sys
from tests.command import handle_ignored_signals
handle_ignored_signals()
subprocess.run([sys.executable, "-c", {_CHILD!r}], check=True)
"""


def test_processes_of_tests_do_not_inherit_ignored_signals() -> None:
    """A run under nohup, or in the background, ignores signals that its tests send to their processes."""
    ignoring = ["sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh", sys.executable, "-c"]
    root = Path(__file__).parents[2]
    plain = subprocess.run([*ignoring, _CHILD], capture_output=True, text=True, check=True)
    assert plain.stdout == "['SIG_IGN', 'SIG_IGN']\n"
    ours = subprocess.run([*ignoring, _PARENT], capture_output=True, text=True, check=True, cwd=root)
    assert ours.stdout == "['SIG_DFL', 'SIG_DFL']\n"


@pytest.mark.parametrize("graceful", [True, False])
def test_an_interrupt_of_tests_is_no_answer_of_a_command(monkeypatch: pytest.MonkeyPatch, *, graceful: bool) -> None:
    """A run that is interrupted within a command ends, and does not go on with a test that has failed."""

    def run() -> None:
        with stopped_by_signals() if graceful else contextlib.nullcontext():
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setitem(auditlake.commands, "interrupted", click.Command("interrupted", callback=run))
    with pytest.raises(KeyboardInterrupt):
        command.run_here(["interrupted"])
