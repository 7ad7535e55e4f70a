"""A verification says what it works on."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

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


def test_a_failure_is_raised() -> None:
    """That of any call."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        list(progress.each_done(pool, lambda number: 1 // number, [("one", 1), ("none", 0)], "dividing", print))
