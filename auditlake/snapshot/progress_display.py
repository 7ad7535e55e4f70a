"""Display of a copy's progress, for people and for programs.

For people, on stderr: on a terminal, a redrawn line for the whole copy and one for each of the largest running tables;
otherwise a plain line every half minute. A snapshot held for ten minutes causes a warning, repeated every hour.

For programs, on stdout with --json: one object per line, whose `event` is one of:
    progress   every second: the totals and the running tables
    copied     a table is in the lake
    failed     a table was not copied; the next run copies it
    done       the end, even if tables failed
Sizes are the source's, except `lake_bytes`. Unknown numbers are null.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from auditlake.lsn import Lsn
from auditlake.messages import say
from auditlake.snapshot.progress import CopiedTable, CopyState, Progress, TableProgress
from auditlake.terminal import STDERR, plain_table, show

_PLAIN_INTERVAL_S = 30.0
_LONG_HELD_S = 600.0
_WARN_AGAIN_S = 3600.0
_TABLES_SHOWN = 8
_BAR_WIDTH = 16
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND = 1000


class _Display(Protocol):
    """Show successive states, one every `interval_s`."""

    interval_s: float

    def show(self, state: CopyState) -> None: ...

    def end(self, state: CopyState) -> None: ...


@contextmanager
def shown(*, as_json: bool) -> Iterator[Progress]:
    """Yield the progress to report to, and display it until the block ends, normally or by an exception."""
    progress, stop = Progress(say), threading.Event()
    display: _Display = _Lines() if as_json else _Bars() if STDERR.is_terminal else _Plain()
    ticking = threading.Thread(target=_tick, args=(progress, display, stop), daemon=True)
    ticking.start()
    try:
        yield progress
    finally:
        stop.set()
        ticking.join()
        display.end(progress.state())


def _tick(progress: Progress, display: _Display, stop: threading.Event) -> None:
    warning = _SnapshotAgeWarning()
    while not stop.wait(display.interval_s):
        state = progress.state()
        display.show(state)
        warning.check(state)


@dataclass
class _SnapshotAgeWarning:
    """Warn about a snapshot that is held for long."""

    next_s: float = _LONG_HELD_S
    report: Callable[[str], None] = say

    def check(self, state: CopyState) -> None:
        if state.held_s >= self.next_s:
            self.next_s = state.held_s + _WARN_AGAIN_S
            age = format_seconds(state.held_s)
            self.report(
                f"warning: the snapshot is held for {age}: until the copy is done, vacuum removes no rows deleted since"
            )


@dataclass
class _Plain:
    """A plain line per interval, once something is being copied."""

    interval_s: float = _PLAIN_INTERVAL_S

    def show(self, state: CopyState) -> None:
        if state.expected_bytes:
            say(sum_up(state))

    def end(self, state: CopyState) -> None:
        show_copied(state.copied)


@dataclass
class _Bars:
    """Progress bars, redrawn in place."""

    interval_s: float = 0.25
    live: Live = field(default_factory=lambda: Live(console=STDERR, transient=True, auto_refresh=False))

    def show(self, state: CopyState) -> None:
        if not self.live.is_started:
            self.live.start()
        self.live.update(draw(state), refresh=True)

    def end(self, state: CopyState) -> None:
        self.live.stop()
        show_copied(state.copied)


@dataclass
class _Lines:
    """JSON, one object per line."""

    interval_s: float = 1.0
    printed: set[str] = field(default_factory=set)

    def show(self, state: CopyState) -> None:
        for event in (*ended(state), *([as_event(state)] if state.seconds else [])):
            line = json.dumps(event)
            if event["event"] == "progress" or line not in self.printed:
                self.printed.add(line)
                print(line, flush=True)  # noqa: T201 - data goes to stdout

    def end(self, state: CopyState) -> None:
        self.show(state)
        rows, lake_bytes = sum(one.rows for one in state.copied), sum(one.size_bytes for one in state.copied)
        counts = {"tables": len(state.copied), "failed": len(state.failed), "rows": rows, "lake_bytes": lake_bytes}
        print(json.dumps({"event": "done", **counts, "seconds": round(state.seconds, 3)}), flush=True)  # noqa: T201


def ended(state: CopyState) -> Iterator[dict[str, object]]:
    """Yield one event for each table that was copied or failed."""
    for one in state.copied:
        facts = {"rows": one.rows, "lake_bytes": one.size_bytes, "seconds": round(one.seconds, 3)}
        yield {"event": "copied", "table": str(one.name), **facts, "snapshot_lsn": str(Lsn(one.snapshot_lsn))}
    for name, why in state.failed:
        yield {"event": "failed", "table": str(name), "error": why.message, "hint": why.hint}


def as_event(state: CopyState) -> dict[str, object]:
    """Return the copy's progress as a JSON object."""
    return {
        "event": "progress",
        "seconds": round(state.seconds, 3),
        "rows": state.rows,
        "expected_rows": state.expected_rows,
        "bytes": state.done_bytes,
        "expected_bytes": state.expected_bytes,
        "bytes_per_second": round(state.bytes_per_s),
        "seconds_left": None if state.left_s is None else round(state.left_s, 1),
        "snapshot_held_seconds": round(state.held_s, 1),
        "running": [
            {
                "table": str(table.name),
                "rows": table.rows,
                "expected_rows": table.expected_rows,
                "bytes": table.done_bytes,
                "expected_bytes": table.expected_bytes,
            }
            for table in state.running
            if table.begun
        ],
    }


