"""Which workers the settings of Spark stand for."""

import os
import subprocess
import sys

import pytest

from auditlake.snapshot.workers import local_count

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
def test_a_local_master_is_so_many_processes(master: str, count: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as it has threads; where there may be other machines Spark spreads the tasks."""
    monkeypatch.delenv(_GATEWAY, raising=False)
    assert count == local_count({"spark.master": master})


def test_the_default_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless spark-submit has started Spark already."""
    monkeypatch.delenv(_GATEWAY, raising=False)
    assert os.cpu_count() == local_count({})
    monkeypatch.setenv(_GATEWAY, "1")
    assert local_count({}) is None


def test_a_worker_starts_and_ends() -> None:
    """It loads what it needs without pandas and polars, and ends with its standard input, without a word."""
    command = [sys.executable, "-m", "auditlake.snapshot.worker"]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
