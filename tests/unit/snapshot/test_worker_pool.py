"""Tests of the workers that copy, and of their number by Spark's master."""

import os
import pickle
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from auditlake.engine import Engine, local_cores
from auditlake.snapshot import worker_pool
from auditlake.spark.on_demand import SparkOnDemand
from tests import command

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
def test_a_local_master_means_a_process_per_thread(master: str, count: int | None) -> None:
    """Spark distributes the tasks if the master may have other machines."""
    assert count == local_cores(master)
    assert Engine.AUTO.on(master, submitted=False) is (Engine.SPARK if count is None else Engine.AUTO)


def test_only_auto_depends_on_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """With spark-submit, Spark runs already; the other engines are demanded."""
    monkeypatch.delenv(_GATEWAY, raising=False)
    assert SparkOnDemand({}).engine is Engine.AUTO
    monkeypatch.setenv(_GATEWAY, "1")
    assert SparkOnDemand({}).engine is Engine.SPARK
    for demanded in (Engine.SPARK, Engine.DUCKDB):
        assert SparkOnDemand({"spark.master": "yarn"}, demanded).engine is demanded


def test_without_spark_there_is_a_worker_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is set says nothing about this machine."""
    started: list[int] = []
    monkeypatch.setattr(worker_pool, "LocalWorkers", started.append)
    worker_pool.start_workers(SparkOnDemand({"spark.master": "local[3]"}))
    worker_pool.start_workers(SparkOnDemand({"spark.master": "yarn"}, Engine.DUCKDB))
    assert started == [3, os.cpu_count()]


def test_a_worker_starts_only_if_none_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most copies are one bundle, and a process costs as much as copying megabytes."""
    started: list[mock.Mock] = []

    def start() -> mock.Mock:
        started.append(mock.Mock(run=lambda _: ()))
        return started[-1]

    monkeypatch.setattr(worker_pool, "_Process", start)
    workers = worker_pool.LocalWorkers(3)
    for _ in range(2):
        workers.run([])
        assert len(started) == 1
    started[0].run = workers.run  # the second bundle comes while the first one is copied
    workers.run([])
    assert len(started) == 2


def test_a_bundle_that_comes_after_the_end_of_the_copy_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a new worker, a copy that was ended would go on with all tables that it had not begun."""
    start = mock.Mock()
    monkeypatch.setattr(worker_pool, "_Process", start)
    workers = worker_pool.LocalWorkers(2)
    workers.close()
    (lost,) = workers.run([mock.Mock()])
    assert "the copy was ended" in str(lost)
    start.assert_called_once()


def test_a_worker_that_does_not_end_with_its_input_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it is suspended, while a bundle awaits its result."""
    monkeypatch.setattr(worker_pool, "_END_TIMEOUT_S", 0.1)
    task: Any = SimpleNamespace(name="public.t")
    before = {*command.children()}
    workers = worker_pool.LocalWorkers(1)
    (pid,) = {*command.children()} - before
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool, Path(f"/proc/{pid}/fd/0").open("rb") as given:
        copying = pool.submit(workers.run, [task])
        select.select([given], [], [])
        workers.close()
        (lost,) = copying.result()
    assert "its worker was killed by signal 9" in str(lost)


def test_a_bundle_that_reaches_a_worker_after_its_end_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the choice of the worker and the first byte for it, another thread closes the workers."""
    task: Any = SimpleNamespace(name="public.t")
    workers, dump = worker_pool.LocalWorkers(1), pickle.dump

    def late(tasks: object, pipe: Any) -> None:
        workers.close()
        dump(tasks, pipe)

    monkeypatch.setattr(pickle, "dump", late)
    (lost,) = workers.run([task])
    assert "its worker ended with 0" in str(lost)


def test_a_worker_exits_silently_at_the_end_of_its_input() -> None:
    """Its imports, without pandas and polars, succeed."""
    command = [sys.executable, "-m", "auditlake.snapshot.worker_pool"]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
