"""Spark on demand: the session of a pipeline, which starts when a stage needs it, and is given back when it idles.

One transaction that does not fit into memory needs a JVM for seconds; the JVM would keep gigabytes as long as the
process runs. So one that `auto` started ends once it was not needed for a while: `rest` is called between the batches.
With `spark` every batch needs it, so it stays.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from auditlake.engine import LOCAL_MASTER, Engine
from auditlake.errors import Unsupported
from auditlake.extras import SPARK
from auditlake.startup import is_submitted

if TYPE_CHECKING:  # pyspark takes a second to import, and a bootstrap need not start Spark
    from pyspark.sql import SparkSession

IDLE_S = 300.0


class SparkOnDemand:
    """The Spark of a process, called for its session; a JVM of `auto` is kept `idle_s` after its last work."""

    def __init__(
        self,
        settings: Mapping[str, str],
        engine: Engine = Engine.AUTO,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.master = settings.get("spark.master", LOCAL_MASTER)
        self.engine = engine.on(self.master, submitted=is_submitted())
        self._settings, self._idle_s, self._clock = settings, idle_s, clock
        self._lock = threading.Lock()
        self._used = False
        self._rested_s: float | None = None

    def __call__(self) -> "SparkSession":
        """Return Spark's session, started if needed; raises Unsupported if the engine is DuckDB, ConfigError."""
        if self.engine is Engine.DUCKDB:
            raise Unsupported(
                "this needs Spark, and the engine is duckdb",
                f"Give --engine auto, with Spark installed ({SPARK.command}).",
            )
        from auditlake.spark.session import spark_session  # noqa: PLC0415 - as above

        with self._lock:
            self._used = True
            return spark_session(self._settings)

    def rest(self) -> None:
        """End a JVM that nothing has needed for `idle_s`; call it while nothing uses the session."""
        with self._lock:
            if self._used:
                self._used, self._rested_s = False, self._clock()
            elif self._is_idle():
                from auditlake.spark.session import end_session  # noqa: PLC0415 - as above

                self._rested_s = None
                end_session()

    def _is_idle(self) -> bool:
        if self.engine is not Engine.AUTO or self._rested_s is None:
            return False
        return self._clock() - self._rested_s >= self._idle_s
