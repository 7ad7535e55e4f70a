"""JVM of Spark: find a Java that Spark accepts, and start Spark's gateway without its routine messages.

`require_java` is cheap: it reads the `release` file of the runtime instead of starting it. `launch` forwards the JVM's
standard error except for the few lines of every start, so that real failures stay visible.

Authority: spark.apache.org/docs/4.2.0, "Downloading" (Java 17 and up); pyspark/java_gateway.py, launch_gateway
"""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

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
)


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
