"""Hold: apply nothing to tables while they are copied again, and record up to which LSN they are certain.

A held table is parked (`lake.parking`, cause RESYNC) with a record of its own, because capture may remove
the record of the reason at its next comparison of the catalog. The record is on the disk before any other effect and in
force until the commit of the snapshot. It distinguishes, also for a later run:

- a table that was parked: it stays certain up to the same LSN, for the same reason;
- a *complete* table, which was not: the stream has all of its changes, and they are folded up to the snapshot.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from auditlake.lake.history import HistoryTable, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.parking import RENEWED_BY_FOLLOW, Cause, Parked, find_parked, is_held, park, read_parked, unpark
from auditlake.lake.positions import Positions
from auditlake.lsn import Lsn
from auditlake.relation import TableName

_COMPARED = "it is being compared with the source"


@dataclass(frozen=True, slots=True)
class Hold:
    """A held table, by its record."""

    record: Parked

    @property
    def table(self) -> TableName:
        return self.record.table

    @property
    def is_complete(self) -> bool:
        """Return whether the stream had all changes of the table when it was held."""
        return self.record.reason == _COMPARED

    def first_doubt(self, lake: Lake, snapshot_lsn: Lsn) -> Parked | None:
        """Return the earliest reason why the stream does not prove the state at `snapshot_lsn`; None without one.

        Capture may have recorded another one since the table is held.
        """
        known = [] if self.is_complete else [self.record]
        doubts = [*known, *_others(lake, open_history(lake, self.table))]
        return min((each for each in doubts if each.lsn < snapshot_lsn), key=lambda each: each.lsn, default=None)


def hold_tables(
    lake: Lake, tables: Iterable[HistoryTable], positions: Positions, until: Lsn, problem: str = _COMPARED
) -> dict[TableName, Hold]:
    """Hold tables; `until` is the end of the source's log, read before. A hold of an earlier run is continued.

    `problem` is why the stream ends at `positions`; without it, the tables are complete.

    Raises LakeUnusable if the folder cannot be written.
    """
    tables = list(tables)
    parked = read_parked(lake, tables)
    lsn, time_us = positions.known_lsn, positions.current_us
    ends = {
        each.name: Parked(each.name, Cause.RESYNC, lsn, until, problem, RENEWED_BY_FOLLOW, time_us) for each in tables
    }
    return {each.name: _hold(lake, each, parked.get(each.name), ends[each.name]) for each in tables}


def _hold(lake: Lake, table: HistoryTable, parked: Parked | None, end: Parked) -> Hold:
    """Hold a table at the `end` of its stream; a parked one, at the LSN of its parking."""
    held = find_parked(lake, table.name, Cause.RESYNC)
    complete = held is not None and held.reason == _COMPARED and end.reason != _COMPARED
    if held is not None and held.until > table.snapshot_lsn and (parked is None or parked.lsn >= held.lsn):
        if not complete:
            return Hold(held)
        parked = None  # it was complete, until the stream was lost
    record = end
    if parked is not None:
        record = replace(end, lsn=parked.lsn, reason=parked.reason, time_us=parked.time_us)
    if complete:
        unpark(lake, table.name, Cause.RESYNC)
    park(lake, record)
    return Hold(record)


def release(lake: Lake, holds: Iterable[Hold]) -> None:
    """Let go of complete tables: their stream goes on, whether they got a new snapshot or not."""
    for hold in holds:
        if hold.is_complete:
            unpark(lake, hold.table, Cause.RESYNC)


def held_tables(lake: Lake, tables: Iterable[HistoryTable]) -> list[TableName]:
    """Return the tables that an earlier run held and did not finish."""
    return [table.name for table in tables if is_held(lake, table)]


def _others(lake: Lake, table: HistoryTable | None) -> list[Parked]:
    """Return the records in force other than our own."""
    if table is None:
        return []
    found = (find_parked(lake, table.name, cause) for cause in Cause if cause is not Cause.RESYNC)
    return [record for record in found if record is not None and record.until > table.snapshot_lsn]
