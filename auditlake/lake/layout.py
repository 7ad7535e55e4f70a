"""Where everything is inside a lake. Names only: nothing here reads or writes.

    <root>/lake.json  capture.json  publication.json
    <root>/looks/<schema>/<table>.json
    <root>/changes/  relations/  added/  transactions/  gaps/  history/<schema>/<table>/

A source name becomes one path segment by writing every byte outside [A-Za-z0-9_-] as `~` and two hex digits; `~` is
legal in paths and URIs without escaping, so no layer escapes it a second time. Upper case is escaped too, because
some file systems do not tell `Orders` from `orders`, and a `_` that comes first, because readers take such folders for
their own (`_delta_log`) or pass over them.
"""

from dataclasses import dataclass
from pathlib import Path

from auditlake.relation import TableName

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")

CHANGES_APP = "auditlake/changes"
"""Application transaction of `changes`: the watermark, a commit LSN."""
ACKNOWLEDGED_APP = "auditlake/acknowledged"
"""Application transaction of `changes`: no LSN above it was ever acknowledged to PostgreSQL."""
CURRENT_APP = "auditlake/current"
"""Application transaction of `changes`: every commit up to this time, in microseconds since 1970, is in `changes`."""
TRANSACTIONS_APP = "auditlake/transactions"
"""Application transaction of `transactions`: the commit LSN up to which it is complete."""
HISTORY_APP = "auditlake/history"
"""Application transaction of a history table: its position, a commit LSN."""
SNAPSHOT_APP = "auditlake/snapshot"
"""Application transaction of a history table: its horizon, the snapshot LSN."""
SNAPSHOT_TIME_APP = "auditlake/snapshot_time"
"""Application transaction of a history table: the server's time, in us since 1970, just after its horizon was fixed."""


def path_segment(name: str) -> str:
    """Spell a source name as one path segment, reversibly."""
    segment = "".join(chr(b) if b in _PLAIN else f"~{b:02x}" for b in name.encode())
    return f"~5f{segment[1:]}" if segment.startswith("_") else segment


def source_name(segment: str) -> str:
    """Undo `path_segment`."""
    head, *escaped = segment.split("~")
    return b"".join([head.encode(), *(bytes.fromhex(e[:2]) + e[2:].encode() for e in escaped)]).decode()


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake's folder, absolute."""

    root: Path

    @property
    def manifest(self) -> Path:
        return self.root / "lake.json"

    @property
    def capture_state(self) -> Path:
        return self.root / "capture.json"

    @property
    def publication(self) -> Path:
        return self.root / "publication.json"

    @property
    def changes(self) -> Path:
        return self.root / "changes"

    @property
    def relations(self) -> Path:
        return self.root / "relations"

    @property
    def added(self) -> Path:
        return self.root / "added"

    @property
    def transactions(self) -> Path:
        return self.root / "transactions"

    @property
    def gaps(self) -> Path:
        return self.root / "gaps"

    @property
    def histories(self) -> Path:
        return self.root / "history"

    def history(self, name: TableName) -> Path:
        """Folder of one table's history."""
        return self.histories / path_segment(name.schema) / path_segment(name.table)

    def history_names(self) -> list[TableName]:
        """Name every history table, in order; one without a position is being copied."""
        folders = sorted(self.histories.glob("*/*"))
        return [TableName(source_name(folder.parent.name), source_name(folder.name)) for folder in folders]

    def look(self, name: TableName) -> Path:
        """File with the last look at one table's catalog entry."""
        return self.root / "looks" / path_segment(name.schema) / f"{path_segment(name.table)}.json"
