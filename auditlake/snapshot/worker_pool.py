"""Workers that copy bundles of ranges: local processes on one machine, Spark tasks on a cluster.

Both run `copy.copy_bundle` in Python processes, each with one connection. A local Spark would do the same, behind a JVM
that takes five seconds of two cores to start, and a gigabyte as long as it runs. So with a local master no JVM is
started, and the history can be queried that much earlier.

A worker that ends has failed its bundle; its files belong to no table. The next bundle gets a new worker. This is why
the standard library's ProcessPoolExecutor is not used: with one of two workers killed, all of 8 tasks failed
(2026-11-22, bench/own_code.py).
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
from auditlake.snapshot.ctid_ranges import CopiedFile, CopyTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_END_TIMEOUT_S = 5.0

Result = CopiedFile | AuditlakeError


class Workers(Protocol):
    """Copy bundles, at most `at_once` concurrently, each called from a thread of its own."""

    at_once: int

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        """Copy a bundle; if its worker dies, return a failure for each range."""

    def cancel(self) -> None:
        """Abort the bundles being copied."""

    def close(self) -> None:
        """Release all resources; no bundle is being copied."""


def local_count(settings: Mapping[str, str]) -> int | None:
    """Return the number of workers for a local master; None if Spark distributes tasks over machines."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started Spark already
        return None
    local = _LOCAL.fullmatch(settings.get("spark.master", "local[*]"))
    if local is None:
        return None
    return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)


def start_workers(settings: Mapping[str, str]) -> Workers:
    """Start the workers that Spark's settings imply.

    Raises ConfigError if Spark does not start.
    """
    count = local_count(settings)
    if count is not None:
        return LocalWorkers(count)
    from auditlake.spark.session import spark_session  # noqa: PLC0415 - only with Spark

    return SparkWorkers(spark_session(settings))


class SparkWorkers:
    """Run each bundle as a Spark job of one task: this costs about 20 ms, and returns each result when it is done."""

    def __init__(self, spark: "SparkSession") -> None:
        self._context = spark.sparkContext
        self.at_once = self._context.defaultParallelism

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        """Run one Spark task."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - only with Spark

        from auditlake.snapshot.copy import copy_bundle  # noqa: PLC0415 - its imports belong to workers

        try:
            (done,) = self._context.parallelize([tasks], 1).map(copy_bundle).collect()
        except Py4JError:  # its text may quote rows
            return _lost(tasks, "its Spark task failed", "Check Spark's log for lost executors and memory")
        return done

    def cancel(self) -> None:
        """Cancel all jobs."""
        self._context.cancelAllJobs()

    def close(self) -> None:
        """Keep the session, which belongs to the caller."""


class LocalWorkers:
    """Run bundles in processes of this machine, which end when this one does, even if it is killed."""

    def __init__(self, count: int) -> None:
        self.at_once = count
        self._processes: list[_Process] = []
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for _ in range(count):
            self._start()

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        """Run a bundle in an idle process."""
        process = self._idle.get()
        try:
            done = process.run(tasks)
        except (OSError, EOFError, pickle.UnpicklingError):
            self._start()
            return _lost(tasks, f"its worker {process.end()}", "Check whether memory ran out")
        self._idle.put(process)
        return done

    def cancel(self) -> None:
        """End the processes, even in the middle of a range."""
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
    """A worker process: reads pickled bundles, writes pickled results, and exits at the end of its input."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "auditlake.snapshot.worker_process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        self._tasks, self._results = self._process.stdin, self._process.stdout

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        pickle.dump(tasks, self._tasks)
        self._tasks.flush()
        done: Sequence[Result] = pickle.load(self._results)  # noqa: S301 - from our own process
        return done

    def end(self) -> str:
        """End the process and return how it ended."""
        with suppress(OSError):
            self._tasks.close()
        self._results.close()
        try:
            code = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"was killed by signal {-code}" if code < 0 else f"ended with {code}"


def _lost(tasks: Sequence[CopyTask], why: str, advice: str) -> Sequence[Result]:
    hint = f"{advice}; then run auditlake bootstrap again."
    return [LakeUnusable(f"table {task.name} could not be copied: {why}", hint) for task in tasks]
