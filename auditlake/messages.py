"""Output of a process without a terminal library: results on stdout, messages, errors and bugs on stderr.

Messages are lower case without a final period, prefixed with the program's name; hints are sentences. They may contain
names from the source, so each is written as one line (`escapes.visible`), with lines below it only if a `Notice` says
so. While progress is shown, its library captures these lines and prints them above the progress. Results for other
programs are UTF-8, byte for byte; `click.echo` would remove escape sequences.
"""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from auditlake.errors import AuditlakeError, BadUsage, ConfigError
from auditlake.extras import SPARK, missing_of_spark
from auditlake.jvm_trace import KILLED_BY_KERNEL, LESS_HEAP, classes_in, ended_jvm, trace_of
from auditlake.store.failures import as_disk_error, as_lake_error
from auditlake.values.escapes import has_controls, visible

Say = Callable[[str], None]
"""Reports a line, as `say` does."""
_LOCK = threading.Lock()


class Event(StrEnum):
    """Event of a message; docs/monitoring.md lists these names, which stay the same from release to release."""

    MESSAGE = "message"
    CAPTURE_STARTED = "capture_started"
    SOURCE_LOST = "source_lost"
    SOURCE_BACK = "source_back"
    SOURCE_PROMOTED = "source_promoted"
    CHANGES_APPLIED = "changes_applied"
    TABLE_PARKED = "table_parked"
    TABLE_FOLLOWED = "table_followed"
    TABLE_COPIED = "table_copied"
    TABLE_NOT_COPIED = "table_not_copied"
    SNAPSHOT_STARTED = "snapshot_started"
    TABLE_MAINTAINED = "table_maintained"
    VERSIONS_EXPIRED = "versions_expired"
    LOG_EXPIRED = "log_expired"
    LOG_KEPT = "log_kept"
    VERSIONS_KEPT = "versions_kept"
    ROW_RETURNED = "row_returned"
    ATTEMPT_FAILED = "attempt_failed"
    DELIVERY_FAILED = "delivery_failed"
    METRICS_SERVED = "metrics_served"
    STOPPED = "stopped"
    ERROR = "error"
    BUG = "bug"


_WARNINGS = frozenset(
    {Event.SOURCE_LOST, Event.TABLE_PARKED, Event.TABLE_NOT_COPIED, Event.ATTEMPT_FAILED, Event.DELIVERY_FAILED}
)
_ERRORS = frozenset({Event.ERROR, Event.BUG})


class Notice(str):
    """A message that names its event, and may have indented lines `below` it, such as a traceback."""

    __slots__ = ("below", "event")
    event: Event
    below: tuple[str, ...]

    def __new__(cls, event: Event, text: str, below: Sequence[str] = ()) -> Self:
        """Make the message `text` of an event."""
        made = super().__new__(cls, "\n".join([text, *below]))
        made.event, made.below = event, tuple(below)
        return made

    def shown(self) -> str:
        """Return its lines for people: no name in one of them begins another."""
        first = self.removesuffix("\n".join(["", *self.below]))
        return "\n".join(map(visible, (first, *self.below)))


class _Format:
    """The form of all messages of this process."""

    as_json = False


def use_format(name: str) -> None:
    """Write messages as `text` or as `json`: one object a line."""
    _Format.as_json = name == "json"


