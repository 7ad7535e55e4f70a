"""Statements of the page that need Spark."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.serve.resources import Limits
from auditlake.spark import session
from tests.page import Page, write_lake

pytestmark = pytest.mark.spark

_LIMIT_S = 4.0
_SQL = {"sql": "select reverse(note) as r from orders where id = 4"}


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
