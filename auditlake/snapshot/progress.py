"""Progress of a copy: rows and bytes per table, rate, and remaining time. Pure except for the clock.

Sizes are the source's, from its catalog; a range counts once it is copied completely. Rows are counted as they are
copied; the expected number is the planner's estimate (`reltuples`), or unknown. The source is never asked to count.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from auditlake.errors import AuditlakeError
from auditlake.lsn import Lsn
from auditlake.relation import TableName


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

    report: Callable[[str], None] = lambda _: None
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
        self.report(f"copied {copied.name}: {copied.rows:,} rows in {copied.seconds:.1f} s")

    def fail(self, name: TableName, why: AuditlakeError) -> None:
        """Record and report that this run will not copy a table."""
        with self._lock:
            self._failed.append((name, why))
        self.report(f"failed: {why.message}")

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
