"""Both engines give the same answers to random statements, for five minutes; AUDITLAKE_ENGINES_S sets the seconds."""

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engines_compared import Engines, compare
from tests.random_seeds import random_seeds
from tests.random_sql import write_lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]


def test_both_engines_give_the_same_answers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expressions, aggregates, joins, grouping, set operations and order, on lakes of random hostile values."""
    monkeypatch.setenv("AUDITLAKE_PROPERTY_S", os.environ.get("AUDITLAKE_ENGINES_S", "300"))
    for seed in random_seeds():
        engines = Engines(spark, write_lake(tmp_path / str(seed), seed, 60))
        found = compare(engines, random.Random(seed), expressions=80, statements=30)  # noqa: S311 - no secrets
        assert not found, "\n".join(found)
