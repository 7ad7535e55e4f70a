"""A verification says what it works on."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from auditlake.verify import progress


def test_what_takes_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is done; results come as soon as they are there."""
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    told, said = Event(), list[str]()

    def say(line: str) -> None:
        said.append(line)
        if "1 of 2" in line:
            told.set()

    def call(table: str) -> bool:
        return table == "quick" or told.wait(60)

    with ThreadPoolExecutor(2) as pool:
        named = [("public.slow", "slow"), ("public.quick", "quick")]
        found = list(progress.each_done(pool, call, named, "comparing", say))
    assert found == [("quick", True), ("slow", True)]
    assert said[-1] == "comparing public.slow; 1 of 2 done"


class _Failing(Executor):
    """The first call fails, no other begins."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        self.futures.append(Future())
        if len(self.futures) == 1:
            self.futures[0].set_exception(ZeroDivisionError())
        return self.futures[-1]


def test_a_failure_is_raised_before_the_next_begins() -> None:
    """An unreachable source is not asked for all other tables first."""
    pool = _Failing()
    with pytest.raises(ZeroDivisionError):
        list(progress.each_done(pool, str, [("one", 1), ("none", 0)], "reading", print))
    assert [future.cancelled() for future in pool.futures] == [False, True]
