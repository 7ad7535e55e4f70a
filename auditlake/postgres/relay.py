"""Moves what comes over a socket into a pipe: run as a process of its own, by `receiving`.

    python -I -S relay.py SOCKET PIPE

A walsender sends every message by itself and stops when the socket is full, which takes it a millisecond: a Unix socket
holds some 280 messages. Whoever also decodes comes too late for that, and the server waits. This process does nothing
else. It keeps up to `MOST_BYTES` until the pipe takes them, and wakes for many messages at once. It looks at none.

It ends when the socket ends, after the rest of it is in the pipe, and when nobody reads the pipe any more: it never
holds a connection of which nobody makes use. Imports next to nothing, so that it runs at once.
"""

import os
import sys
import time
from select import POLLERR, POLLHUP, POLLIN, POLLOUT, poll

MOST_BYTES = 12 << 20
_READ_BYTES = 1 << 18
_WRITE_BYTES = 1 << 16
# Less than it takes to fill the socket; to wake for every message costs both sides more than to decode it.
_GATHER_S = 0.000_5


def relay(source: int, sink: int) -> None:
    """Move bytes until one side ends; both descriptors do not block."""
    waiting, ended = bytearray(), False
    watched = poll()
    while waiting or not ended:
        watched.register(source, 0 if ended or len(waiting) >= MOST_BYTES else POLLIN)
        watched.register(sink, POLLOUT if waiting else 0)
        ready = dict(watched.poll())
        if ready.get(sink, 0) & (POLLERR | POLLHUP):
            return
        if not ended and ready.get(source, 0):
            received = _read(source)
            ended = received == b""
            waiting += received or b""
        if waiting:
            del waiting[: _write(sink, waiting)]
        if not ended:
            time.sleep(_GATHER_S)


def _read(source: int) -> bytes | None:
    """Read what is there; None where nothing is, nothing where nothing can come any more."""
    try:
        return os.read(source, _READ_BYTES)
    except BlockingIOError:
        return None
    except ConnectionError:  # what was sent before it is in the pipe; its reader sees the end as we do
        return b""


def _write(sink: int, waiting: bytearray) -> int:
    """Write what the pipe takes; gives how much that was."""
    view, written = memoryview(waiting), 0
    try:
        while written < len(view):
            written += os.write(sink, view[written : written + _WRITE_BYTES])
    except BlockingIOError:
        pass
    finally:
        view.release()
    return written


def main(source: int, sink: int) -> None:
    """Move bytes from one inherited descriptor to the other."""
    os.set_blocking(source, False)
    os.set_blocking(sink, False)
    try:
        relay(source, sink)
    except BrokenPipeError:  # nobody reads any more
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
