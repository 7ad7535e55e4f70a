"""Capture beside the copy, so that PostgreSQL need not keep its log until the copy is done.

It comes back by itself where its connection is lost, as `auditlake capture` does. Where another process captures
already (a `follow` that goes on), that one stays.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg

from auditlake.capture.claiming import Source
from auditlake.capture.running import Task, run_capture
from auditlake.errors import InvariantBroken
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.postgres.connection import Row
from auditlake.postgres.slot import read_slot

_TIMEOUT_S = 120.0
_POLL_S = 0.05


class Capturing:
    """A capture of this process, or (`running` None) of another one."""

    def __init__(self, lake: Lake, running: Future[None] | None) -> None:
        self._lake = lake
        self._running = running

    def await_passed(self, lsn: Lsn) -> None:
        """Wait until the lake holds everything before `lsn`, so that tables copied there can be asked for at once.

        Raises what ended the capture, InvariantBroken where it is too slow.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while (positions := read_positions(self._lake)) is None or positions.acknowledged < lsn:
            if self._running is not None and self._running.done():
                self._running.result()
            if time.monotonic() > deadline:
                raise InvariantBroken(f"capture did not pass {lsn} in {_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)


@contextmanager
def capturing(
    source: Source, lake: Lake, control: psycopg.Connection[Row], say: Callable[[str], None], *, first: bool
) -> Iterator[Capturing]:
    """Run capture beside the block, unless another process does; the `first` one of a slot cannot be another's."""
    state = None if first else read_slot(control, source.manifest.slot)
    if state is not None and state.active_pid is not None:
        say("capture runs in another process")
        yield Capturing(lake, None)
        return
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_capture, Task(source, lake, None), stop, say)
        try:
            yield Capturing(lake, running)
        finally:
            stop.set()
        running.result()
