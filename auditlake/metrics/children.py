"""Children of this process and theirs, the JVM above all: their memory, and the CPU that they have used, from /proc."""

import os
from collections.abc import Iterator
from pathlib import Path

_USER, _SYSTEM = 11, 12
"""Places in /proc/PID/stat after the name, in ticks of the clock."""


def children_bytes() -> int:
    """Return the resident memory of all children; 0 where /proc does not show it."""
    return sum(_number(pid, "statm", 1) for pid in _all_children()) * os.sysconf("SC_PAGE_SIZE")


def children_cpu_s() -> float:
    """Return the CPU seconds of all children that run now; 0 where /proc does not show it."""
    ticks = sum(_number(pid, "stat", place) for pid in _all_children() for place in (_USER, _SYSTEM))
    return ticks / os.sysconf("SC_CLK_TCK")


def _all_children() -> Iterator[int]:
    waiting = _children(os.getpid())
    while waiting:
        pid = waiting.pop()
        waiting += _children(pid)
        yield pid


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:  # the thread has ended
            continue
    return found


def _number(pid: int, file: str, place: int) -> int:
    """Return a number of a file of /proc, behind the name of the process, which may have spaces."""
    try:
        return int(Path(f"/proc/{pid}/{file}").read_text().rpartition(")")[2].split()[place])
    except OSError:  # it has ended
        return 0
