"""Readings: facts that a thread of their own reads again and again, so that a scrape never waits for them.

However often metrics are scraped, lake and source are read at the reader's pace: one reading at a time, over one
connection. Facts that could not be read, or are old because a reading does not return, are unknown (None): an old
number would look like a present one.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from auditlake.messages import FailureReports

T = TypeVar("T")
_OLD_AFTER = 3
_REST = 20
"""A reading is followed by a pause of at least so many times its duration: ten thousand tables take long."""


class Readings(Generic[T]):
    """The last facts that `read` returned; `close` is called in the same thread after a failure and at the end."""

    def __init__(self, what: str, read: Callable[[], T], interval_s: float, close: Callable[[], None]) -> None:
        self._what, self._read, self._interval_s, self._close = what, read, interval_s, close
        self._pause_s = interval_s
        self._ended = threading.Event()
        self._last: tuple[float, T] | None = None
        self._failures = FailureReports()

    def __enter__(self) -> Self:
        """Read from now on, in a thread that ends with the block, or with the process."""
        threading.Thread(target=self._run, name=f"metrics of {self._what}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    @property
    def facts(self) -> T | None:
        """The facts of the last reading; None if there is none, it failed or is too old."""
        if self._last is None or time.monotonic() - self._last[0] > _OLD_AFTER * self._pause_s:
            return None
        return self._last[1]

    def _run(self) -> None:
        while not self._ended.is_set():
            self.read_once()
            self._ended.wait(self._pause_s)
        self._close()

    def read_once(self) -> None:
        """Read the facts; report a failure once."""
        begun_s = time.monotonic()
        try:
            facts = self._read()
        except Exception as exc:  # noqa: BLE001 - reported; the stage goes on, and the facts are shown as unknown
            self._last = None
            self._close()
            self._failures.report(f"{self._what} cannot be read for metrics, trying again", exc)
        else:
            now_s = time.monotonic()
            self._pause_s = max(self._interval_s, _REST * (now_s - begun_s))
            self._last = now_s, facts
            self._failures.forget()
