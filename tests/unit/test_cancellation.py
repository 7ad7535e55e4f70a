"""Tests of work that is given up: what Ctrl-C ends."""

import signal
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
