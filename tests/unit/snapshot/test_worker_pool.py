"""Tests of the workers that copy, and of their number by Spark's master."""

import os
import subprocess
import sys

import pytest

from auditlake.snapshot.worker_pool import local_count

_GATEWAY = "PYSPARK_GATEWAY_PORT"


@pytest.mark.parametrize(
    ("master", "count"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,2]", 3),
        ("local[*]", os.cpu_count()),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_a_local_master_means_a_process_per_thread(
    master: str, count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark distributes the tasks if the master may have other machines."""
    monkeypatch.delenv(_GATEWAY, raising=False)
    assert count == local_count({"spark.master": master})


def test_the_default_is_local_without_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With spark-submit, Spark runs already."""
    monkeypatch.delenv(_GATEWAY, raising=False)
    assert os.cpu_count() == local_count({})
    monkeypatch.setenv(_GATEWAY, "1")
    assert local_count({}) is None


def test_a_worker_exits_silently_at_the_end_of_its_input() -> None:
    """Its imports, without pandas and polars, succeed."""
    command = [sys.executable, "-m", "auditlake.snapshot.worker_pool"]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
