"""Progress of a copy: rows and bytes per table, rate, and remaining time; displayed for people and for programs.

Sizes are the source's, from its catalog, except `lake_bytes`; a range counts once it is copied completely. Rows are
counted as they are copied; the expected number is the planner's estimate (`reltuples`), or unknown. The source is never
asked to count.

For people, on stderr: on a terminal, a redrawn line for the whole copy and one for each of the largest running tables;
otherwise a plain line every half minute. A snapshot held for ten minutes causes a warning, repeated every hour.

For programs, on stdout with --json: one object per line, whose `event` is one of:
    progress   every second: the totals and the running tables
    copied     a table is in the lake
    failed     a table was not copied; the next run copies it
    done       the end, even if tables failed
Unknown numbers are null.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from auditlake.background import in_background
from auditlake.errors import AuditlakeError, all_in_one
from auditlake.lsn import Lsn
from auditlake.messages import Event, Notice, Say, say
from auditlake.relation import TableName
from auditlake.terminal import STDERR, plain_table, show

_PLAIN_INTERVAL_S = 30.0
_LONG_HELD_S = 600.0
_WARN_AGAIN_S = 3600.0
_TABLES_SHOWN = 8
_BAR_WIDTH = 16
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table that was copied; `size_bytes` is the size of its files in the lake."""

    name: TableName
    rows: int
    size_bytes: int
    seconds: float
    snapshot_lsn: Lsn


@dataclass(frozen=True, slots=True)
class TableProgress:
    """A table that is being copied or waits for it; sizes are the source's."""

    name: TableName
    expected_bytes: int
    expected_rows: int | None
    rows: int = 0
    done_bytes: int = 0
    begun: bool = False


@dataclass(frozen=True, slots=True)
class CopyState:
    """The state of a copy. `held_s` is the age of the snapshot; `running` are the tables not finished yet."""

    seconds: float
    held_s: float
    rows: int
    done_bytes: int
    expected_bytes: int
    expected_rows: int | None
    running: tuple[TableProgress, ...]
    copied: tuple[CopiedTable, ...]
    failed: tuple[tuple[TableName, AuditlakeError], ...]

    def require_all(self) -> None:
        """Require that no table has failed; raises all failures as one error."""
        if self.failed:
            raise all_in_one([why for _, why in sorted(self.failed)])

    @property
    def bytes_per_s(self) -> float:
        """Bytes of the source per second since the copy began."""
        return self.done_bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds until the end at the average rate so far; None before the first range."""
        return (self.expected_bytes - self.done_bytes) / self.bytes_per_s if self.done_bytes else None


@dataclass
class Progress:
    """Thread-safe record of a copy, written by the copy and read by a display; `report` gets a line per table."""

    report: Say = lambda _: None
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tables: dict[TableName, TableProgress] = field(default_factory=dict)
    _copied: list[CopiedTable] = field(default_factory=list)
    _failed: list[tuple[TableName, AuditlakeError]] = field(default_factory=list)
    _held_at: float | None = None
    _begun_at: float | None = None

    def record_snapshot(self) -> None:
        """Record that the snapshot is held from now on."""
        self._held_at = self.clock()

    def expect(self, name: TableName, size_bytes: int, rows: int | None) -> None:
        """Record a table that is to be copied; `rows` is None if there is no estimate."""
        with self._lock:
            self._begun_at = self.clock() if self._begun_at is None else self._begun_at
            self._tables[name] = TableProgress(name, size_bytes, rows)

    def begin(self, name: TableName) -> None:
        """Record that a table's first range is being copied."""
        with self._lock:
            self._tables[name] = replace(self._tables[name], begun=True)

    def advance(self, name: TableName, rows: int, size_bytes: int) -> None:
        """Record a copied range: its rows, and its size in the source."""
        with self._lock:
            table = self._tables[name]
            self._tables[name] = replace(table, rows=table.rows + rows, done_bytes=table.done_bytes + size_bytes)

    def finish(self, copied: CopiedTable) -> None:
        """Record and report that a table is in the lake."""
        with self._lock:
            self._copied.append(copied)
        done = f"copied {copied.name}: {copied.rows:,} rows in {copied.seconds:.1f} s"
        self.report(Notice(Event.TABLE_COPIED, done))

    def fail(self, name: TableName, why: AuditlakeError) -> None:
        """Record and report that this run will not copy a table."""
        with self._lock:
            self._failed.append((name, why))
        self.report(Notice(Event.TABLE_NOT_COPIED, f"failed: {why.message}"))

    def begin_again(self) -> None:
        """Forget the tables that failed: they are copied again."""
        with self._lock:
            for name, _ in self._failed:
                self._tables.pop(name, None)
            self._failed.clear()

    def state(self) -> CopyState:
        """Return a consistent copy of the current state."""
        with self._lock:
            now = self.clock()
            failed = {name for name, _ in self._failed}
            tables = [table for table in self._tables.values() if table.name not in failed]
            ended = {table.name for table in self._copied}
            estimates = [table.expected_rows for table in tables]
            return CopyState(
                seconds=0.0 if self._begun_at is None else now - self._begun_at,
                held_s=0.0 if self._held_at is None else now - self._held_at,
                rows=sum(table.rows for table in tables),
                done_bytes=sum(table.done_bytes for table in tables),
                expected_bytes=sum(table.expected_bytes for table in tables),
                expected_rows=None if None in estimates else sum(estimate or 0 for estimate in estimates),
                running=tuple(table for table in tables if table.name not in ended),
                copied=tuple(self._copied),
                failed=tuple(self._failed),
            )


class _Display(Protocol):
    """Show successive states, one every `interval_s`."""

    interval_s: float

    def show(self, state: CopyState) -> None: ...

    def end(self, state: CopyState) -> None: ...


@contextmanager
def shown_progress(*, as_json: bool) -> Iterator[Progress]:
    """Yield the progress to report to, and display it until the block ends, normally or by an exception."""
    progress = Progress(say)
    display: _Display = _Lines() if as_json else _Bars() if STDERR.is_terminal else _Plain()
    try:
        with in_background(_tick, progress, display, name="progress"):
            yield progress
    finally:
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
    report: Say = say

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
        yield {"event": "copied", "table": str(one.name), **facts, "snapshot_lsn": str(one.snapshot_lsn)}
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
        lsn = str(one.snapshot_lsn)
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
