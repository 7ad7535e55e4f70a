"""Test of the batch whose classes are archived."""

import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.apply import warmup
from auditlake.apply.apply import merge_all
from auditlake.apply.tails import Tail
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Parked

pytestmark = pytest.mark.spark


def test_a_batch_is_merged_by_spark_and_leaves_no_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One change of one table."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    merged: list[Tail] = []

    def merge(session: SparkSession, lake: Lake, tails: list[Tail]) -> list[Parked]:
        merged.extend(tails)
        return merge_all(session, lake, tails)

    monkeypatch.setattr(warmup, "merge_all", merge)
    warmup.warm_up(spark)
    assert [tail.shape and tail.shape.rows for tail in merged] == [1]
    assert not [*tmp_path.iterdir()]
