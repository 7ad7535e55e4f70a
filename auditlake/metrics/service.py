"""Notify the service manager: systemd, or whatever else listens on $NOTIFY_SOCKET, of the state of this process.

    READY=1               once every stage does its work: capture reads the slot, the page answers
    WATCHDOG=1            at half of $WATCHDOG_USEC, while `health` finds the process alive: loops run, busy or idle;
                          a lost source does not end it, a loop that stands still does, or a process that is stopped
    EXTEND_TIMEOUT_USEC=  while it starts or ends, and is alive: a source that is down at the start, a long last batch
    STATUS=               what it does, from memory: numbers, LSNs and names of stages, nothing from the source
    STOPPING=1            when a signal or its end stops it

A thread of its own sends them, each in one datagram, and never blocks. One that cannot be sent is reported once, and
the stages go on. Without the variable nothing happens, and this module is not imported.

Authority: sd_notify(3), sd_watchdog_enabled(3), systemd.service(5)
"""

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from auditlake.background import in_background
from auditlake.counters import Beat, Counter, Mark, read_begun, read_counts, read_marks
from auditlake.errors import ConfigError
from auditlake.lsn import Lsn
from auditlake.messages import FailureReports, Say, say
from auditlake.metrics.health import Problems, alive

SOCKET = "NOTIFY_SOCKET"
_WATCHDOG, _WATCHDOG_PID = "WATCHDOG_USEC", "WATCHDOG_PID"
_LONGEST_S = 10.0
_LOOK_S = 0.2
"""How soon a change of the state is sent."""
_EXTENSION_US = 60_000_000
_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Manager:
    """Address of datagrams, and the longest interval between two."""

    address: str
    interval_s: float

    def send(self, *lines: str) -> None:
        """Send one datagram; raises OSError."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.connect(self.address)
            sender.send("\n".join(lines).encode())


def find_manager(environment: Mapping[str, str]) -> Manager | None:
    """Return the service manager of the environment, or None; raises ConfigError for an unknown form."""
    name = environment.get(SOCKET)
    if not name:
        return None
    if name[0] not in "/@":
        raise ConfigError(
            f"{SOCKET} is {name!r}, need a path or @name", f"Unset it, or use systemd: {SOCKET} is its own."
        )
    address = f"\0{name[1:]}" if name[0] == "@" else name
    return Manager(address, min(_LONGEST_S, _watchdog_s(environment) / 2))


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """Return after which silence the manager ends this process; infinity if it does not."""
    text = environment.get(_WATCHDOG)
    if not text or environment.get(_WATCHDOG_PID, str(os.getpid())) != str(os.getpid()):
        return float("inf")
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ConfigError(f"{_WATCHDOG} is {text!r}, need microseconds", "Set WatchdogSec= in the unit.")
    return int(text) / _US_PER_S


def notified(stages: frozenset[Beat], stop: threading.Event) -> AbstractContextManager[None]:
    """Notify the service manager in the block; `stop` is set to end the stages. Raises ConfigError."""
    manager = find_manager(os.environ)
    if manager is None:
        return nullcontext()
    return in_background(_notify_until, Notifier(manager, stages, say), stop, name="service manager")


def _notify_until(notifier: "Notifier", stop: threading.Event, ended: threading.Event) -> None:
    waited_s = 0.0
    notifier.notify(due=True)
    while not ended.wait(_LOOK_S):
        waited_s += _LOOK_S
        if stop.is_set():
            notifier.stop()
        if notifier.notify(due=waited_s + _LOOK_S > notifier.interval_s):
            waited_s = 0.0
    notifier.stop()


class Notifier:
    """The state that was sent last."""

    def __init__(self, manager: Manager, stages: frozenset[Beat], report: Say) -> None:
        self._manager, self._stages = manager, stages
        self._failures = FailureReports(report)
        self._ready = self._stopping = False
        self.interval_s = manager.interval_s

    def stop(self) -> None:
        """Send that the process ends, once."""
        if not self._stopping:
            self._stopping = True
            self._send("STOPPING=1", "STATUS=stopping")

    def notify(self, *, due: bool) -> bool:
        """Send the state if it is new, or `due`; return whether it was sent."""
        waiting = sorted(self._stages - read_begun())
        new = not (waiting or self._ready or self._stopping)
        if not (new or due):
            return False
        self._ready = self._ready or new
        problems = alive(self._stages)
        self._send(
            *(["READY=1"] if new else []), *self._signs(well=not problems), f"STATUS={self._status(problems, waiting)}"
        )
        return True

    def _signs(self, *, well: bool) -> Iterator[str]:
        if well:
            yield "WATCHDOG=1"
        if well and (self._stopping or not self._ready):
            yield f"EXTEND_TIMEOUT_USEC={_EXTENSION_US}"

    def _status(self, problems: Problems, waiting: list[Beat]) -> str:
        if problems:
            return "; ".join(problems)
        if self._stopping:
            return "stopping, after the current batch"
        if not self._ready:
            return f"starting: {', '.join(waiting)}"
        return f"running{''.join(f', {each}' for each in _done(self._stages))}"

    def _send(self, *lines: str) -> None:
        try:
            self._manager.send(*lines)
        except OSError as exc:  # the manager restarts, or its queue is full; the next datagram says it again
            self._failures.report("the service manager cannot be notified", exc)
        else:
            self._failures.forget()


def _done(stages: frozenset[Beat]) -> Iterator[str]:
    counts, marks = read_counts(), read_marks()
    if Beat.CAPTURE in stages:
        yield f"{counts.get((Counter.CAPTURED_TRANSACTIONS, ''), 0):,.0f} transactions captured"
    if Beat.APPLY in stages and Mark.APPLIED_LSN in marks:
        yield f"applied up to {Lsn(int(marks[Mark.APPLIED_LSN]))}"
    if Beat.SERVE in stages:
        yield f"{sum(n for (of, _), n in counts.items() if of is Counter.QUESTIONS):,.0f} questions answered"