def sum_up(state: CopyState) -> str:
    """Return the copy's progress as one line."""
    of = f" of about {state.expected_rows:,}" if state.expected_rows is not None else ""
    left = "" if state.left_s is None else f", about {format_seconds(state.left_s)} left"
    return (
        f"{format_bytes(state.done_bytes)} of {format_bytes(state.expected_bytes)}, {state.rows:,}{of} rows, "
        f"{format_bytes(state.bytes_per_s)}/s{left}; snapshot held for {format_seconds(state.held_s)}"
    )


def draw(state: CopyState) -> Group:
    """Return the copy's progress as bars: the largest running tables, the number of others, and the total."""
    if not state.seconds:
        return Group(f"preparing; snapshot held for {format_seconds(state.held_s)}")
    begun = sorted((table for table in state.running if table.begun), key=lambda table: -table.expected_bytes)
    lines = Table.grid(padding=(0, 2))
    for table in begun[:_TABLES_SHOWN]:
        lines.add_row(str(table.name), _bar(table.done_bytes, table.expected_bytes), _rows(table))
    if len(begun) > _TABLES_SHOWN:
        lines.add_row(f"and {len(begun) - _TABLES_SHOWN} more", "", "")
    tables = len(state.running) + len(state.copied)
    lines.add_row(f"{len(state.copied)} of {tables} tables", _bar(state.done_bytes, state.expected_bytes), "")
    return Group(lines, sum_up(state))


def _bar(done: int, expected: int) -> ProgressBar:
    return ProgressBar(total=max(expected, 1), completed=done, width=_BAR_WIDTH)


def _rows(table: TableProgress) -> str:
    return f"{format_bytes(table.done_bytes)} of {format_bytes(table.expected_bytes)}, {table.rows:,} rows"


def show_copied(copied: tuple[CopiedTable, ...] | list[CopiedTable]) -> None:
    """Print the copied tables in name order, and their sum, on stdout; print nothing if there are none."""
    if not copied:
        return
    table = plain_table("table", "rows", "bytes", "seconds", "snapshot LSN")
    for one in sorted(copied, key=lambda copied_table: copied_table.name):
        lsn = str(Lsn(one.snapshot_lsn))
        table.add_row(str(one.name), f"{one.rows:,}", f"{one.size_bytes:,}", f"{one.seconds:.1f}", lsn)
    if len(copied) > 1:
        rows, size_bytes = sum(one.rows for one in copied), sum(one.size_bytes for one in copied)
        table.add_row(f"{len(copied)} tables", f"{rows:,}", f"{size_bytes:,}", "", "")
    show(table)


def format_bytes(size: float) -> str:
    """Format a size with three digits and a decimal unit."""
    for unit in _UNITS:
        if size < _THOUSAND or unit == _UNITS[-1]:
            break
        size /= _THOUSAND
    return f"{size:.3g} {unit}"


def format_seconds(seconds: float) -> str:
    """Format a duration in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
