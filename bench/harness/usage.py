"""CPU time and memory of a running process, from its folder under Linux's /proc.

A thread has such a folder too: task/<id> in its process's folder.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession

OURS = Path("/proc/self")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.2
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def jvm_of(spark: SparkSession) -> Path:
    """Return the folder of the session's JVM."""
    jvm: Any = spark._jvm  # noqa: SLF001 - no public way
    return Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}")


def cpu_s(folder: Path) -> float:
    """Return the CPU-seconds of a process or a thread, in user and system mode."""
    return sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:13])) / _TICKS_PER_S


def resident_mb(folder: Path) -> float:
    """Return the current resident memory of a process."""
    return int((folder / "statm").read_text().split()[1]) * _PAGE_MB


def used_by(processes: Iterable[Path]) -> tuple[float, float]:
    """Return CPU-seconds so far and resident MB of these processes."""
    used = [(cpu_s(process), resident_mb(process)) for process in processes]
    return sum(cpu for cpu, _ in used), sum(memory for _, memory in used)


def descendants(ancestor: str) -> list[str]:
    """Return the ids of all descendant processes; PostgreSQL's server, a daemon, is not one of them."""
    descendants, waiting = [], [ancestor]
    while waiting:
        below = []
        for children in Path("/proc", waiting.pop(), "task").glob("*/children"):
            with suppress(OSError):  # it has ended
                below += children.read_text().split()
        descendants += below
        waiting += below
    return descendants


class Sampler(ABC):
    """Looks again and again at each descendant process, while the block runs."""

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @abstractmethod
    def look(self, process: Path) -> None:
        """Look at the folder of a process; OSError or IndexError mean that it has ended."""

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            for pid in descendants(OURS.resolve().name):
                with suppress(OSError, IndexError):
                    self.look(Path("/proc", pid))


class CpuOfChildren(Sampler):
    """The CPU time of all descendant processes."""

    def __init__(self) -> None:
        self._seconds: dict[Path, float] = {}

    @property
    def seconds(self) -> float:
        """Return the CPU-seconds so far, as of the last look at each."""
        return sum(self._seconds.values())

    def look(self, process: Path) -> None:
        self._seconds[process] = cpu_s(process)
