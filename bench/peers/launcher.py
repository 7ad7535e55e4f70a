"""Run one command as its own program and report what it and every descendant of it used.

    python launcher.py REPORT COMMAND...

It adopts orphans (PR_SET_CHILD_SUBREAPER), so that the CPU time of a JVM whose parent did not wait for it is counted
too. What still runs when the command has ended is killed. Memory is the sum of the resident memory of all its
processes, looked at ten times a second, and at least the largest of any one. REPORT is a JSON file. Linux only.
"""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_SAMPLE_S = 0.1
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _descendants() -> list[str]:
    found, waiting = [], [str(os.getpid())]
    while waiting:
        below = []
        for children in Path("/proc", waiting.pop(), "task").glob("*/children"):
            with suppress(OSError):  # it has ended
                below += children.read_text().split()
        found += below
        waiting += below
    return found


def _resident_mb() -> float:
    total = 0.0
    for pid in _descendants():
        with suppress(OSError, IndexError):  # it has ended
            total += int(Path("/proc", pid, "statm").read_text().split()[1]) * _PAGE_MB
    return total


def _end_the_rest() -> None:
    for pid in _descendants():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def main() -> None:
    """Run, wait, write the report; end with the command's exit code."""
    report, command = Path(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    peak_mb, ended = [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_S):
            peak_mb[0] = max(peak_mb[0], _resident_mb())

    sampler = threading.Thread(target=sample)
    sampler.start()
    begun_s = time.monotonic()
    code = subprocess.call(command)
    seconds = time.monotonic() - begun_s
    ended.set()
    sampler.join()
    _end_the_rest()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = max(peak_mb[0], used.ru_maxrss / 1024)
    report.write_text(json.dumps({"wall_s": seconds, "cpu_s": used.ru_utime + used.ru_stime, "peak_mb": peak}))
    sys.exit(code)


if __name__ == "__main__":
    main()
