"""Renewal: continue a lake whose stream cannot be continued, with a new slot and one new snapshot of all tables.

The slot was lost, dropped, created again or read by another program; the source was restored, promoted without all that
the lake has, or replaced by another server (pg_upgrade, dump and restore); the publication was dropped.

Order of effects, between steps 2 and 4 of `resync`, after the operator has confirmed what changes (`find_renewal`):
  1. Every table is held at the lake's last certain LSN, or earlier if it was parked.
  2. Create the publication if it is missing, and record its tables.
  3. lake.json: the source's system identifier, timeline and database.
  4. Drop the old slot, if there is one, and create a new one; all tables are copied from its snapshot.
  5. Discard parts of transactions above the watermark, and record in `changes` the LSN at which the new slot starts.
A kill between any two of these leaves a lake whose stream still cannot be continued, and all tables held: the same
command starts again. After 5 capture can continue, and the same command, or `follow`, finishes the held tables.

LSNs must only grow. If the new source's log ends before the last LSN of the lake, every LSN of it is stored plus an
offset (`lake.manifest`): the smallest that puts the end of its log after the lake's last LSN.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import psycopg

from auditlake.capture.change_log import CaptureLog
from auditlake.capture.preconditions import check_resent, check_slot, check_timeline, current_manifest
from auditlake.capture.publication_watch import PublicationWatch
from auditlake.errors import LakeConflict, LakeUnusable, SourceUnready, WrongSource
from auditlake.failpoints import After, reach
from auditlake.lake.gaps import read_gaps
from auditlake.lake.histories import folded_to
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import LSN_OFFSET_UNIT, Manifest, record_source, require_manifest
from auditlake.lake.parking import read_records
from auditlake.lake.positions import Positions, read_positions
from auditlake.lake.records import record_publication
from auditlake.lake.relations import read_versions
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.source.connection import Row, connect
from auditlake.source.preflight import check_publication
from auditlake.source.publication import read_membership, read_publication
from auditlake.source.server import wal_end, write_wal_record
from auditlake.source.slot import CreatedSlot, Waiting, create_slot, drop_slot, read_slot

_IDENTITY = ("system_identifier", "database")


@dataclass(frozen=True, slots=True)
class Renewal:
    """Why the stream of a lake cannot go on, the manifest that it gets, and in words what changes."""

    problem: str
    manifest: Manifest
    changes: tuple[str, ...]

    def is_another(self, recorded: Manifest) -> bool:
        """Return whether the source is another database, whose tables have OIDs of their own."""
        return any(getattr(self.manifest, each) != getattr(recorded, each) for each in _IDENTITY)


def find_renewal(conninfo: str, lake: Lake) -> Renewal | None:
    """Determine how the lake can continue: with a new slot, or another source; None if its stream can be continued.

    Raises SourceUnready if the publication would not publish every change to it.
    """
    recorded, positions = require_manifest(lake), read_positions(lake)
    if positions is None:
        raise LakeUnusable(f"the bootstrap of {lake.root} ended before it created the log", "Run it again.")
    with closing(connect(conninfo, recorded.lsn_offset)) as control:
        current = current_manifest(control, recorded.slot, recorded.publication)
        problem = _problem(conninfo, control, lake, (recorded, current), positions)
        if problem is None:
            return None
        _require_all_operations(control, recorded.publication)
        known = _known(lake, positions)
        if wal_end(control).lsn == known:  # a killed run has recorded it, and the source is idle since
            write_wal_record(control)
        offset = find_offset(recorded, current, wal_end(control).lsn, known)
        renewed = replace(current, lsn_offset=offset)
        return Renewal(problem, renewed, tuple(_changes(control, recorded, renewed)))


def _problem(
    conninfo: str,
    control: psycopg.Connection[Row],
    lake: Lake,
    manifests: tuple[Manifest, Manifest],
    positions: Positions,
) -> str | None:
    recorded, current = manifests
    try:
        fork = check_timeline(conninfo, recorded, current)
        if fork is not None:
            described = (lsn for lsn, _ in read_versions(lake).lsns)
            fork.check_lake_ends_before(Lsn(max(positions.watermark, folded_to(lake), *described) + 1))
        start = positions.acknowledged if fork is None else min(positions.acknowledged, fork.lsn)
        slot = read_slot(control, recorded.slot)
        check_slot(recorded.slot, slot, start)
        if slot is not None and slot.active_pid is None:
            check_resent(control, lake, recorded, start)
        PublicationWatch(lake, recorded.publication, lambda _: None).check(control, positions.acknowledged)
    except WrongSource as exc:
        return exc.message
    return None


def _require_all_operations(control: psycopg.Connection[Row], name: str) -> None:
    """Require what bootstrap requires of an existing publication: what it publishes from now on is not missed."""
    publication = read_publication(control, name)
    if publication is not None and (found := check_publication(publication)):
        raise SourceUnready(str(found[0]), found[0].fix)


def _known(lake: Lake, positions: Positions) -> Lsn:
    """Return the last LSN that anything in the lake refers to; a table may be held for a source that was never read."""
    records = (record.until for record in read_records(lake))
    gaps = (gap.lsn_to for gap in read_gaps(lake))
    return Lsn(max(positions.known_lsn, positions.acknowledged, folded_to(lake), *records, *gaps))


def find_offset(recorded: Manifest, current: Manifest, end: Lsn, known: Lsn) -> int:
    """Return the offset with which every LSN that the source will write is after `known`.

    `end` is the end of its log with the recorded offset, which stays if it is the same cluster and ahead.
    """
    if end > known and current.system_identifier == recorded.system_identifier:
        return recorded.lsn_offset
    behind = known - (end - recorded.lsn_offset)
    return 0 if behind < 0 else (behind // LSN_OFFSET_UNIT + 1) * LSN_OFFSET_UNIT


def _changes(control: psycopg.Connection[Row], recorded: Manifest, current: Manifest) -> Iterable[str]:
    for field in ("system_identifier", "timeline", "database"):
        before, now = getattr(recorded, field), getattr(current, field)
        if before != now:
            yield f"{field.replace('_', ' ')} {before} becomes {now}"
    if current.lsn_offset != recorded.lsn_offset:
        offset = f"{Lsn(current.lsn_offset)} is added to its LSNs in this lake"
        yield f"{offset}: its log is behind the lake" if current.lsn_offset else "its LSNs are those of this lake"
    if read_membership(control, current.publication) is None:
        yield f"publication {current.publication} is created"
    exists = read_slot(control, current.slot) is not None
    yield f"slot {current.slot} is {'dropped and created anew' if exists else 'created'}"
    yield "all tables get a new snapshot; what was missed in between is recorded as a gap"


def renew_source(
    control: psycopg.Connection[Row], lake: Lake, renewal: Renewal, tables: Mapping[TableName, int]
) -> None:
    """Record the publication as it is now, and the source; tables that are not published stay held.

    `tables` are the OIDs of the source's tables, by the names of their histories.
    """
    membership = read_membership(control, renewal.manifest.publication)
    if membership is None:
        raise SourceUnready("the publication was dropped meanwhile", "Run auditlake resync --all again.")
    _require_all_operations(control, renewal.manifest.publication)
    found = {member.relation: member for member in membership.tables.values()}
    members = {name: found[oid] for name, oid in tables.items() if oid in found}
    record_publication(lake, replace(membership, tables=members))
    positions = read_positions(lake)
    assert positions is not None  # noqa: S101 - `find_renewal` requires them
    record_source(lake, renewal.manifest, positions.known_lsn)
    reach(After.SOURCE_RENEWED)


def renew_slot(
    control: psycopg.Connection[Row], replication: psycopg.Connection[Row], lake: Lake, waiting: Waiting
) -> CreatedSlot:
    """Replace the lake's slot by a new one, and record its start; raises LakeConflict if the old one is being read."""
    name = require_manifest(lake).slot
    try:
        drop_slot(control, name)
    except psycopg.errors.ObjectInUse as exc:
        raise LakeConflict(f"slot {name} is being read", "Stop its reader, then run auditlake resync again.") from exc
    created = create_slot(replication, control, name, temporary=False, waiting=waiting)
    reach(After.SLOT)
    CaptureLog(lake).start_again_at(created.consistent_point)
    return created
