"""Tests of work that is given up: what Ctrl-C ends."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import pytest

from auditlake.cancellation import Cancelled, begin_call, cancellable_loop, ended_by_interrupt, work_number


def test_ctrl_c_ends_a_call_in_another_thread() -> None:
    """DuckDB waits for the functions that its threads call, and would compute on for hours."""
    started = threading.Event()

    def call(number: int) -> None:
        begin_call(number)
        for _ in cancellable_loop(count()):
            started.set()

    def interrupted(pool: ThreadPoolExecutor, calls: list["Future[None]"]) -> None:
        with ended_by_interrupt():
            calls.append(pool.submit(call, work_number()))
            started.wait()
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                calls[0].exception()  # as DuckDB does, before it returns

    calls = list["Future[None]"]()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt):
            interrupted(pool, calls)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert isinstance(calls[0].exception(), Cancelled)
    assert work_number() == 0


_DEAF = """
import sys, time
from auditlake import cancellation
cancellation._LEAVE_S = float(sys.argv[1])
with cancellation.ended_by_interrupt():
    if len(sys.argv) > 2:
        cancellation.endure_interrupts()
    for _ in range(3):
        try:
            print("waits", flush=True)
            time.sleep(1 if len(sys.argv) > 2 else 600)
        except KeyboardInterrupt:
            pass
"""
"""A block that goes on whatever it hears, as one call of DuckDB does."""


def _code(times: int, *given: str) -> int:
    """Interrupt it so often; return the code that it ends with."""
    with subprocess.Popen([sys.executable, "-c", _DEAF, *given], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(times):
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
        return process.wait(60)


def test_ctrl_c_ends_a_command_that_does_not_hear_it() -> None:
    """After a while, or at once if it is pressed again; but not while a pager shows the answer."""
    assert _code(1, "0.1") == 130
    assert _code(2, "600") == 130
    assert _code(2, "0.1", "endures") == 0
