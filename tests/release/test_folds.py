"""Random histories equal the model, with all features and with some, for AUDITLAKE_FOLDS_S seconds (120) each."""

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.random_seeds import random_seeds
from tests.spark.apply.test_copies_property import check_copies
from tests.spark.apply.test_fold_property import Features, check_history

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]


@pytest.fixture(autouse=True)
def _longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDITLAKE_PROPERTY_S", os.environ.get("AUDITLAKE_FOLDS_S", "120"))


def test_random_histories_of_all_features_equal_the_model(spark: SparkSession, tmp_path: Path) -> None:
    """Every second one has REPLICA IDENTITY FULL, and is planned without statistics of its tail."""
    for seed in random_seeds():
        features = Features(deletes=True, truncates=True, key_changes=True, unchanged=True, full=seed % 2 == 1)
        check_history(spark, tmp_path / str(seed), seed, features)


def test_random_histories_of_some_features_equal_the_model(spark: SparkSession, tmp_path: Path) -> None:
    """A plan that one feature needs may hide a defect of the plan without it."""
    for seed in random_seeds():
        some = random.Random(seed).choices((False, True), k=4)  # noqa: S311 - no secret
        truncates, key_changes, unchanged, full = some
        features = Features(truncates=truncates, key_changes=key_changes, unchanged=unchanged, full=full, deletes=True)
        check_history(spark, tmp_path / str(seed), seed, features)


def test_random_histories_of_equal_rows_equal_the_model(spark: SparkSession, tmp_path: Path) -> None:
    """For any batch boundary: the first batch replaces the history, the second one is merged."""
    for seed in random_seeds():
        check_copies(spark, tmp_path / str(seed), seed, batches=2)
