"""The Spark session: local by default, with Delta, in UTC, quiet, and started without a network.

`spark_session` returns the one session of the process. Settings of the caller override ours; so do those of
spark-submit, whose jars are used unchanged.

All three time zones (session, JVM default, `user.timezone`) are UTC: otherwise every commit to a small Delta table
reconstructs its whole state to verify itself (Delta's Snapshot.scala, `forceOnNonUTC`).

Authority: spark.apache.org/docs/4.2.0/configuration.html; Spark's SQLConf.scala; docs.delta.io, "Set up Apache Spark
with Delta Lake"
"""

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import delta.exceptions  # noqa: F401 - from here on, exceptions of Delta's are raised as its Python classes
import pyspark
from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from auditlake.engine import LOCAL_MASTER
from auditlake.errors import ConfigError
from auditlake.spark import connect
from auditlake.spark import log_store as logstore
from auditlake.spark.jars import delta_jars, s3_jars
from auditlake.spark.java import require_java
from auditlake.spark.jvm import driver_options, launch, stop_spark
from auditlake.startup import is_submitted, whole
from auditlake.store.objects import S3_FILE_SYSTEM
from auditlake.store.process_folder import process_folder

_DEFAULTS = {
    "spark.app.name": "auditlake",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    **logstore.SETTINGS,
    "spark.sql.catalogImplementation": "in-memory",  # tables are paths: no metastore, no derby.log
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 by default: others read it in ns, up to 2262
    "spark.sql.ansi.enabled": "true",  # a cast that fails is an error, never a NULL
    # Otherwise `${env:HOME}`, also in a name or a literal of the source, is replaced by the variable.
    "spark.sql.variable.substitute": "false",
    # What a loaded machine does not do in time: answer a client that fetches rows within 15 s, broadcast within 300 s.
    "spark.python.authenticate.socketTimeout": "1h",
    "spark.sql.broadcastTimeout": "-1",
    "spark.sql.adaptive.enabled": "false",  # a tenth of a small MERGE is its replanning
    # The JVM compiles no method above 8000 bytes, and interprets a stage that is one: four times the time, measured.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # An as-of query unions files read without filter and files read with one. This compiles them into one loop;
    # otherwise every row is copied once, which costs as much as reading it. New in 4.2, and off by default.
    "spark.sql.codegen.wholeStage.union.enabled": "true",
    "spark.sql.files.maxPartitionBytes": "64m",  # 128 makes two or three tasks, which two cores share badly
    # 200 by default, so many tasks for a handful of changes; on a single machine, one per core.
    "spark.sql.shuffle.partitions": "16",
    # A reader decodes 4096 rows of a row group at once, whatever their length. 128 MB by default, from 100 rows on.
    "spark.hadoop.parquet.block.size": str(32 << 20),
    "spark.hadoop.parquet.page.size.row.check.min": "10",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",  # 32 by default: a job to list 33 files
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",  # 10,000 by default: tasks of a vacuum
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 by default: 50 tiny tasks to read a small table's log
    # Delta writes the list of all files beside every commit, and reads it only to verify it.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    "spark.databricks.delta.vacuum.logging.enabled": "false",  # a vacuum makes no commit
    "spark.hadoop.fs.permissions.umask-mode": "027",  # Hadoop sets the mode of each file, whatever the process's umask
    # 100 by default, fewer than the compiled classes of the batches of three tables.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.ui.enabled": "false",
    # The UI is off, but Spark keeps its data, with the text of every plan.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.ui.showConsoleProgress": "false",
}
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_LOG4J = Path(__file__).with_name("log4j2.properties")
# A batch runs much code a few times, so half of the CPU went to the JVM's second compiler. It now starts ten times
# later and inlines less: a third less CPU for the first batches of a JVM, a tenth for later ones (measured).
_COMPILE_LESS = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
    " -XX:MaxInlineLevel=6 -XX:FreqInlineSize=120 -XX:LoopUnrollLimit=10 -XX:-UseSuperWord"
)
_COLLECTOR = "-XX:+UseParallelGC"
_ANY_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_JVM_OPTIONS = {
    _DRIVER_OPTIONS: f"-Duser.timezone=UTC -Dlog4j2.configurationFile={_LOG4J.as_uri()} {_COMPILE_LESS}",
    "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",  # on other machines, without the log4j2 file
}
# pyspark's loggers that print every failed query with the values it failed on.
LOGGERS_OF_ROWS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_LOOPBACK = "127.0.0.1"
_GIB = 1 << 30


def spark_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark, or return the running session, with these settings added as far as Spark still allows it.

    Raises ConfigError if Java or the Delta jars are missing, the JVM refuses its settings, or they name a Spark Connect
    server.
    """
    whole()  # Spark needs pandas
    wanted = settings or {}
    connect.refuse_connect(wanted)
    for name in LOGGERS_OF_ROWS:
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger().addFilter(_is_not_of_py4j)
    AccumulatorTCPServer.handle_error = _leave_to_py4j  # type: ignore[assignment, method-assign]
    _forget_ended()
    if SparkContext._active_spark_context is not None:  # noqa: SLF001  # the only way to ask without starting one
        return SparkSession.builder.config(map={**wanted}).getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers run the first python3 on the PATH
    with _interrupt_handler_kept():
        if is_submitted():
            _join_submitted(wanted)
        else:
            _start(wanted)
    return SparkSession.builder.getOrCreate()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Leave out what Py4J logs if the JVM does not answer: a traceback, with its command. It raises, too."""
    return record.module != "java_gateway"


