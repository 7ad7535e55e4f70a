"""The Spark session: local by default, with Delta, in UTC, quiet, and started without a network.

`spark_session` gives the one session of the process. Settings of the caller win over ours; under spark-submit its
settings win too, and its jars are left alone.

All three time zones (session, JVM default, `user.timezone`) are UTC: otherwise every commit to a small Delta table
reconstructs its whole state to verify itself (Delta's Snapshot.scala, `forceOnNonUTC`).

Authority: spark.apache.org/docs/4.2.0/configuration.html; docs.delta.io, "Set up Apache Spark with Delta Lake"
"""

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from auditlake.errors import ConfigError
from auditlake.lake.jars import delta_jars
from auditlake.lake.java import launch, require_java

_DEFAULTS = {
    "spark.app.name": "auditlake",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalogImplementation": "in-memory",  # tables are paths: no metastore, no derby.log
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 by default: others read it in ns, up to 2262
    "spark.sql.ansi.enabled": "true",  # a cast that fails is an error, never a NULL
    "spark.sql.adaptive.enabled": "false",  # a tenth of a small MERGE is its replanning
    # The JVM compiles no method above 8000 bytes, and interprets a stage that is one: four times the time, measured.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # The whole files of a past moment are read in one plan with the others, which this compiles into one loop: else
    # every row is copied on its way, at the price of reading it. Off by default in 4.2, where it is new.
    "spark.sql.codegen.wholeStage.union.enabled": "true",
    "spark.sql.files.maxPartitionBytes": "64m",  # of 128 two or three tasks read a history, which two cores share badly
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",  # 32 by default: a job to look at 33 files
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",  # a vacuum lists folders in so many: 10,000
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 by default: 50 tiny tasks to read a small table's log
    # Delta writes the list of all files beside every commit, and reads it only to verify it.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    # 100 by default, fewer than the pieces of code that the batches of three tables are compiled to.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.ui.enabled": "false",
    # Kept for a page that nobody can open, with the text of every plan.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.ui.showConsoleProgress": "false",
}
# Else Spark takes braces and brackets in a path for patterns.
PATHS_AS_THEY_ARE = ("__globPaths__", "false")
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_LOG4J = Path(__file__).with_name("log4j2.properties")
# A batch runs much code a few times, so half of the CPU went to the JVM's second compiler: it waits ten times as long,
# and inlines less. A third less CPU for the first batches of a JVM, and a tenth for later ones, measured.
_COMPILE_LESS = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
    " -XX:MaxInlineLevel=6 -XX:FreqInlineSize=120 -XX:LoopUnrollLimit=10 -XX:-UseSuperWord"
)
_COLLECTOR = "-XX:+UseParallelGC"
_ANY_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_JVM_OPTIONS = {
    _DRIVER_OPTIONS: f"-Duser.timezone=UTC -Dlog4j2.configurationFile={_LOG4J.as_uri()} {_COMPILE_LESS}",
    "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",  # on other machines, which have no such file
}
# They print every failed query with the values it failed on.
_LOGS_OF_ROWS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_LOOPBACK = "127.0.0.1"
_GIB = 1 << 30


def spark_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark, or give the session that runs already, with these settings added where Spark still allows it.

    Raises ConfigError where Java or the Delta jars are missing, or the JVM refuses its settings.
    """
    wanted = settings or {}
    for name in _LOGS_OF_ROWS:
        PySparkLogger.getLogger(name).disabled = True
    if SparkContext._active_spark_context is not None:  # noqa: SLF001  # the only way to ask without starting one
        return SparkSession.builder.config(map={**wanted}).getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take whatever python3 is on the PATH
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        _join_submitted(wanted)
    else:
        _start(wanted)
    return SparkSession.builder.getOrCreate()


def read_version(spark: SparkSession, path: str, version: int) -> DataFrame:
    """Read one version of a Delta table, whatever is committed meanwhile."""
    return spark.read.format("delta").option("versionAsOf", version).load(path)


def _join_submitted(wanted: Mapping[str, str]) -> None:
    """Use the JVM that spark-submit started: what it was told outranks our defaults."""
    gateway = launch({})
    conf = SparkConf(_jvm=gateway.jvm)
    for key, value in _DEFAULTS.items():
        conf.setIfMissing(key, value)
    SparkContext(conf=conf.setAll(list(wanted.items())), gateway=gateway)


def _start(wanted: Mapping[str, str]) -> None:
    require_java()
    settings = {"spark.master": "local[*]", **_DEFAULTS, **wanted}
    for key, options in _JVM_OPTIONS.items():
        settings[key] = f"{options} {wanted.get(key, '')}".strip()  # the last one of two counts
    settings[_DRIVER_OPTIONS] += _collector(settings[_DRIVER_OPTIONS])
    if "spark.jars" not in wanted and "spark.jars.packages" not in wanted:
        settings["spark.jars"] = ",".join(str(jar) for jar in delta_jars(wanted))
    if settings["spark.master"].startswith("local"):
        settings = _local_defaults() | settings
        # Else Spark looks up the address of the host's name, and there may be none.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    gateway = launch(settings)
    context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())), gateway=gateway)
    if context.version != pyspark.__version__:
        raise ConfigError(
            f"Spark at {os.environ.get('SPARK_HOME')} is {context.version}, pyspark is {pyspark.__version__}",
            "unset SPARK_HOME: pyspark brings its own Spark.",
        )


def _collector(options: str) -> str:
    """Ours, unless one is chosen already: a JVM with two does not start."""
    chosen = (options, *(os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")))
    return "" if any(_ANY_COLLECTOR.search(each) for each in chosen) else f" {_COLLECTOR}"


def _local_defaults() -> dict[str, str]:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _GIB
    return {
        "spark.driver.memory": f"{max(1, min(4, memory_gib // 2))}g",
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        # The only executor is in this JVM. After two minutes of suspension Spark would take it for lost, and print
        # a stack trace every few seconds from then on.
        "spark.storage.blockManagerHeartbeatTimeoutMs": str(2**31 - 1),
        # Never written to, but Spark makes it: not in the working folder.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), f"auditlake-{os.getuid()}", "warehouse")),
    }
