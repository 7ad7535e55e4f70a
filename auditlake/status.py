"""Where a lake stands: positions, lag, the slot's health, the tables. Reads only, starts no JVM.

The lake answers alone; what PostgreSQL knows (retained log, the slot) is added where it can be reached.
"""

import time
from dataclasses import dataclass

from auditlake.errors import SourceUnreachable
from auditlake.lake.history import list_histories
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, require_manifest
from auditlake.lake.positions import Positions, read_positions
from auditlake.lsn import Lsn
from auditlake.postgres.connection import connect
from auditlake.postgres.server import wal_end
from auditlake.postgres.slot import SlotState, read_slot


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What the source says now; `lag_bytes` is log that capture has not acknowledged."""

    slot: SlotState | None
    lag_bytes: int


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table's horizon and position, commit LSNs, both inclusive."""

    name: str
    horizon: Lsn
    position: Lsn


@dataclass(frozen=True, slots=True)
class Status:
    """A lake at one moment. `source` is None where it could not be asked, `problem` says why."""

    manifest: Manifest
    positions: Positions | None
    tables: tuple[TableStatus, ...]
    source: SourceStatus | None
    problem: str | None

    @property
    def current_age_s(self) -> float | None:
        """Seconds since the moment up to which capture is known to be current."""
        if self.positions is None or not self.positions.current_us:
            return None
        return max(0.0, time.time() - self.positions.current_us / 1_000_000)


def read_status(lake: Lake, conninfo: str | None) -> Status:
    """Read the status of a lake, and of its source where `conninfo` reaches it.

    Raises LakeUnusable where there is no lake.
    """
    manifest = require_manifest(lake)
    positions = read_positions(lake)
    tables = tuple(TableStatus(str(t.name), Lsn(t.horizon), Lsn(t.position)) for t in list_histories(lake))
    if conninfo is None:
        return Status(manifest, positions, tables, None, "no source is set")
    try:
        source = _ask_source(conninfo, manifest, positions)
    except SourceUnreachable as exc:
        return Status(manifest, positions, tables, None, exc.message)
    return Status(manifest, positions, tables, source, None)


def _ask_source(conninfo: str, manifest: Manifest, positions: Positions | None) -> SourceStatus:
    with connect(conninfo) as conn:
        slot = read_slot(conn, manifest.slot)
        end = wal_end(conn).lsn
    return SourceStatus(slot, max(0, end - (positions.acknowledged if positions else end)))


def as_json(status: Status) -> dict[str, object]:
    """Return the status as plain values: LSNs as text, sizes in bytes, ages in seconds."""
    positions, source = status.positions, status.source
    slot = source.slot if source else None
    return {
        "database": status.manifest.database,
        "slot": status.manifest.slot,
        "publication": status.manifest.publication,
        "watermark": str(positions.watermark) if positions else None,
        "acknowledged": str(positions.acknowledged) if positions else None,
        "current_age_s": status.current_age_s,
        "lag_bytes": source.lag_bytes if source else None,
        "retained_bytes": slot.retained_bytes if slot else None,
        "slot_active_pid": slot.active_pid if slot else None,
        "slot_wal_status": slot.wal_status if slot else None,
        "slot_exists": None if source is None else slot is not None,
        "source_problem": status.problem,
        "tables": [{"table": t.name, "horizon": str(t.horizon), "position": str(t.position)} for t in status.tables],
    }
