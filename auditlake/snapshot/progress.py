"""How far a copy is: what was copied of which table, at which rate, and what is left. Pure but for the clock.

Sizes are those of the source, from its catalog: a range counts when it is copied whole. Rows are counted as they are
copied; how many there will be is the planner's guess, or unknown. Nothing here asks the source to count.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from auditlake.errors import AuditlakeError
from auditlake.relation import TableName


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """One table as it was copied: `size_bytes` is that of its files in the lake."""

    name: TableName
    rows: int
    size_bytes: int
    seconds: float
    snapshot_lsn: int


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table that is being copied, or waits for it; bytes are the source's."""

    name: TableName
    expected_bytes: int
    expected_rows: int | None
    rows: int = 0
    done_bytes: int = 0
    begun: bool = False


@dataclass(frozen=True, slots=True)
class CopyState:
    """A copy at one moment. `held_s` is the age of the snapshot, `running` are the tables that are not done yet."""

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
        """Seconds until all is copied at the rate until now; None while there is no rate."""
        return (self.expected_bytes - self.done_bytes) / self.bytes_per_s if self.done_bytes else None


@dataclass
class Progress:
    """What the copy reports to, from any thread, and what a display reads from any other; `say` tells people."""

    say: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tables: dict[TableName, TableProgress] = field(default_factory=dict)
    _copied: list[CopiedTable] = field(default_factory=list)
    _failed: list[tuple[TableName, AuditlakeError]] = field(default_factory=list)
    _held_at: float | None = None
    _begun_at: float | None = None

    def hold(self) -> None:
        """Take note that the snapshot is held from now on."""
        self._held_at = self.clock()

    def expect(self, name: TableName, size_bytes: int, rows: int | None) -> None:
        """Take note of a table that is to be copied; `rows` None where nobody can guess."""
        with self._lock:
            self._begun_at = self.clock() if self._begun_at is None else self._begun_at
            self._tables[name] = TableProgress(name, size_bytes, rows)

    def begin(self, name: TableName) -> None:
        """Take note that a table's first range is being copied."""
        with self._lock:
            self._tables[name] = replace(self._tables[name], begun=True)

    def advance(self, name: TableName, rows: int, size_bytes: int) -> None:
        """Take note of a range: its rows, and its size in the source."""
        with self._lock:
            now = self._tables[name]
            self._tables[name] = replace(now, rows=now.rows + rows, done_bytes=now.done_bytes + size_bytes)

    def finish(self, copied: CopiedTable) -> None:
        """Take note that a table is in the lake."""
        with self._lock:
            self._copied.append(copied)
        self.say(f"copied {copied.name}: {copied.rows:,} rows in {copied.seconds:.1f} s")

    def fail(self, name: TableName, why: AuditlakeError) -> None:
        """Take note that a table will not be copied by this run."""
        with self._lock:
            self._failed.append((name, why))
        self.say(f"failed: {why.message}")

    def state(self) -> CopyState:
        """Read everything at one moment."""
        with self._lock:
            now = self.clock()
            failed = {name for name, _ in self._failed}
            tables = [table for table in self._tables.values() if table.name not in failed]
            ended = {table.name for table in self._copied}
            guesses = [table.expected_rows for table in tables]
            return CopyState(
                seconds=0.0 if self._begun_at is None else now - self._begun_at,
                held_s=0.0 if self._held_at is None else now - self._held_at,
                rows=sum(table.rows for table in tables),
                done_bytes=sum(table.done_bytes for table in tables),
                expected_bytes=sum(table.expected_bytes for table in tables),
                expected_rows=None if None in guesses else sum(guess or 0 for guess in guesses),
                running=tuple(table for table in tables if table.name not in ended),
                copied=tuple(self._copied),
                failed=tuple(self._failed),
            )
