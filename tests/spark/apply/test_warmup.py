"""The batch that warms a JVM up: it is applied, as a real one is, and leaves nothing."""

import tempfile
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.apply import warmup
from auditlake.apply.apply import Applied, apply_tail
from auditlake.lake.layout import Lake

pytestmark = pytest.mark.spark


def test_it_merges_and_leaves_nothing(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process does not even begin with it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done: list[Applied] = []

    def applied(spark: SparkSession, lake: Lake) -> None:
        done.append(apply_tail(spark, lake))

    monkeypatch.setattr(warmup, "apply_tail", applied)
    warmup.warm_up(spark, threading.Event())
    assert [[*each.rows.values()] for each in done] == [[1]]
    assert not [*tmp_path.iterdir()]

    stopped = threading.Event()
    stopped.set()
    warmup.warm_up(spark, stopped)
    assert len(done) == 1
