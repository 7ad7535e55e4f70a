"""Processes of the command line that begin after its imports: forks of one process that only waits.

A command that a test kills or signals needs a process of its own, which spends most of its CPU time on imports. So each
test process starts one that has imported the program, and forks for every request. The fork becomes a child of the
process that asks, which is the reaper of orphans (prctl(2), PR_SET_CHILD_SUBREAPER) while it waits for the answer.
"""

import atexit
import ctypes
import faulthandler
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from auditlake.cli.start import start
from auditlake.startup import lean

_ROOT = Path(__file__).parent.parent
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST = 1 << 20
_COMMANDS = (
    "auditlake.backup.restore",
    "auditlake.cli.main",
    "auditlake.erasure.forget",
    "auditlake.follow",
    "auditlake.ledger.beside",
    "auditlake.serve.server",
    "auditlake.snapshot.bootstrap",
)
_lock = threading.Lock()


def fork(arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
    """Run `auditlake` with these arguments, environment and standard streams; return the pid of the new child.

    It leads a session of its own, and works in `/`.
    """
    request = json.dumps([[*arguments], [*environment.items()]]).encode()
    with _lock:
        waiting, process = _waiting(), ctypes.CDLL(None)
        process.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(waiting, [request], [*streams])
            return int(waiting.recv(_LONGEST))
        finally:
            process.prctl(_PR_SET_CHILD_SUBREAPER, 0)


@cache
def _waiting() -> socket.socket:
    """Start the process that waits for requests; it ends with its socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        program = f"from tests.forked import run_requested; run_requested({theirs.fileno()})"
        command = [sys.executable, "-c", program]
        nothing = subprocess.DEVNULL
        process = subprocess.Popen(
            command, cwd=_ROOT, pass_fds=[theirs.fileno()], start_new_session=True, stdin=nothing, stdout=nothing
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def run_requested(descriptor: int) -> None:
    """Fork for each request that comes, and run its command in the fork; end when the socket does."""
    _import_all()
    requests = socket.socket(fileno=descriptor)
    while True:
        request, streams, _, _ = socket.recv_fds(requests, _LONGEST, 3)
        if not request:
            return
        pid = _orphaned_child()
        if pid == 0:
            requests.close()
            arguments, environment = json.loads(request)
            _become(arguments, environment, streams)
            start()
            return
        requests.send(str(pid).encode())
        for stream in streams:
            os.close(stream)


def _become(arguments: list[str], environment: Sequence[tuple[str, str]], streams: Sequence[int]) -> None:
    """Take what a new process of the command line has."""
    os.setsid()
    os.chdir("/")
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - was /dev/null, where one can seek
    sys.argv = ["auditlake", *arguments]
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    faulthandler.enable(2)


def _orphaned_child() -> int:
    """Fork; return 0 in the child, and its pid in this process once its parent, a process between, has ended."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid:
            os.write(writer, str(pid).encode())
            os._exit(0)
    os.close(writer)
    pid = int(os.read(reader, _LONGEST)) if between else 0
    os.close(reader)
    if between:
        os.waitpid(between, 0)
    return pid


def _import_all() -> None:
    """Import what commands import; no thread may start: a fork would have its locks without the thread.

    Those of the allocators in libraries begin again in a fork, by their own handlers (pthread_atfork(3)).
    """
    lean()
    for module in _COMMANDS:
        import_module(module)
    assert threading.active_count() == 1
    assert "pyspark" not in sys.modules
    gc.freeze()  # no fork looks through all of this at its end
