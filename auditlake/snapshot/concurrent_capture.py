"""Run capture during the copy, so that the slot does not retain WAL until the copy is done.

It reconnects after a lost connection, as `auditlake capture` does. If another process already captures (a running
`follow`), that one continues and none is started here.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import psycopg

from auditlake.capture.preconditions import Source
from auditlake.capture.supervisor import Task, run_capture
from auditlake.errors import InvariantBroken, LakeConflict
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lake.stage_lock import Stage, hold
from auditlake.lsn import Lsn
from auditlake.source.connection import Row
from auditlake.source.slot import read_slot

_TIMEOUT_S = 120.0
_POLL_S = 0.05


class Capturing:
    """A capture of this process or, if `running` is None, of another one."""

    def __init__(self, lake: Lake, running: Future[None] | None) -> None:
        self._lake = lake
        self._running = running

    def await_passed(self, lsn: Lsn) -> None:
        """Wait until the lake holds everything before `lsn`, so that tables copied at it can be queried at once.

        Raises the error that ended the capture, or InvariantBroken after a timeout.
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
    source: Source, lake: Lake, control: psycopg.Connection[Row], report: Callable[[str], None], *, first: bool
) -> Iterator[Capturing]:
    """Run capture during the block, unless another process does; with `first`, the slot is new and nobody else can."""
    state = None if first else read_slot(control, source.manifest.slot)
    if state is not None and state.active_pid is not None:
        report("capture runs in another process")
        yield Capturing(lake, None)
        return
    stop = threading.Event()
    with ExitStack() as held, ThreadPoolExecutor(1) as pool:
        try:
            held.enter_context(hold(lake, "bootstrap", Stage.CAPTURE))
        except LakeConflict:  # its process is reconnecting, so the slot looked idle
            report("capture runs in another process")
            yield Capturing(lake, None)
            return
        running = pool.submit(run_capture, Task(source, lake, None, reports_start=False), stop, report)
        try:
            yield Capturing(lake, running)
        finally:
            stop.set()
        running.result()
