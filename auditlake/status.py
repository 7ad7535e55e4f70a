"""Where a lake stands: positions, lag, the slot's health, the tables. Reads only, starts no JVM.

The lake answers alone; what PostgreSQL knows (retained log, the slot) is added where it can be reached.
"""

import time
from dataclasses import dataclass

import psycopg

from auditlake.capture.guard import PublicationGuard
from auditlake.capture.mainslot import see_slot
from auditlake.capture.sameness import current_manifest
from auditlake.errors import AuditlakeError, SourceUnreachable
from auditlake.lake.history import list_histories
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, require_manifest
from auditlake.lake.membership import read_recorded
from auditlake.lake.positions import Positions, read_positions
from auditlake.lake.runstate import CaptureState, read_state
from auditlake.lsn import Lsn
from auditlake.postgres.connection import Row, connect
from auditlake.postgres.slot import SlotReader, SlotState, read_reader, read_slot


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What the source says now; `lag_bytes` is log that capture has not acknowledged.

    `problem` is what would stop a capture that started now, None where nothing would.
    """

    slot: SlotState | None
    reader: SlotReader | None
    lag_bytes: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table's horizon and position, commit LSNs, both inclusive."""

    name: str
    horizon: Lsn
    position: Lsn


@dataclass(frozen=True, slots=True)
class Status:
    """A lake at one moment. `source` is None where it could not be asked, `problem` says why.

    `capture` is what the last capture said of itself; a killed one said nothing more.
    """

    manifest: Manifest
    positions: Positions | None
    tables: tuple[TableStatus, ...]
    capture: CaptureState | None
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
    source: SourceStatus | None = None
    problem: str | None = "no source is set"
    if conninfo is not None:
        try:
            source = _ask_source(conninfo, lake, manifest, positions)
            problem = source.problem
        except SourceUnreachable as exc:
            problem = exc.message
    return Status(manifest, positions, tables, read_state(lake), source, problem)


def _ask_source(conninfo: str, lake: Lake, manifest: Manifest, positions: Positions | None) -> SourceStatus:
    with connect(conninfo) as conn:
        slot, reader = read_slot(conn, manifest.slot), read_reader(conn, manifest.slot)
        acknowledged = positions.acknowledged if positions else None
        lag = None if slot is None or acknowledged is None else max(0, slot.wal_end - acknowledged)
        return SourceStatus(slot, reader, lag, _problem(conn, lake, slot, acknowledged))


def _problem(conn: psycopg.Connection[Row], lake: Lake, slot: SlotState | None, acknowledged: Lsn | None) -> str | None:
    manifest = require_manifest(lake)
    try:
        manifest.check_same(current_manifest(conn, manifest.slot, manifest.publication))
        # The lake was read first: a capture that runs may have moved the slot beyond that since.
        if acknowledged is not None and (slot is None or slot.active_pid is None):
            see_slot(manifest.slot, slot, acknowledged)
        if acknowledged is not None and read_recorded(lake) is not None:
            PublicationGuard(lake, manifest.publication, lambda _: None).look(conn, acknowledged)
    except AuditlakeError as exc:
        return exc.message
    return None


def as_json(status: Status) -> dict[str, object]:
    """Return the status as plain values: LSNs as text, sizes in bytes, ages in seconds."""
    positions, source, capture = status.positions, status.source, status.capture
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
        "safe_wal_bytes": slot.safe_wal_bytes if slot else None,
        "slot_exists": None if source is None else slot is not None,
        "slot_active_pid": slot.active_pid if slot else None,
        "slot_reader": str(source.reader) if source and source.reader else None,
        "slot_wal_status": slot.wal_status if slot else None,
        "slot_invalidation": slot.invalidation if slot else None,
        "slot_failover": slot.failover if slot else None,
        "capture": capture.state if capture else None,
        "capture_since": capture.since if capture else None,
        "capture_problem": capture.problem if capture else None,
        "source_problem": status.problem,
        "tables": [{"table": t.name, "horizon": str(t.horizon), "position": str(t.position)} for t in status.tables],
    }
