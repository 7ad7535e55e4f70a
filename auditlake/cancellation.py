"""Cancellation of work that a thread does for a client: its queries are ended, and the work gets no further cursor.

A server cancels the work of a client that has gone or has waited for too long; that frees a thread and memory. Every
cursor of a question is made `cancellable`, which has no effect in a command that is not `ended_by_interrupt`. So are
the jobs of a statement in Spark. Python's own work between two queries is not interrupted. A function in Python that a
query calls runs in any thread, so the query names its work by `work_number`; its long loops are `cancellable_loop`s.
"""

import itertools
import os
import signal
import socket
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import Protocol, Self, TypeVar

from auditlake.errors import AuditlakeError
from auditlake.signals import handled

_AGAIN_S = 0.5
_LEAVE_S = 2.0
_INTERRUPTED = 130
_STDERR, _SHOW_CURSOR = 2, b"\x1b[?25h"
_STEPS = 1 << 10
"""A loop of a call looks so often whether its work was cancelled."""


_numbers = itertools.count(1)
_numbered: "dict[int, Cancellation]" = {}
"""The work that runs."""


class Interruptible(Protocol):
    """A cursor or a database of DuckDB, or the jobs of a statement in Spark."""

    def interrupt(self) -> None:
        """End what runs, from another thread."""

    def close(self) -> None:
        """Run nothing any more."""


Cursor = TypeVar("Cursor", bound=Interruptible)


class Cancelled(AuditlakeError):
    """The work was cancelled."""

    exit_code = 7


class Cancellation:
    """Cancels one piece of work, which runs in the block `work`."""

    def __init__(self) -> None:
        self._cursors: list[weakref.ref[Interruptible]] = []
        self._is_cancelled = self._is_running = False
        self._ended = threading.Event()
        self.number = next(_numbers)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Do the work in the block; raises Cancelled if it was cancelled before, and for what fails afterwards."""
        token = _current.set(self)
        _numbered[self.number] = self
        self._is_running = True  # before `cancel` is looked for, which looks for this
        try:
            self.require()
            yield
        except Exception:
            self.require()  # an interruption may look like damage
            raise
        finally:
            self._ended.set()
            del _numbered[self.number]
            _current.reset(token)

    def use(self, cursor: Interruptible) -> None:
        """Interrupt the queries of a cursor, too; raises Cancelled, and closes it, if the work was cancelled before."""
        self._cursors.append(weakref.ref(cursor))
        try:
            self.require()
        except Cancelled:
            cursor.close()
            raise

    def require(self) -> None:
        """Raise Cancelled if the work was cancelled."""
        if self._is_cancelled:
            raise Cancelled("the answer was interrupted", "Ask for less.")

    def cancel(self) -> None:
        """Interrupt the queries, until the work has ended: an interruption between two queries of a cursor is lost."""
        self._is_cancelled = True
        if self._is_running and not self._ended.is_set():
            threading.Thread(target=self._interrupt, name="cancel", daemon=True).start()

    def _interrupt(self) -> None:
        while not self._ended.is_set():
            for cursor in [found for each in self._cursors if (found := each()) is not None]:
                with suppress(Exception):  # it was closed meanwhile
                    cursor.interrupt()
            self._ended.wait(_AGAIN_S)


_current: ContextVar[Cancellation | None] = ContextVar("_current", default=None)


def cancellable(cursor: Cursor) -> Cursor:
    """Return a cursor, or a database, whose queries end if this thread's work is cancelled; raises Cancelled."""
    if (current := _current.get()) is not None:
        current.use(cursor)
    return cursor


def require_uncancelled() -> None:
    """Raise Cancelled if the work of this thread is cancelled: before work that nothing interrupts."""
    if (current := _current.get()) is not None:
        current.require()


def work_number() -> int:
    """Return the number of this thread's work, 0 if nothing can cancel it."""
    return 0 if (current := _current.get()) is None else current.number


def require_uncancelled_work(number: int) -> None:
    """Raise Cancelled if the work of that number is cancelled."""
    if (found := _numbered.get(number)) is not None:
        found.require()


class _Leaving:
    """Ends the process `_LEAVE_S` after Ctrl-C, or at the second one, if the block has not ended: a call may not hear.

    Python writes the numbers of signals into a socket as they come. A call that also keeps every thread of Python from
    running is left by SIGQUIT alone.
    """

    def __init__(self) -> None:
        self._heard, self._signals = socket.socketpair()
        self._signals.setblocking(False)
        self.endures = False

    def __enter__(self) -> Self:
        self._before = signal.set_wakeup_fd(self._signals.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="leave", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._before)
        self._signals.close()

    def _watch(self) -> None:
        with self._heard:
            if self._is_interrupted(None) and self._is_interrupted(_LEAVE_S) and not self.endures:
                if os.isatty(_STDERR):
                    os.write(_STDERR, _SHOW_CURSOR)
                os._exit(_INTERRUPTED)

    def _is_interrupted(self, most_s: float | None) -> bool:
        """Wait for Ctrl-C, at most so long; return False if the block ends before."""
        self._heard.settimeout(most_s)
        number = b""
        with suppress(TimeoutError):
            while (number := self._heard.recv(1)) and number[0] != signal.SIGINT:
                pass
            return bool(number)
        return True


_leaving: ContextVar[_Leaving | None] = ContextVar("_leaving", default=None)


def endure_interrupts() -> None:
    """Wait in the rest of the block that Ctrl-C ends, however often it is pressed: a pager has its own use for it."""
    if (current := _leaving.get()) is not None:
        current.endures = True


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Do work in the block that Ctrl-C ends, also in functions that a query calls in other threads.

    If it does not end in time, the process does, with code 130.

    Raises KeyboardInterrupt. Outside of the main thread, which hears no signal, nothing ends it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    cancellation = Cancellation()

    def interrupt(number: int, frame: FrameType | None) -> None:
        cancellation.cancel()
        signal.default_int_handler(number, frame)

    leaving = _Leaving()
    token = _leaving.set(leaving)
    try:
        with leaving, handled((signal.SIGINT,), interrupt), cancellation.work():
            yield
    except Cancelled as exc:
        raise KeyboardInterrupt from exc
    finally:
        _leaving.reset(token)


class _Call(threading.local):
    """The call of a function by a query in this thread."""

    number = 0


_call = _Call()
_Value = TypeVar("_Value")


def begin_call(number: int) -> None:
    """Begin a call by a query for the work of that number; raises Cancelled."""
    _call.number = number
    require_uncancelled_work(number)


def cancellable_loop(values: Iterable[_Value]) -> Iterator[_Value]:
    """Yield values within a call; raises Cancelled if its work is cancelled meanwhile."""
    for step, value in enumerate(values):
        if not step % _STEPS:
            require_uncancelled_work(_call.number)
        yield value


@contextmanager
def uncancelled() -> Iterator[None]:
    """Do in the block what other work needs, too: it is not interrupted."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)
