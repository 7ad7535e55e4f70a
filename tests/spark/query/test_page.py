"""Statements of the page that need Spark."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.serve.readings import Limits
from auditlake.spark import session
from tests.page import Page, write_lake

pytestmark = pytest.mark.spark

_LIMIT_S = 6.0


def test_the_start_of_spark_is_not_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that takes longer than a statement may, as on a busy machine; the statement is answered."""

    def start(settings: object) -> SparkSession:
        assert settings == {}
        time.sleep(_LIMIT_S + 1)
        return spark

    monkeypatch.setattr(session, "spark_session", start)
    page = Page(write_lake(tmp_path / "lake"), limits=Limits(timeout_s=_LIMIT_S))
    answered = page.ask("POST", "/api/v1/sql", json={"sql": "select reverse(note) as r from orders where id = 4"})
    assert answered.status_code == 200, answered.text
    assert (answered.json()["engine"], answered.json()["rows"]) == ("Spark", [["wen"]])
