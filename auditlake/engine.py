"""Engine of the pipeline: which work of bootstrap, follow, apply, resync and maintain runs in this process.

    auto     in this process what fits on one machine, the rest in Spark; everything in Spark if its master is a
             cluster; the same as `duckdb` if Spark is not installed
    spark    everything in Spark: ranges of the snapshot are tasks, the fold is a job, its commit a MERGE of Delta's,
             compaction an OPTIMIZE
    duckdb   everything in this process, by DuckDB and Arrow; no JVM. A tail that it cannot fold parks its table.

Questions choose their engine themselves (`query.engine_choice`).
"""

import os
import re
from enum import StrEnum

from auditlake.extras import SPARK

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
LOCAL_MASTER = "local[*]"


class Engine(StrEnum):
    """A choice of the user; of a work that is done, the engine that did it."""

    AUTO = "auto"
    SPARK = "spark"
    DUCKDB = "duckdb"

    def on(self, master: str, *, submitted: bool) -> "Engine":
        """Return the engine with this master of Spark, if it is `auto`: Spark with a cluster, or under spark-submit.

        Without Spark installed it is DuckDB: one table that needs Spark is parked, and does not end the process.
        """
        if self is not Engine.AUTO:
            return self
        if submitted or local_cores(master) is None:
            return Engine.SPARK
        return self if SPARK.is_installed else Engine.DUCKDB


def local_cores(master: str) -> int | None:
    """Return the cores of a local master; None if Spark distributes tasks over machines."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return None
    return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
