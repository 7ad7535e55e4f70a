"""JVM of Spark: find a Java that Spark accepts, start Spark's gateway without its routine messages, start it sooner.

`require_java` is cheap: it reads the `release` file of the runtime instead of starting it. `launch` forwards the JVM's
standard error except for the few lines of every start, so that real failures stay visible.

The class-data archive holds the JVM's parsed classes in one mapped file, so that session and first query take 0.54 of
the time (`bench/jvm_start.py`, two busy cores, 2026-11). `create_archive` runs a workload in a JVM that writes it when
it exits, once, ahead of use: `scripts/setup.sh` does it, and `python -m auditlake.apply.warmup` anywhere else.
`driver_options` names the archive for later JVMs. Without one everything works, at the cost of a slower start.

The name of an archive is a digest of everything it depends on: the Java runtime, Spark, and the class path. The JVM
also validates an archive itself and ignores one that does not fit. It archives only classes of its own class path, so
the Delta jars must be there (`spark.driver.extraClassPath`), not in `spark.jars`.

Authority: JEP 350, "Dynamic CDS Archives"; the `java` command of Java 17, "Application Class Data Sharing";
spark.apache.org/docs/4.2.0, "Downloading" (Java 17 and up); pyspark/java_gateway.py, launch_gateway
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from auditlake.errors import ConfigError

MINIMUM_JAVA = 17
_HINT = (
    "install Java 17, on Debian or Ubuntu with `apt-get install openjdk-17-jre-headless`, "
    "and set JAVA_HOME if it is not the one on the PATH."
)
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
_QUIET = "-Xlog:cds*=off"
_JVM_EXIT_TIMEOUT_S = 300
_UNUSED_AFTER_S = 14 * 86_400


def require_java() -> Path:
    """Return the Java that Spark will start.

    Raises ConfigError if there is none, or it is older than Spark requires.
    """
    java = _java()
    major = _major_version(java)
    if major < MINIMUM_JAVA:
        raise ConfigError(f"java at {java} is version {major}, Spark needs {MINIMUM_JAVA} or newer", _HINT)
    return java


def _java() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise ConfigError(f"JAVA_HOME is {home}, but there is no java in its bin folder", _HINT)
        return java
    on_path = shutil.which("java")
    if on_path is None:
        raise ConfigError(f"no java on the PATH, Spark needs version {MINIMUM_JAVA} or newer", _HINT)
    return Path(on_path)


def _major_version(java: Path) -> int:
    release = java.resolve().parent.parent / "release"
    text = release.read_text() if release.is_file() else _version_output(java)
    match = re.search(r'(?:JAVA_VERSION="|version ")(?:1\.)?(\d+)', text)
    if match is None:
        raise ConfigError(f"cannot determine the version of java at {java}", _HINT)
    return int(match[1])


def _version_output(java: Path) -> str:
    # A launcher script or a stub (the one of macOS only prints where to download Java).
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr


def launch(settings: Mapping[str, str]) -> JavaGateway:
    """Start a JVM with these Spark settings, or connect to the one that spark-submit started.

    Raises ConfigError if the JVM ends before its gateway answers; its messages are on standard error by then.
    """
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    read_fd, write_fd = os.pipe()
    forwarder = threading.Thread(target=_forward, args=(read_fd,), name="jvm-stderr", daemon=True)
    forwarder.start()
    try:
        with os.fdopen(write_fd, "wb") as stderr:
            # The JVM's standard output has messages, such as the count of a vacuum; ours is for data.
            # The JVM gets its own session: a closed terminal sends SIGHUP to its process group, and a JVM that ended at
            # once would abort the batch. It ends with its standard input.
            options = {"stdout": stderr, "stderr": stderr, "start_new_session": True}
            return launch_gateway(conf, options)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as exc:
        forwarder.join(_LAST_WORDS_TIMEOUT_S)
        raise ConfigError("the JVM under Spark did not start", "its messages are above; check [spark].") from exc


def _forward(read_fd: int) -> None:
    with os.fdopen(read_fd, "rb") as lines:
        for line in lines:
            if not _NOISE.fullmatch(line.rstrip()):
                os.write(_STDERR_FD, line)


def cache_folder() -> Path:
    """Return the folder for files that any start can recreate."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "auditlake"


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
        _end_jvm()
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


def _end_jvm() -> None:
    """Stop Spark and wait until its JVM has ended, because the archive is written at exit."""
    gateway = SparkContext._gateway  # noqa: SLF001 - the process has no public name
    if (running := SparkSession.getActiveSession()) is not None:
        running.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # set by pyspark's launch_gateway; the JVM reads until its end
        gateway.proc.wait(_JVM_EXIT_TIMEOUT_S)
