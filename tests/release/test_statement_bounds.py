"""A statement of the page ends Spark if it does not end itself; the next one starts it again."""

import time
from pathlib import Path

import pytest
from pyspark import SparkContext

from auditlake.serve.resources import Limits
from tests.page import Page, write_lake
from tests.running import await_true

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

_ENDLESS = (
    "select aggregate(sequence(1, 100000), 0L, (a, x) -> a + aggregate(sequence(1, 100000), 0L, (b, y) -> b + y)) as n"
)


def test_an_endless_statement_does_not_keep_spark(tmp_path: Path) -> None:
    """It is refused, Spark is ended although no task of it hears, and the next statement is answered."""
    page = Page(write_lake(tmp_path / "lake"), limits=Limits(timeout_s=4))

    def reverse() -> tuple[int, object]:
        answered = page.ask("POST", "/api/v1/sql", json={"sql": "select reverse('ab') as r"})
        return answered.status_code, answered.json().get("rows")

    assert reverse() == (200, [["ba"]])
    jvm = SparkContext._gateway.proc  # type: ignore[union-attr] # noqa: SLF001 - there is no public way to it
    assert page.ask("POST", "/api/v1/sql", json={"sql": _ENDLESS}).status_code == 503
    await_true(lambda: jvm.poll() is not None)
    until = time.monotonic() + 120
    while (found := reverse()) != (200, [["ba"]]) and time.monotonic() < until:
        pass
    assert found == (200, [["ba"]])