_notes: ContextVar[list[str] | None] = ContextVar("_notes", default=None)
_said_once: set[tuple[Hashable, str]] = set()


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect the messages of this thread in the block, too: for an answer that is read without stderr.

    A block around it collects them as well.
    """
    notes = list[str]()
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)
        for each in notes:
            note(each)


def say_once(about: Hashable, message: str) -> None:
    """Print a message about something once in this process; it is noted each time."""
    if (about, message) in _said_once:
        note(message)
    else:
        _said_once.add((about, message))
        say(message)


def note(message: str) -> None:
    """Add a message to those that are collected (`noted`), without printing it."""
    if (notes := _notes.get()) is not None and message not in notes:
        notes.append(message)


def say(message: str) -> None:
    """Print one message as one line, and those below it."""
    note(message)
    notice = message if isinstance(message, Notice) else Notice(Event.MESSAGE, message)
    _write(_object(notice.event, message) if _Format.as_json else f"auditlake: {notice.shown()}")


def _object(event: Event, message: str, **more: object) -> str:
    level = "error" if event in _ERRORS else "warning" if event in _WARNINGS else "info"
    head = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "event": str(event)}
    return json.dumps({**head, "message": message, **more})


def _write(line: str) -> None:
    """Write a line, one thread at a time; a reader that is gone or a full disk ends no stage."""
    with _LOCK, suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def report_error(error: AuditlakeError) -> None:
    """Report an error and its hint."""
    if _Format.as_json:
        _write(_object(Event.ERROR, error.message, hint=error.hint, exit_code=error.exit_code))
        return
    say(f"error: {error.message}")
    if error.hint:
        say(f"hint: {error.hint}")


def report(error: BaseException) -> int:
    """Report any error, and return its exit code.

    A failure of the store or the disk is one of the lake, a JVM that was killed or a Spark that is not installed one of
    the settings; all else is a bug.
    """
    known = as_known(error)
    if known is None:
        report_bug(error)
        return 1
    report_error(known)
    return known.exit_code


def as_known(error: BaseException) -> AuditlakeError | None:
    """Return the error to report for any exception; None if it is a bug."""
    if isinstance(error, AuditlakeError):
        return error
    return as_lake_error(error) or as_disk_error(error) or _as_lost_jvm(error) or _as_missing_spark(error)


def _as_missing_spark(error: BaseException) -> ConfigError | None:
    package = missing_of_spark(error)
    if package is None:
        return None
    return ConfigError(f"{package} is not installed, this needs Spark", f"{SPARK.command}, and Java 17 or later.")


def _as_lost_jvm(error: BaseException) -> ConfigError | None:
    """Return the error to report if `error` was raised because the JVM had ended; None if it was not."""
    ended = ended_jvm(error)
    if ended is None:
        return None
    if ended.exit_code != -signal.SIGKILL:
        how = f"was ended by {signal.Signals(-ended.exit_code).name}" if ended.exit_code < 0 else "ended"
        message = f"the JVM under Spark {how} with exit code {ended.exit_code} while it was needed"
        again = "then run the same command again; nothing was lost."
        return ConfigError(message, f"Its messages are above; check [spark], {again}")
    killed = f"the JVM under Spark was killed (SIGKILL), its heap is {ended.heap}: {KILLED_BY_KERNEL}"
    return ConfigError(killed, LESS_HEAP)


def report_bug(error: BaseException) -> None:
    """Report the types and traceback of an unexpected exception, without its message, which may quote rows."""
    if _Format.as_json:
        _write(_object(Event.BUG, _described(Event.BUG, "", error), exit_code=1))
        return
    say(_described(Event.BUG, "error: ", error))
    say("hint: This is a bug in auditlake; nothing was lost. Please report the lines above.")


def _described(event: Event, before: str, error: BaseException) -> Notice:
    """Return type and place of an unexpected exception."""
    frames = "".join(traceback.format_tb(error.__traceback__)).splitlines()
    trace = trace_of(error)
    classes = classes_in(trace) if trace else ()
    causes = [f"  in the JVM: {', caused by '.join(classes)}"] if classes else []
    return Notice(event, f"{before}unexpected {type(error).__name__} at", (*frames, *causes))


def is_json() -> bool:
    """Return whether messages are written as JSON."""
    return _Format.as_json


class FailureReports:
    """Reports of a task that is tried again and again: each failure once, until it succeeds."""

    def __init__(self, report_line: Say = say) -> None:
        self._report_line = report_line
        self._reported: set[str] = set()

    def report(self, what: str, error: Exception) -> None:
        """Report that a try failed: message and hint of a known error, the place of any other, which may quote rows."""
        reason, event = _reason(error), Event.ATTEMPT_FAILED
        line = Notice(event, f"{what}: {reason}") if reason else _described(event, f"{what}: ", error)
        if line not in self._reported:
            self._reported.add(line)
            self._report_line(line)

    def forget(self) -> None:
        """Forget the reports, because a try succeeded."""
        self._reported.clear()


def _reason(error: Exception) -> str | None:
    """Return why a try failed; None if only the place is known."""
    if (known := as_known(error)) is not None:
        return f"{known.message}. {known.hint}" if known.hint else known.message
    if isinstance(error, MemoryError):
        return "memory ran out"
    if isinstance(error, OSError) and error.errno is not None:
        return ": ".join(map(str, filter(None, (error.filename, os.strerror(error.errno)))))
    return None


@contextmanager
def exit_on_errors() -> Iterator[None]:
    """Report an error of the block and exit with its code, in programs other than the command line."""
    try:
        yield
    except Exception as exc:  # noqa: BLE001 - the one handler of bugs in such a program
        sys.exit(report(exc))


def require_printable(text: str) -> None:
    """Require that a text for a terminal has no control characters, which a terminal would execute; raises BadUsage.

    Tabs and line ends are not among them.
    """
    if has_controls(text.replace("\t", "").replace("\n", "")):
        raise BadUsage(
            "the output has control characters, which a terminal would execute", "Write it to a file or a pipe."
        )


def write_exactly(text: str) -> None:
    """Write a text and a newline; raises BadUsage if stdout is a terminal and the text is not printable."""
    if sys.stdout.isatty():
        require_printable(text)
    sys.stdout.flush()
    sys.stdout.buffer.write(f"{text}\n".encode())
    sys.stdout.buffer.flush()
