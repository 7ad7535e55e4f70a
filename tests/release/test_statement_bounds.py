"""A statement of the page ends Spark if it does not end itself; the next one starts it again."""

import time
from pathlib import Path

import pytest
from pyspark import SparkContext

from auditlake.serve.resources import Limits
from tests.page import Page, write_lake
from tests.running import await_true

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]


def _sums(count: int) -> str:
    """A statement of functions of functions, which only Spark answers; it runs for so many steps, squared."""
    numbers = f"sequence(1, {count})"
    return f"select aggregate({numbers}, 0L, (a, x) -> a + aggregate({numbers}, 0L, (b, y) -> b + y)) as n"


def test_an_endless_statement_does_not_keep_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, Spark is ended although no task of it hears, and the next statement is answered."""
    page = Page(write_lake(tmp_path / "lake"), limits=Limits(timeout_s=120))

    def sums(count: int) -> tuple[int, object]:
        answered = page.ask("POST", "/api/v1/sql", json={"sql": _sums(count), "dialect": "spark"})
        return answered.status_code, answered.json().get("rows")

    assert sums(2) == (200, [["6"]])
    jvm = SparkContext._gateway.proc  # type: ignore[union-attr] # noqa: SLF001 - there is no public way to it
    with monkeypatch.context() as patched:
        patched.setattr(page.resources, "limits", Limits(timeout_s=4))
        assert sums(100_000)[0] == 503
    await_true(lambda: jvm.poll() is not None)
    until = time.monotonic() + 120
    while (found := sums(2)) != (200, [["6"]]) and time.monotonic() < until:
        pass
    assert found == (200, [["6"]])
