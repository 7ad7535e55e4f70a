"""Workers that copy bundles of ranges: processes of this machine, or Spark tasks (engine `spark`, or a cluster).

Both run `copy.copy_bundle` in Python processes, each with one connection. A local Spark does the same, behind a JVM
that takes five seconds of two cores to start, and a gigabyte as long as it runs. So `auto` starts none with a local
master, and the history can be queried that much earlier.

A worker that ends has failed its bundle; its files belong to no table. The next bundle gets a new worker. This is why
the standard library's ProcessPoolExecutor is not used: with one of two workers killed, all of 8 tasks failed
(2026-11-22, bench/own_code.py).

A local worker is `python -m auditlake.snapshot.worker_pool`: it reads pickled bundles from standard input and writes
pickled results to standard output. At the end of standard input it exits at once, even in the middle of a range: its
parent has closed it or was killed, and neither the connection nor the imported snapshot may outlive the parent.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

from auditlake.engine import Engine, local_cores
from auditlake.errors import AuditlakeError, LakeUnusable
from auditlake.messages import report_bug
from auditlake.snapshot.ctid_ranges import CopiedFile, CopyTask
from auditlake.spark.job_group import JobGroup
from auditlake.startup import lean

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from auditlake.spark.on_demand import SparkOnDemand

_END_TIMEOUT_S = 5.0
_ENDED = ("the copy was ended", "Let it run to its end")

Result = CopiedFile | AuditlakeError
R = TypeVar("R")


class Workers(Protocol):
    """Copy bundles, at most `at_once` concurrently, each called from a thread of its own."""

    at_once: int

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        """Copy a bundle; if its worker dies, return a failure for each range."""

    def close(self) -> None:
        """Abort the bundles being copied, even in the middle of a range; those that are left fail."""


def start_workers(spark: "SparkOnDemand") -> Workers:
    """Start an engine's workers: Spark's tasks or processes. Raises ConfigError if Spark does not start."""
    if spark.engine is Engine.SPARK:
        return SparkWorkers(spark())
    return LocalWorkers(local_cores(spark.master) or os.cpu_count() or 1)


@contextmanager
def closed_at_end(workers: Future[Workers]) -> Iterator[Future[Workers]]:
    """Close the workers, which start concurrently with the block, at its end."""
    try:
        yield workers
    finally:
        if workers.exception() is None:
            workers.result().close()


def run_in_task(context: "SparkContext", call: Callable[[], R]) -> R:
    """Run a function in one Spark task, in a Python process of an executor, and return its result.

    `call` may hold the database password. It travels as part of the task, which Spark shows nowhere; values given to
    `parallelize` would be written to a file on the driver.

    Raises Py4JError, whose text may quote rows.
    """
    (done,) = context.parallelize([None], 1).map(lambda _: call()).collect()
    return done


class SparkWorkers:
    """Run each bundle as a Spark job of one task: this costs about 20 ms, and returns each result when it is done."""

    def __init__(self, spark: "SparkSession") -> None:
        self._context = spark.sparkContext
        self.at_once = self._context.defaultParallelism
        self._jobs, self._is_closed = JobGroup(spark, "a copy of auditlake"), False

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        """Run one Spark task."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - only with Spark

        from auditlake.snapshot.copy import copy_bundle  # noqa: PLC0415 - its imports belong to workers

        if self._is_closed:
            return _lost(tasks, *_ENDED)
        try:
            self._jobs.join()
            done = run_in_task(self._context, partial(copy_bundle, tasks))
        except Py4JError:  # its text may quote rows
            return _lost(tasks, "its Spark task failed", "Check Spark's log for lost executors and memory")
        return done

    def close(self) -> None:
        """Cancel the jobs; the session belongs to the caller."""
        self._is_closed = True
        self._jobs.interrupt()


class LocalWorkers:
    """Run bundles in processes of this machine, which end when this one does, even if it is killed.

    One starts at once, another whenever a bundle finds none idle: most copies are a single bundle.
    """

    def __init__(self, count: int) -> None:
        self.at_once = count
        self._processes: list[_Process] = []
        self._choosing = threading.Lock()
        self._is_closed = False
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self._idle.put(self._start())

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        """Run a bundle in an idle process, or in a new one."""
        with self._choosing:
            if self._is_closed:
                return _lost(tasks, *_ENDED)
            process = self._start() if self._idle.empty() else self._idle.get()
        try:
            done = process.run(tasks)
        except (OSError, EOFError, pickle.UnpicklingError, ValueError):  # the last for pipes that `close` has closed
            return _lost(tasks, f"its worker {process.end()}", "Check whether memory ran out")
        self._idle.put(process)
        return done

    def close(self) -> None:
        """End the processes."""
        with self._choosing:
            self._is_closed = True
        for process in self._processes:
            process.end()

    def _start(self) -> "_Process":
        process = _Process()
        self._processes.append(process)
        return process


class _Process:
    """A worker process: reads pickled bundles, writes pickled results, and exits at the end of its input."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "auditlake.snapshot.worker_pool"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        self._tasks, self._results = self._process.stdin, self._process.stdout
        self._reading = threading.Lock()

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        pickle.dump(tasks, self._tasks)
        self._tasks.flush()
        with self._reading:
            done: Sequence[Result] = pickle.load(self._results)  # noqa: S301 - from our own process
        return done

    def end(self) -> str:
        """End the process and return how it ended."""
        with suppress(OSError):
            self._tasks.close()
        try:
            code = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with self._reading:  # a thread that reads them has met their end, now that the process has ended
            self._results.close()
        return f"was killed by signal {-code}" if code < 0 else f"ended with {code}"


def _lost(tasks: Sequence[CopyTask], why: str, advice: str) -> Sequence[Result]:
    hint = f"{advice}; then run this again."
    return [LakeUnusable(f"table {task.name} could not be copied: {why}", hint) for task in tasks]


def main() -> None:
    """Copy bundles until standard input ends, in a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to us, too; the parent decides
    lean()
    from auditlake.snapshot.copy import copy_bundle  # noqa: PLC0415 - a slow import

    bundles: SimpleQueue[Sequence[CopyTask]] = SimpleQueue()
    with os.fdopen(os.dup(1), "wb") as results:
        os.dup2(2, 1)  # output of libraries must not get into the results
        threading.Thread(target=_receive, args=(sys.stdin.buffer, bundles), daemon=True).start()
        while True:
            pickle.dump(copy_bundle(bundles.get()), results)
            results.flush()


def _receive(source: BinaryIO, bundles: SimpleQueue[Sequence[CopyTask]]) -> None:
    while True:
        try:
            bundles.put(pickle.load(source))  # noqa: S301 - from our own process
        except EOFError:
            os._exit(0)
        except Exception as exc:  # noqa: BLE001 - else the main thread would wait for bundles for ever
            report_bug(exc)
            os._exit(1)


if __name__ == "__main__":
    try:
        main()
    except Exception as exc:  # noqa: BLE001 - its text might quote rows
        report_bug(exc)
        sys.exit(1)
