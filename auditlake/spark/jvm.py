"""JVM of Spark: start Spark's gateway without its routine messages, and start it sooner.

`launch` forwards the JVM's standard error except for the few lines of every start. It starts the JVM itself, because
pyspark leaves one behind if it is interrupted meanwhile: the folder into which the JVM is to write its port is gone
then, its main thread fails before it reads the standard input with whose end it would exit, and its gateway runs on.

The class-data archive holds the JVM's parsed classes in one mapped file, so that session and first query take 0.54 of
the time (`bench/jvm_start.py`, two busy cores, 2026-11). `create_archive` runs a workload in a JVM that writes it when
it exits: `scripts/setup.sh` does it, and `auditlake doctor --fetch` anywhere else. `driver_options` names it for later
JVMs; without one they only start more slowly.

The name of an archive is a digest of all that it depends on: the Java runtime, Spark, and the class path. The JVM also
ignores one that does not fit. It archives only classes of its own class path, so the Delta jars must be there
(`spark.driver.extraClassPath`), not in `spark.jars`.

Authority: JEP 350, "Dynamic CDS Archives"; the `java` command of Java 17, "Application Class Data Sharing";
pyspark/java_gateway.py, launch_gateway; Spark's PythonGatewayServer.scala
"""

import hashlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pyspark
from py4j.java_gateway import JavaGateway
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from auditlake.errors import ConfigError
from auditlake.jvm_trace import KILLED_BY_KERNEL, LESS_HEAP, watch_jvm
from auditlake.signals import ENDING, handled
from auditlake.spark.java import cache_folder, require_java
from auditlake.startup import is_submitted

_LAST_WORDS_TIMEOUT_S = 5
_STDERR_FD = 2  # not sys.stderr: the JVM writes to the descriptor too
_NOISE = re.compile(
    rb"WARNING: Using incubator modules: jdk\.incubator\.vector"
    rb"|WARNING: (A restricted method in|Restricted methods will be|Use --enable-native-access=|java\.lang\.\w+::).*"
    rb"|WARNING: (A terminally deprecated method in |)sun\.misc\.Unsafe.*"
    rb"|WARNING: Please consider reporting this to the maintainers of .*"
    rb"|Using Spark's default log4j profile: .*"
    rb"|Using the configured log4j .*"
    rb"|Setting default log level to .*"
    rb"|To adjust logging level use .*"
    rb"|Deleted \d+ files and directories in a total of \d+ directories\."
    # The AWS SDK's own copy of SLF4J finds no binding; Spark's has one.
    rb'|SLF4J: Failed to load class "org\.slf4j\.impl\.StaticLoggerBinder"\.'
    rb"|SLF4J: Defaulting to no-operation \(NOP\) logger implementation"
    rb"|SLF4J: See https?://www\.slf4j\.org/codes\.html#StaticLoggerBinder for further details\."
)
_HEAP = "spark.driver.memory"
_POLL_S = 0.05
_END_TIMEOUT_S = 5.0
_QUIET = "-Xlog:cds*=off"
_JVM_EXIT_TIMEOUT_S = 300
_UNUSED_AFTER_S = 14 * 86_400


def launch(settings: Mapping[str, str]) -> JavaGateway:
    """Start a JVM with these settings, or connect to spark-submit's; raises ConfigError if it ends at once."""
    if is_submitted():
        return launch_gateway()  # type: ignore[no-untyped-call]
    read_fd, write_fd = os.pipe()
    forwarder = threading.Thread(target=_forward, args=(read_fd,), name="jvm-stderr", daemon=True)
    forwarder.start()
    with os.fdopen(write_fd, "wb") as stderr, _signals_later() as arrived, tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder, "port")
        jvm = _start_jvm(settings, port_file, stderr)
        try:
            while jvm.poll() is None and not arrived and not port_file.exists():
                time.sleep(_POLL_S)
            if port_file.exists() and not arrived:
                watch_jvm(jvm, settings.get(_HEAP, "1g"))
                return _connect(jvm, port_file)
        except BaseException:
            _end(jvm)
            raise
        ended = jvm.poll()
        _end(jvm)
    forwarder.join(_LAST_WORDS_TIMEOUT_S)
    if ended == -signal.SIGKILL:
        heap = settings.get(_HEAP, "1g")
        killed = f"the JVM under Spark was killed (SIGKILL) while it started, its heap is {heap}: {KILLED_BY_KERNEL}"
        raise ConfigError(killed, LESS_HEAP)
    raise ConfigError("the JVM under Spark did not start", "its messages are above; check [spark].")


def _start_jvm(settings: Mapping[str, str], port_file: Path, stderr: BinaryIO) -> "subprocess.Popen[bytes]":
    """Start Spark's gateway, which writes its port and secret to a file and ends with its standard input."""
    submit = Path(_find_spark_home(), "bin", "spark-submit")
    options = [part for item in settings.items() for part in ("--conf", "=".join(item))]
    more = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    environment = {**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(port_file)}
    # The JVM's standard output has messages, such as the count of a vacuum; ours is for data.
    # The JVM gets its own session: Ctrl+C sends SIGINT, and a closed terminal SIGHUP, to its process group, and a JVM
    # that ended at once would abort the batch. It ends with its standard input.
    return subprocess.Popen(
        [submit, *options, *more],
        stdin=subprocess.PIPE,
        stdout=stderr,
        stderr=stderr,
        env=environment,
        start_new_session=True,
    )


