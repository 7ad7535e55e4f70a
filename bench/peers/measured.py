"""What one run of a contender took: time, CPU of client and server, memory, bytes, and what others took meanwhile.

The server's CPU-seconds are those of the postmaster and all its processes, also those that have ended, between the
start of the command and its end: nothing else uses that server. `foreign_cores` is the CPU that the machine spent on
anything else, in cores: a run beside other work says so itself.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO

from auditlake.demo.server import Server

_LAUNCHER = Path(__file__).with_name("launcher.py")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS = (3, 4)  # idle and iowait of the first line of /proc/stat
_KEPT_OF_OUTPUT = 2000
_TIMEOUT_S = 900


class PeerFailed(Exception):
    """A contender's command ended with an error; the end of its output says why."""


Figures = dict[str, float | None]
"""What one run took, by name; None is what cannot be measured of this contender."""


def middle(runs: Sequence[Figures]) -> Figures:
    """Return the median of each figure."""
    known = {name: [run[name] for run in runs] for name in runs[0]}
    return {
        name: None if None in values else median(v for v in values if v is not None) for name, values in known.items()
    }


def rounded(figures: Figures) -> Figures:
    """Return the figures as the results keep them."""
    return {name: None if value is None else round(value, 3) for name, value in figures.items()}


@dataclass
class Block:
    """What server and machine used during a block of code; complete when it has ended."""

    wall_s: float = 0.0
    server_cpu_s: float = 0.0
    foreign_s: float = 0.0

    @property
    def foreign_cores(self) -> float:
        """Return how many cores worked for others."""
        return max(0.0, self.foreign_s) / self.wall_s

    def figures(self, **client: float | None) -> Figures:
        """Return what was measured, with figures of the client's own."""
        own: Figures = {"client_cpu_s": None, "server_cpu_s": self.server_cpu_s, "peak_mb": None, "result_mb": 0.0}
        return {"wall_s": self.wall_s, **own, "foreign_cores": self.foreign_cores, **client}


@contextmanager
def block(server: Server) -> Iterator[Block]:
    """Measure a block of code."""
    measured = Block()
    server_s, ours_s, busy_s, begun_s = server_cpu_s(server), _ours_s(), _busy_s(), time.monotonic()
    yield measured
    measured.wall_s = time.monotonic() - begun_s
    measured.server_cpu_s = server_cpu_s(server) - server_s
    measured.foreign_s = _busy_s() - busy_s - (_ours_s() - ours_s) - measured.server_cpu_s


def run(server: Server, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Figures:
    """Run a command to its end; its output is thrown away. Raise PeerFailed unless it ends with 0."""
    with tempfile.TemporaryDirectory() as folder:
        report, errors = Path(folder, "report"), Path(folder, "errors")
        line = [sys.executable, str(_LAUNCHER), str(report), *map(str, command)]
        with block(server) as measured, Path(os.devnull).open("wb") as null, errors.open("wb") as stderr:
            code = _ended(line, Path(folder), {**os.environ, **(environment or {})}, (null, stderr))
        if code:
            raise PeerFailed(f"{Path(command[0]).name} ended with {code}: {errors.read_text()[-_KEPT_OF_OUTPUT:]}")
        found = json.loads(report.read_text())
    return measured.figures(wall_s=found["wall_s"], client_cpu_s=found["cpu_s"], peak_mb=found["peak_mb"])


def _ended(
    line: Sequence[str], folder: Path, environment: Mapping[str, str], outputs: tuple[IO[bytes], IO[bytes]]
) -> int:
    stdout, stderr = outputs
    process = subprocess.Popen(line, cwd=folder, env=environment, stdout=stdout, stderr=stderr, start_new_session=True)
    try:
        return process.wait(_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise PeerFailed(f"stopped after {_TIMEOUT_S} s") from None


def server_cpu_s(server: Server) -> float:
    """Return the CPU-seconds of a server and all its processes since its start."""
    postmaster = (server.data / "postmaster.pid").read_text().split()[0]
    own = _times(postmaster)
    total = sum(own)
    for children in Path("/proc", postmaster, "task").glob("*/children"):
        for child in children.read_text().split():
            with suppress(OSError):  # it has ended: the postmaster waits for it, and has its time
                total += sum(_times(child)[:2])
    return total / _TICKS_PER_S


def size_mb(path: Path) -> float:
    """Return the bytes of all files in a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6 if path.exists() else 0.0


def _times(pid: str) -> list[int]:
    """Return user and system time of a process, and of its children that it has waited for."""
    return [int(field) for field in Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[11:15]]


def _ours_s() -> float:
    """Return the CPU-seconds of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _busy_s() -> float:
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(value for place, value in enumerate(ticks) if place not in _IDLE_FIELDS) / _TICKS_PER_S
