"""What a running process has used until now, as Linux tells it in the process's folder under /proc.

A thread has such a folder too: task/<id> in that of its process.
"""

import os
from pathlib import Path

from pyspark.sql import SparkSession

OURS = Path("/proc/self")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def jvm_of(spark: SparkSession) -> Path:
    """Find the folder of the session's JVM."""
    return Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}")  # noqa: SLF001 - the only way to it


def cpu_s(folder: Path) -> float:
    """CPU-seconds of a process or a thread, in user and system mode."""
    return sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:13])) / _TICKS_PER_S


def resident_mb(folder: Path) -> float:
    """Memory of a process that is resident now."""
    return int((folder / "statm").read_text().split()[1]) * _PAGE_MB
