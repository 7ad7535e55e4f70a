"""Who copies bundles of ranges: processes of our own on this machine, Spark's tasks on a cluster.

Both run `copy.copy_bundle` in Python processes, each with one connection; a local Spark would do the same, behind a
JVM that takes five seconds of two cores to start and as long as it runs a gigabyte. So where the master is local there
is none, and the history can be asked for that much earlier.

A worker that ends has failed its bundle, and whatever it left is no part of a table; the next bundle gets a fresh one.
"""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from auditlake.errors import AuditlakeError, LakeUnusable
from auditlake.snapshot.task import CopiedFile, CopyTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_PATIENCE_S = 5.0

Result = CopiedFile | AuditlakeError


class Workers(Protocol):
    """Copy bundles, at most `at_once` at a time, each from a thread of its own."""

    at_once: int

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        """Copy a bundle; where its worker does not come back, each of its ranges has failed."""

    def cancel(self) -> None:
        """Give up what is being copied."""

    def close(self) -> None:
        """Let go of what is not needed any more; nothing is being copied."""


def local_count(settings: Mapping[str, str]) -> int | None:
    """How many workers a local master stands for; None where Spark spreads its tasks over other machines."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started Spark already
        return None
    found = _LOCAL.fullmatch(settings.get("spark.master", "local[*]"))
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def start_workers(settings: Mapping[str, str]) -> Workers:
    """Start what the settings of Spark ask for.

    Raises ConfigError where Spark does not start.
    """
    count = local_count(settings)
    if count is not None:
        return LocalWorkers(count)
    from auditlake.lake.session import spark_session  # noqa: PLC0415 - only where there is Spark

    return SparkWorkers(spark_session(settings))


class SparkWorkers:
    """Every bundle is a Spark job of one task: that costs some 20 ms, and lets a result be seen when it is there."""

    def __init__(self, spark: "SparkSession") -> None:
        self._context = spark.sparkContext
        self.at_once = self._context.defaultParallelism

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        """Run one Spark task."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - only where there is Spark

        from auditlake.snapshot.copy import copy_bundle  # noqa: PLC0415 - elsewhere its imports are a worker's

        try:
            (done,) = self._context.parallelize([tasks], 1).map(copy_bundle).collect()
        except Py4JError:  # its text may quote rows
            return _lost(tasks, "its Spark task failed", "See Spark's log, and whether memory or a machine was lost")
        return done

    def cancel(self) -> None:
        """Cancel all jobs."""
        self._context.cancelAllJobs()

    def close(self) -> None:
        """Leave the session as it is: it is the caller's."""


class LocalWorkers:
    """Processes of this machine, which end with this one however it ends."""

    def __init__(self, count: int) -> None:
        self.at_once = count
        self._processes: list[_Process] = []
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for _ in range(count):
            self._start()

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        """Hand a bundle to an idle process."""
        process = self._idle.get()
        try:
            done = process.ask(tasks)
        except (OSError, EOFError, pickle.UnpicklingError):
            self._start()
            return _lost(tasks, f"its worker {process.end()}", "See whether memory was short")
        self._idle.put(process)
        return done

    def cancel(self) -> None:
        """End the processes, in the middle of whatever they do."""
        self.close()

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.end()

    def _start(self) -> None:
        process = _Process()
        self._processes.append(process)
        self._idle.put(process)


class _Process:
    """One worker: pickled bundles go in, pickled results come out. It ends when what it reads ends."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "auditlake.snapshot.worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        self._tasks, self._results = self._process.stdin, self._process.stdout

    def ask(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        pickle.dump(tasks, self._tasks)
        self._tasks.flush()
        done: Sequence[Result] = pickle.load(self._results)  # noqa: S301 - from our own process
        return done

    def end(self) -> str:
        """End it, and say how it ended."""
        with suppress(OSError):
            self._tasks.close()
        self._results.close()
        try:
            code = self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"was killed by signal {-code}" if code < 0 else f"ended with {code}"


def _lost(tasks: Sequence[CopyTask], why: str, look: str) -> Sequence[Result]:
    hint = f"{look}; then run auditlake bootstrap again."
    return [LakeUnusable(f"table {task.name} could not be copied: {why}", hint) for task in tasks]
