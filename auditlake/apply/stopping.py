"""Stopping: end the folds in Spark when the run is asked to end.

One may take minutes, and the next run begins it again from the same position. The error of a cancelled fold is not
about the changes, so it parks no table.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from auditlake.background import in_background
from auditlake.cancellation import Cancelled
from auditlake.spark.job_group import JobGroup

if TYPE_CHECKING:  # pyspark takes a second to import
    from pyspark.sql import SparkSession

_POLL_S = 0.2


class StoppableFolds:
    """Folds in Spark that end when `stop` is set; None if nothing ends them."""

    def __init__(self, spark: "SparkSession", stop: threading.Event | None) -> None:
        self._jobs = JobGroup(spark, "a fold of auditlake")
        self._stop = stop or threading.Event()

    def watched(self) -> AbstractContextManager[None]:
        """Cancel the jobs of `fold`, again and again: a fold has several, and none may run at that moment."""
        return in_background(self._watch, name="stop-folds")

    @contextmanager
    def fold(self) -> Iterator[None]:
        """Fold in the block; raises Cancelled if the run was asked to end, also for what fails then."""
        self._require()
        self._jobs.join()
        try:
            yield
        except Exception:
            self._require()
            raise

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(_POLL_S):
            if self._stop.is_set():
                self._jobs.interrupt()

    def _require(self) -> None:
        if self._stop.is_set():
            raise Cancelled("the fold was ended", "The next run begins it again.")
