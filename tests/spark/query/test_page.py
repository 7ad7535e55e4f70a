"""Statements of the page that need Spark: they are in its dialect."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.serve.resources import Limits
from auditlake.spark import session
from tests.page import Page, write_lake

pytestmark = pytest.mark.spark

_LIMIT_S = 4.0
_SQL = {"dialect": "spark", "sql": "select reverse(note) as r from orders where id = 4"}


def test_the_start_of_spark_is_not_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that takes longer than a statement may, as on a busy machine; the statement is answered."""

    def start(settings: object) -> SparkSession:
        assert settings == {}
        time.sleep(_LIMIT_S + 1)
        return spark

    lake = write_lake(tmp_path / "lake")
    Page(lake).ask("POST", "/api/v1/sql", json=_SQL)  # the JVM loads its classes
    monkeypatch.setattr(session, "spark_session", start)
    answered = Page(lake, limits=Limits(timeout_s=_LIMIT_S)).ask("POST", "/api/v1/sql", json=_SQL)
    assert answered.status_code == 200, answered.text
    assert (answered.json()["engine"], answered.json()["rows"]) == ("Spark", [["wen"]])


def test_answers_of_spark_are_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    """One with a function of the clock or of chance is another one each time."""
    assert spark.version
    page = Page(write_lake(tmp_path / "lake"))
    asked = {"dialect": "spark", "sql": "select now() as n, rand() as r, uuid() as u"}
    first, second = (page.ask("POST", "/api/v1/sql", json=asked).json()["rows"][0] for _ in range(2))
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_lack_of_memory_is_no_bug(spark: SparkSession, tmp_path: Path) -> None:
    """Of an expression that Spark computes while it plans; the next statement is answered."""
    assert spark.version
    page = Page(write_lake(tmp_path / "lake"))
    asked = {"dialect": "spark", "sql": "select length(repeat('x', 2147483000)) as n"}
    refused = page.ask("POST", "/api/v1/sql", json=asked)
    assert (refused.status_code, refused.json()["code"]) == (400, 2), refused.text
    assert "memory" in refused.json()["error"]
    assert page.ask("POST", "/api/v1/sql", json=_SQL).json()["rows"] == [["wen"]]
