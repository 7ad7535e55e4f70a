"""Run a capture in a thread, as `auditlake capture` does, and record its reports."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import psycopg

from auditlake.capture.supervisor import Capturing, make_task, run_capture
from auditlake.errors import AuditlakeError
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from tests import oracle

_TIMEOUT_S = 30
_POLL_S = 0.01


def await_true(condition: Callable[[], object], timeout_s: float = _TIMEOUT_S) -> None:
    """Wait until a condition holds."""
    pause, deadline = threading.Event(), time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        pause.wait(_POLL_S)


def await_free_slots(dsn: str) -> None:
    """Wait until no walsender has a slot of the database: one ends only some time after its client."""
    held = "select count(*) from pg_replication_slots where database = current_database() and active"
    with psycopg.connect(dsn, autocommit=True) as conn:
        await_true(lambda: conn.execute(held).fetchone() == (0,))


class Running:
    """A capture without a target for the duration of a context; `said` has its reports after the start."""

    def __init__(self, dsn: str, lake: Lake) -> None:
        self._task = make_task(dsn, lake, None)
        self._lake = lake
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self.said: list[str] = []

    def __enter__(self) -> Self:
        self._run = self._pool.submit(run_capture, self._task, self._stop, self._record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown()

    def _record(self, line: str) -> None:
        if not line.startswith("started: "):
            self.said.append(line)

    @property
    def failure(self) -> BaseException | None:
        """Return the exception that ended it, if any."""
        return self._run.exception() if self._run.done() else None

    def await_said(self, word: str) -> None:
        """Wait for a report with this word."""
        await_true(lambda: self.failure or any(word in line for line in self.said))
        assert self.failure is None, self.failure

    def await_failure(self) -> AuditlakeError:
        """Wait until it fails; return the error."""
        failure = self._run.exception(_TIMEOUT_S)
        assert isinstance(failure, AuditlakeError), failure
        return failure

    def await_passed(self, lsn: Lsn) -> None:
        """Wait until the lake holds everything before an LSN."""
        Capturing(self._lake, self._run, self._task.awaited).await_passed(lsn)

    def await_keys(self, *keys: int) -> None:
        """Wait until exactly these keys are inserted, in this order and each once."""
        await_true(lambda: self.failure or len(inserted(self._lake)) >= len(keys))
        assert self.failure is None, self.failure
        assert inserted(self._lake) == list(keys)


def inserted(lake: Lake) -> list[int]:
    """Return the first column of every inserted row in the log."""
    return [int(row["new"][0]) for row in oracle.changes(lake) if row["op"] == "insert"]
