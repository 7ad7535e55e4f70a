"""A signal ends a wait at whichever instruction it arrives."""

import signal
import sys
import threading
from types import FrameType
from typing import Any

from auditlake.cli.options import Stop, stopped_by_signals


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
