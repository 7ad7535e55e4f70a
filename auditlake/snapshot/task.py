"""What a worker is told to copy, and what it says of it. Pure values, which travel between processes."""

from dataclasses import dataclass
from pathlib import Path

from auditlake.relation import Column, TableName
from auditlake.snapshot.ranges import PageRange


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """What every row of a snapshot says of itself: its LSN and the server's time, in microseconds since 1970."""

    lsn: int
    time_us: int


@dataclass(frozen=True, slots=True)
class CopyTask:
    """One range to copy. `conninfo` may hold a password: it travels to the worker and is never printed.

    `name` is the table that holds the rows, which may be a partition of the one whose history they become; `row_filter`
    SQL for which of them, None for all. `ordinals` are what they get as `_ordinal`, one each, or None: rows that have a
    key need none. `source_bytes` is about what the range takes in the source; `bytes_per_s` the most that may be read.
    """

    conninfo: str
    snapshot_id: str
    name: TableName
    columns: tuple[Column, ...]
    pages: PageRange
    folder: Path
    mark: SnapshotMark
    row_filter: str | None = None
    ordinals: range | None = None
    source_bytes: int = 0
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file that waits for its commit; `path` is relative to the table's folder. There is none without a row."""

    name: TableName
    path: str
    size_bytes: int
    rows: int
    stats: str
