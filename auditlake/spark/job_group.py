"""Job group: the Spark jobs of one piece of work, which another thread can cancel."""

import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pyspark takes a second to import
    from pyspark.sql import SparkSession


class JobGroup:
    """A group of jobs in the Spark of a session; `what` describes them in Spark's user interface."""

    def __init__(self, spark: "SparkSession", what: str) -> None:
        self._context, self._group, self._what = spark.sparkContext, f"auditlake {uuid.uuid4()}", what

    def join(self) -> None:
        """Add the jobs that this thread starts from now on."""
        self._context.setJobGroup(self._group, self._what, interruptOnCancel=True)

    def interrupt(self) -> None:
        """Cancel the jobs that run."""
        self._context.cancelJobGroup(self._group)

    def close(self) -> None:
        """Do nothing: a group without jobs holds no resources (`cancellation.Interruptible`)."""
