"""Test of the JVM's warm-up batch."""

import tempfile
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.apply import warmup
from auditlake.apply.apply import Applied, StartSpark, apply_pending
from auditlake.lake.layout import Lake

pytestmark = pytest.mark.spark


def test_warm_up_merges_a_batch_and_leaves_no_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process skips it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done: list[Applied] = []

    def applied(start_spark: StartSpark, lake: Lake) -> None:
        done.append(apply_pending(start_spark, lake))

    monkeypatch.setattr(warmup, "apply_pending", applied)
    warmup.warm_up(spark, threading.Event())
    assert [[*each.rows.values()] for each in done] == [[1]]
    assert not [*tmp_path.iterdir()]

    stopped = threading.Event()
    stopped.set()
    warmup.warm_up(spark, stopped)
    assert len(done) == 1
