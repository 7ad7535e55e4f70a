"""When to try again after the source was lost, and what to say of it.

Pauses double from half a second to half a minute, each shortened at random by up to a half, so that many clients do
not come back in step. They begin anew once a connection has lasted longer than the longest pause. People are told of
changes, not of attempts: that the source is lost and why, that it is back and after how long.
"""

import random
import time
from collections.abc import Callable
from typing import Protocol

from auditlake.errors import AuditlakeError, LakeConflict, SourceUnreachable

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


class Note(Protocol):
    """Keeps what capture does, where another process can read it."""

    def __call__(self, state: str, problem: str | None = None, /) -> None: ...


class Attempts:
    """The attempts of one run to stay connected; a lost source may stay away for `patience_s`, None is for ever."""

    def __init__(self, say: Callable[[str], None], note: Note, patience_s: float | None) -> None:
        self._say = say
        self._note = note
        self._patience_s = patience_s
        self._ever = False
        self._doublings = 0
        self._connected_at: float | None = None
        self._lost_at: float | None = None
        self._problem: str | None = None

    def succeeded(self) -> None:
        """Take note of a connection."""
        now = time.monotonic()
        if self._lost_at is not None:
            self._say(f"the source is back after {now - self._lost_at:.0f} s")
        self._ever, self._connected_at, self._lost_at, self._problem = True, now, None, None
        self._note("running")

    def failed(self, failure: SourceUnreachable) -> float:
        """Say that the source is lost, where that is new, and give the pause before the next attempt, in seconds.

        Raises the failure itself where another attempt cannot help or is not wanted.
        """
        now = time.monotonic()
        if self._connected_at is not None and now - self._connected_at > _LONGEST_PAUSE_S:
            self._doublings = 0
        self._connected_at = None
        if not failure.retryable or self._is_over(now):
            raise failure
        self._lost_at = now if self._lost_at is None else self._lost_at
        if failure.message != self._problem:
            self._problem = failure.message
            self._say(f"{failure.message}; trying again until it is back")
            if self._ever:
                self._note("trying again", failure.message)
        pause_s = min(_FIRST_PAUSE_S * (1 << self._doublings), _LONGEST_PAUSE_S)
        self._doublings = min(self._doublings + 1, 10)
        return pause_s * (1 - random.random() / 2)  # noqa: S311 - no secret

    def _is_over(self, now: float) -> bool:
        if self._patience_s is None:
            return False
        return not self._ever or (self._lost_at is not None and now - self._lost_at > self._patience_s)

    def ended(self, failure: AuditlakeError | None = None) -> None:
        """Take note that the run is over; one that never was connected, or gave way to another, leaves no note."""
        if self._ever and not isinstance(failure, LakeConflict):
            self._note("ended", failure.message if failure else None)
