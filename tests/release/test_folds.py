"""Random histories of all features equal the model, for AUDITLAKE_FOLDS_S seconds (120)."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.random_seeds import random_seeds
from tests.spark.apply.test_fold_property import Features, check_history

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]


def test_random_histories_of_all_features_equal_the_model(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second one has REPLICA IDENTITY FULL, and is planned without statistics of its tail."""
    monkeypatch.setenv("AUDITLAKE_PROPERTY_S", os.environ.get("AUDITLAKE_FOLDS_S", "120"))
    for seed in random_seeds():
        features = Features(deletes=True, truncates=True, key_changes=True, unchanged=True, full=seed % 2 == 1)
        check_history(spark, tmp_path / str(seed), seed, features)
