"""Automatic resync: a running `follow` takes a new snapshot of tables whose content changed without row events.

1. Tables parked for such a reason, or for a change of the schema that their history cannot follow, and tables that a
   killed resync left held, get a new snapshot, all of them under one. It runs in a thread of its own, beside capture
   and apply; there is never a second one.
2. A table that failed, or changed again, waits: at least a few seconds, doubled with each snapshot up to ten minutes.
   The wait starts again at a few seconds once the table was not parked for as long as its last wait.
3. A table that was taken out of the publication, or was dropped, is left to the operator.
"""

from __future__ import annotations  # Spark and resync, which most runs do not need, are imported for mypy only

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from auditlake.capture.supervisor import Capturing
from auditlake.lake.parking import Parked
from auditlake.lsn import Lsn
from auditlake.messages import Event, FailureReports, Notice, Say
from auditlake.relation import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from auditlake.resync.resync import ResyncTarget
    from auditlake.resync.supersede import Resynced
    from auditlake.snapshot.worker_pool import Workers

_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 600.0


@dataclass(slots=True)
class _Turn:
    """When a table may get its next snapshot, and how long it waits after that."""

    due_s: float
    pause_s: float


class AutomaticResync:
    """Snapshots of one lake's parked tables; close it before the process ends."""

    def __init__(self, target: Callable[[], ResyncTarget], start_workers: Callable[[], Workers], report: Say) -> None:
        self._target = target
        self._start_workers = start_workers
        self._report = report
        self._pool = ThreadPoolExecutor(1, "resync")
        self._running: Future[None] | None = None
        self._workers: Workers | None = None
        self._turns: dict[TableName, _Turn] = {}
        self._failures = FailureReports(report)
        self._closed = threading.Event()

    def tend(
        self, parked: Mapping[TableName, Parked], start_spark: Callable[[], SparkSession], capture: Capturing
    ) -> None:
        """Begin a resync of the tables that are due, unless one is running."""
        if self.is_running:
            return
        if self._running is not None:
            self._running.result()
        if due := self._due(parked):
            self._running = self._pool.submit(self._try, due, start_spark, capture)

    @property
    def is_running(self) -> bool:
        """Return whether a resync is running, which may use Spark."""
        return self._running is not None and not self._running.done()

    @staticmethod
    def is_needed(parked: Mapping[TableName, Parked]) -> bool:
        """Return whether a table is parked that can be resynced."""
        return any(record.is_renewed for record in parked.values())

    def finish(
        self, parked: Mapping[TableName, Parked], start_spark: Callable[[], SparkSession], capture: Capturing
    ) -> None:
        """Resync all tables that can be, until capture has passed their snapshots; then raise the first failure."""
        done = self._resync(_wanted(parked), start_spark, capture)
        capture.await_passed(Lsn(max(each.lsn for each in done) + 1))

    def close(self) -> None:
        """End a running copy, or a fold in Spark; its tables stay held, and the next run continues with them."""
        self._closed.set()
        if self._workers is not None:
            self._workers.close()
        self._pool.shutdown(cancel_futures=True)

    def _due(self, parked: Mapping[TableName, Parked]) -> list[TableName]:
        now_s = time.monotonic()
        for name, turn in list(self._turns.items()):
            if name not in parked and now_s > turn.due_s + turn.pause_s:
                del self._turns[name]
        return [name for name in _wanted(parked) if name not in self._turns or self._turns[name].due_s <= now_s]

    def _try(self, names: list[TableName], start_spark: Callable[[], SparkSession], capture: Capturing) -> None:
        """Resync tables; a failure is reported, and they wait for their next turn."""
        try:
            self._resync(names, start_spark, capture)
        except Exception as exc:  # noqa: BLE001 - whatever one table causes, capture and all other tables go on
            if not self._closed.is_set():  # the copy was ended
                each = "each of " if len(names) > 1 else ""
                what = f"no new snapshot of {each}{', '.join(map(str, names))}, trying again later"
                self._failures.report(what, exc)
        else:
            self._failures.forget()
        finally:
            self._wait(names)

    def _resync(
        self, names: list[TableName], start_spark: Callable[[], SparkSession], capture: Capturing
    ) -> list[Resynced]:
        from auditlake.resync.resync import Starters, resync  # noqa: PLC0415 - see above

        taking = f"{', '.join(map(str, names))}: taking a new snapshot beside the stream"
        self._report(Notice(Event.SNAPSHOT_STARTED, taking))
        target = replace(self._target(), capture=capture)
        return resync(target, names, Starters(start_spark, self._workers_of_run, self._closed), self._report)

    def _workers_of_run(self) -> Workers:
        self._workers = self._start_workers()
        if self._closed.is_set():  # while they started
            self._workers.close()
        return self._workers

    def _wait(self, names: list[TableName]) -> None:
        for name in names:
            before = self._turns.get(name)
            pause_s = _FIRST_PAUSE_S if before is None else min(2 * before.pause_s, _LONGEST_PAUSE_S)
            self._turns[name] = _Turn(time.monotonic() + pause_s, pause_s)


def _wanted(parked: Mapping[TableName, Parked]) -> list[TableName]:
    return [name for name, record in parked.items() if record.is_renewed]
