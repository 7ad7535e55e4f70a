"""Time that a request may take, and what does not count."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import pytest

from auditlake.serve.readings import Busy, Limits, Readings
from tests.page import write_lake

_LIMIT_S = 0.3


@pytest.fixture
def readings(tmp_path: Path) -> Readings:
    """The readings of a server with a short limit."""
    return Readings(write_lake(tmp_path / "lake"), UTC, Limits(timeout_s=_LIMIT_S))


def _run(readings: Readings, work: Callable[[], str]) -> str:
    return asyncio.run(readings.run(work))


def _after(seconds: float) -> str:
    time.sleep(seconds)
    return "found"


def test_an_answer_in_time_is_given_and_a_late_one_refused(readings: Readings) -> None:
    """The error names the limit; an error of the work itself is passed on, also one of time."""
    assert _run(readings, lambda: _after(0)) == "found"
    with pytest.raises(Busy, match=r"longer than 0\.3 s$"):
        _run(readings, lambda: _after(2 * _LIMIT_S))

    def fail() -> str:
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        _run(readings, fail)


def test_what_is_uncounted_may_take_longer(readings: Readings) -> None:
    """Twice the limit, and the rest of the limit afterwards; then the limit holds again."""

    def work(then_s: float) -> str:
        time.sleep(_LIMIT_S / 3)
        with readings.uncounted("the other", 60):
            time.sleep(2 * _LIMIT_S)
        return _after(then_s)

    assert _run(readings, lambda: work(_LIMIT_S / 3)) == "found"
    with pytest.raises(Busy, match=r"longer than 0\.3 s$"):
        _run(readings, lambda: work(2 * _LIMIT_S))


def test_what_is_uncounted_has_a_limit_too(readings: Readings) -> None:
    """The error says what the request waits for."""

    def work() -> str:
        with readings.uncounted("the other", 0.1):
            return _after(4 * _LIMIT_S)

    with pytest.raises(Busy, match=r"0\.3 s, waiting for the other") as refused:
        _run(readings, work)
    assert refused.value.hint == "Try again: it goes on."
