"""Class-data archive of Spark's JVM: its parsed classes in one mapped file, so that a JVM starts in half the time.

`create` runs a workload in a JVM that writes the archive when it exits, once, ahead of use: `scripts/setup.sh` does it,
and `python -m auditlake.apply.warmup` anywhere else. `driver_options` names the archive for later JVMs. Without an
archive everything works, at the cost of a slower start.

The name of an archive is a digest of everything it depends on: the Java runtime, Spark, and the class path. The JVM
also validates an archive itself and ignores one that does not fit. It archives only classes of its own class path, so
the Delta jars must be there (`spark.driver.extraClassPath`), not in `spark.jars`.

Session and first query take 0.54 of the time (`bench/jvm_start.py`, two busy cores, 2026-11).

Authority: JEP 350, "Dynamic CDS Archives"; the `java` command of Java 17, "Application Class Data Sharing"
"""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from auditlake.errors import ConfigError
from auditlake.spark.jars import cache_folder
from auditlake.spark.java import require_java

_QUIET = "-Xlog:cds*=off"
_JVM_EXIT_TIMEOUT_S = 300


def archive_path(jars: Sequence[Path]) -> Path:
    """Return where the archive for this Java, this Spark and these jars is, or would be."""
    java = require_java().resolve()
    release = java.parent.parent / "release"
    depends_on = [str(java), release.read_text() if release.is_file() else "", pyspark.__version__, pyspark.__file__]
    digest = hashlib.sha256("\n".join([*depends_on, *map(str, jars)]).encode()).hexdigest()[:16]
    return cache_folder() / "jvm" / f"classes-{digest}.jsa"


def driver_options(jars: Sequence[Path]) -> str:
    """Return the options that make a JVM use the archive; empty if there is none."""
    path = archive_path(jars)
    return f" -XX:SharedArchiveFile={path} {_QUIET}" if path.is_file() and " " not in str(path) else ""


def create(
    jars: Sequence[Path], start_spark: Callable[[str], SparkSession], workload: Callable[[SparkSession], None]
) -> Path:
    """Write the archive of the classes that `workload` loads, unless it exists; return its path.

    `start_spark` takes the JVM options to add. The archive appears whole, by rename.
    Raises ConfigError if the JVM wrote none.
    """
    path = archive_path(jars)
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
        fresh = Path(folder, "classes.jsa")
        workload(start_spark(f"-XX:ArchiveClassesAtExit={fresh} {_QUIET}"))
        _end_jvm()
        if not fresh.is_file():
            raise ConfigError(f"the JVM wrote no class-data archive for {path}", "auditlake works without it.")
        fresh.replace(path)
    return path


def _end_jvm() -> None:
    """Stop Spark and wait until its JVM has ended, because the archive is written at exit."""
    gateway = SparkContext._gateway  # noqa: SLF001 - the process has no public name
    if (running := SparkSession.getActiveSession()) is not None:
        running.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # set by pyspark's launch_gateway; the JVM reads until its end
        gateway.proc.wait(_JVM_EXIT_TIMEOUT_S)