def _leave_to_py4j(_: AccumulatorTCPServer, request: object, client_address: object) -> None:
    """Print no traceback if the JVM ends, with its connection to this server: the next call raises it."""


def _process() -> "subprocess.Popen[bytes] | None":
    """Return the process of the running session's JVM; None without one, or if another program started it."""
    found: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - as above
    return found


def has_ended() -> bool:
    """Return whether the JVM of the session has ended."""
    process = _process()
    return process is not None and process.poll() is not None


def _forget_ended() -> None:
    """Forget a session whose JVM has ended; pyspark would go on using it."""
    if has_ended():
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - as above
        SparkSession._instantiatedSession = None  # noqa: SLF001 - as above


def end_jvm() -> None:
    """End the JVM that this process started, whatever it does; the next session starts another."""
    if (process := _process()) is not None:
        process.kill()


def end_session() -> None:
    """Stop Spark, and give back the memory of the JVM that this process started; the next session starts another."""
    if _process() is not None and not has_ended():
        stop_spark()
    _forget_ended()


def session_for_questions(settings: Mapping[str, str]) -> SparkSession:
    """Return a session that need not commit: on the Connect server of the settings, else here. Raises ConfigError."""
    whole()  # as above
    url = connect.remote_of(settings)
    return spark_session(settings) if url is None else connect.open_session(url, settings)


@contextmanager
def _interrupt_handler_kept() -> Iterator[None]:
    """Keep the caller's SIGINT handler: SparkContext replaces it by one that raises KeyboardInterrupt."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before != signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _join_submitted(wanted: Mapping[str, str]) -> None:
    """Use the JVM that spark-submit started; its settings override our defaults."""
    gateway = launch({})
    conf = SparkConf(_jvm=gateway.jvm)
    for key, value in _DEFAULTS.items():
        conf.setIfMissing(key, value)
    conf.setIfMissing("spark.executor.extraJavaOptions", _JVM_OPTIONS["spark.executor.extraJavaOptions"])
    _set_utc(gateway)
    logstore.install(SparkContext(conf=conf.setAll(list(wanted.items())), gateway=gateway))


def _set_utc(gateway: JavaGateway) -> None:
    """Set what `-Duser.timezone=UTC` sets, in a JVM that runs already."""
    java = gateway.jvm.java
    java.lang.System.setProperty("user.timezone", "UTC")
    java.util.TimeZone.setDefault(java.util.TimeZone.getTimeZone("UTC"))


def _start(wanted: Mapping[str, str]) -> None:
    require_java()
    settings = {"spark.master": LOCAL_MASTER, **_DEFAULTS, **wanted}
    for key, options in _JVM_OPTIONS.items():
        settings[key] = f"{options} {wanted.get(key, '')}".strip()  # of two equal options the last one applies
    settings[_DRIVER_OPTIONS] += _collector(settings[_DRIVER_OPTIONS])
    if "spark.jars" not in wanted and "spark.jars.packages" not in wanted:
        _add_jars(settings, delta_jars(wanted), s3_jars(wanted) if S3_FILE_SYSTEM in wanted else [])
    if settings["spark.master"].startswith("local"):
        settings |= {key: value for key, value in _local_defaults().items() if key not in wanted}
        # Otherwise Spark resolves the host's name, which may have no address.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    gateway = launch(settings)
    context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())), gateway=gateway)
    logstore.install(context)
    if context.version != pyspark.__version__:
        raise ConfigError(
            f"Spark at {os.environ.get('SPARK_HOME')} is {context.version}, pyspark is {pyspark.__version__}",
            "unset SPARK_HOME: pyspark brings its own Spark.",
        )


def _add_jars(settings: dict[str, str], delta: Sequence[Path], others: Sequence[Path]) -> None:
    """Add jars: in local mode to the class path, because the class-data archive covers only that.

    The archive is used by any class path that begins with its own, so the Delta jars come first.
    """
    jars = [*delta, *others]
    single_jvm = re.fullmatch(r"local(\[.*\])?", settings["spark.master"]) is not None
    if not single_jvm or _CLASS_PATH in settings or any(os.pathsep in str(jar) for jar in jars):
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
        return
    settings[_CLASS_PATH] = os.pathsep.join(str(jar) for jar in jars)
    if "-XX:ArchiveClassesAtExit" not in settings[_DRIVER_OPTIONS]:
        settings[_DRIVER_OPTIONS] += driver_options(delta)


def _collector(options: str) -> str:
    """Return the option of our garbage collector, unless one is chosen: a JVM with two does not start."""
    chosen = (options, *(os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")))
    return "" if any(map(_ANY_COLLECTOR.search, chosen)) else f" {_COLLECTOR}"


def _local_defaults() -> dict[str, str]:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _GIB
    return {
        "spark.driver.memory": f"{max(1, min(4, memory_gib // 2))}g",
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        # The only executor is in this JVM. After two minutes of suspension Spark would declare it lost, and print a
        # stack trace every few seconds from then on.
        "spark.storage.blockManagerHeartbeatTimeoutMs": str(2**31 - 1),
        "spark.local.dir": str(process_folder()),
        # Nothing is written to it, but Spark creates it: keep it out of the working folder.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), f"auditlake-{os.getuid()}", "warehouse")),
    }