def _connect(jvm: "subprocess.Popen[bytes]", port_file: Path) -> JavaGateway:
    """Connect to a JVM that runs, as pyspark does to that of spark-submit."""
    with port_file.open("rb") as info:
        port, secret = read_int(info), UTF8Deserializer().loads(info)  # type: ignore[no-untyped-call]
    ours = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(ours)
    try:
        gateway: JavaGateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in ours:
            del os.environ[name]
    gateway.proc = jvm
    return gateway


def _end(jvm: "subprocess.Popen[bytes]") -> None:
    """End a JVM that was started in vain, with the scripts that start it: all are one process group.

    The leader, a script, may end long before a JVM of its group: so the group is killed before the leader is reaped,
    after which its number could be that of another group.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(jvm.pid, number)
        if number == signal.SIGTERM:
            _await_exit(jvm)
    jvm.wait()


def _await_exit(jvm: "subprocess.Popen[bytes]") -> None:
    """Wait for at most `_END_TIMEOUT_S` until a child has ended, and leave it a zombie."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    while jvm.returncode is None and time.monotonic() < deadline:
        if os.waitid(os.P_PID, jvm.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(_POLL_S)


@contextmanager
def _signals_later() -> Iterator[Sequence[int]]:
    """Let signals that would end the process take effect after the block; yield those that have arrived.

    An exception inside `Popen` would lose the process that it has just started.
    """
    arrived: list[int] = []
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number in ENDING if is_main and signal.getsignal(number) in defaults]
    try:
        with handled(ours, lambda number, _: arrived.append(number)):
            yield arrived
    finally:
        if arrived:
            signal.raise_signal(arrived[0])


def _forward(read_fd: int) -> None:
    with os.fdopen(read_fd, "rb") as lines:
        for line in lines:
            if not _NOISE.fullmatch(line.rstrip()):
                with suppress(OSError):  # a closed stderr must not block the JVM, which waits until its output is read
                    os.write(_STDERR_FD, line)


def archive_path(jars: Sequence[Path]) -> Path:
    """Return where the archive for this Java, this Spark and these jars is, or would be.

    A JVM refuses an archive if a jar is newer: Spark installed again at the same place has another one.
    """
    java = require_java().resolve()
    release = java.parent.parent / "release"
    spark_jars = Path(pyspark.__file__).with_name("jars")
    installed = str(spark_jars.stat().st_mtime_ns) if spark_jars.is_dir() else ""
    depends_on = [str(java), release.read_text() if release.is_file() else "", pyspark.__version__, pyspark.__file__]
    depends_on.append(installed)
    digest = hashlib.sha256("\n".join([*depends_on, *map(str, jars)]).encode()).hexdigest()[:16]
    return cache_folder() / "jvm" / f"classes-{digest}.jsa"


def driver_options(jars: Sequence[Path]) -> str:
    """Return the options that make a JVM use the archive, and mark it as used; empty if there is none."""
    path = archive_path(jars)
    if not path.is_file() or " " in str(path):
        return ""
    with suppress(OSError):  # of another user
        os.utime(path)
    return f" -XX:SharedArchiveFile={path} {_QUIET}"


def create_archive(
    jars: Sequence[Path], start_spark: Callable[[str], SparkSession], workload: Callable[[SparkSession], None]
) -> Path:
    """Write the archive of the classes that `workload` loads, unless it exists; return its path.

    `start_spark` takes the JVM options to add. The archive appears whole, by rename. Others that were not used for two
    weeks are deleted: each upgrade of Java, Spark or the jars leaves one.

    Raises ConfigError if the JVM wrote none.
    """
    path = archive_path(jars)
    path.parent.mkdir(parents=True, exist_ok=True)
    _delete_unused(path)
    if path.is_file():
        return path
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
        fresh = Path(folder, "classes.jsa")
        workload(start_spark(f"-XX:ArchiveClassesAtExit={fresh} {_QUIET}"))
        stop_spark()  # the archive is written at exit
        if not fresh.is_file():
            raise ConfigError(f"the JVM wrote no class-data archive for {path}", "auditlake works without it.")
        fresh.replace(path)
    return path


def _delete_unused(current: Path) -> None:
    """Delete the other archives that no JVM was started with lately; one that still runs keeps its mapped file."""
    for path in set(current.parent.glob("classes-*.jsa")) - {current}:
        with suppress(OSError):  # deleted meanwhile, or of another user
            if time.time() - path.stat().st_mtime > _UNUSED_AFTER_S:
                path.unlink()


def stop_spark() -> None:
    """Stop Spark and wait until the JVM that this process started for it has ended."""
    gateway = SparkContext._gateway  # noqa: SLF001 - the process has no public name
    SparkSession.builder.getOrCreate().stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # set by `_connect`; the JVM reads until its end
        gateway.proc.wait(_JVM_EXIT_TIMEOUT_S)
