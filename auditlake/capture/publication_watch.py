"""Publication watch: compare the publication with its record, before the first byte, every 30 s, and when it changes.

1. A loss that affects the publication as a whole stops capture: the slot cannot send those changes any more.
2. A table that is no longer published as recorded is parked (`lake.parking`); capture continues with all others.
3. The stream does not show when that happened, so the missing changes are between the last comparison without a loss
   and this one. The LSN saved for a comparison is the lake's position then, far behind the end of the log: a
   transaction that waits for a synchronous standby is in the log already, but not yet visible in the catalog.
4. A loss is compared a second time, after the end of the log was read, up to which the table is parked. A resync that
   publishes and records the table in between takes its snapshot later than that, so that the snapshot ends the record.
   A table that is published with its schema has no entry of its own (`source.publication_membership`). If its loss was
   undone between the two comparisons and the record has not changed, only the first comparison shows it.
5. A digest of the publication and its entries is compared before every batch and every idle stretch becomes durable. So
   no question about a later moment is answered in between.
"""

import time
from dataclasses import dataclass, replace

import psycopg

from auditlake.errors import WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.parking import NO_MORE_CHANGES, RENEWED_BY_FOLLOW, Cause, Parked, find_parked, park
from auditlake.lake.positions import read_positions
from auditlake.lake.records import read_capture_state, read_recorded, read_seen, recorded_or_new, write_seen
from auditlake.lsn import Lsn
from auditlake.messages import Event, Notice, Say
from auditlake.relation import TableName
from auditlake.source.connection import Row
from auditlake.source.publication import find_existing, read_membership, read_publication_digest
from auditlake.source.publication_membership import Loss, Membership, find_losses
from auditlake.source.server import wal_end

_INTERVAL_S = 30.0
_RESYNC = "Run auditlake resync --all: it takes a new snapshot of all tables and keeps their history."
_COPY_AGAIN = f"The stream lacks changes. {RENEWED_BY_FOLLOW}"


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The recorded membership, the tables that were dropped, the losses of the others, and the entries of schemas."""

    recorded: Membership
    dropped: frozenset[TableName]
    losses: list[Loss]
    schemas: frozenset[int]


class PublicationWatch:
    """Compares the publication of one lake with its record; reports the loss of a table once."""

    def __init__(self, lake: Lake, publication: str, report: Say) -> None:
        self._lake = lake
        self._name = publication
        self._report = report
        self._reported: set[TableName] = set()
        self._next_at = 0.0
        self._digest: str | None = None
        self._schemas: frozenset[int] = frozenset()
        self.present: dict[TableName, int] = {}
        """OIDs of the tables that have a history and that the last comparison found."""

    @property
    def due(self) -> bool:
        """Whether the last comparison was 30 s ago."""
        return time.monotonic() >= self._next_at

    def is_changed(self, control: psycopg.Connection[Row]) -> bool:
        """Whether the publication or its entries have changed since the last `refresh`."""
        return read_publication_digest(control, self._name) != self._digest

    def check(self, control: psycopg.Connection[Row], since: Lsn) -> None:
        """Check that the publication publishes the same operations as before; write nothing.

        `since` is the lake's position, the start of the missing range if no earlier comparison is recorded. Raises
        WrongSource, with the range of LSNs that is missing.
        """
        self._compare(control, since)

    def refresh(self, control: psycopg.Connection[Row], since: Lsn, certain_us: int | None = None) -> None:
        """Check the publication, and park the tables that it no longer publishes as recorded; raise as `check`.

        With `certain_us`, dropped tables are known to have existed up to `since` and up to this time.
        """
        digest = read_publication_digest(control, self._name)  # before, so that nothing in between is missed
        found = self._compare(control, since)
        self._schemas = found.schemas
        if found.losses or found.dropped:
            end = wal_end(control).lsn
            found = _in_both(found, self._compare(control, since))
            self._park(found, (since, end), certain_us)
        lost = {loss.table for loss in found.losses} | found.dropped
        self.present = {name: member.relation for name, member in found.recorded.tables.items() if name not in lost}
        self._next_at, self._digest = time.monotonic() + _INTERVAL_S, digest

    def record_checked(self, since: Lsn, current_us: int) -> None:
        """Save the lake's position and currency at a comparison; call it only while we hold the slot."""
        write_seen(self._lake, since, current_us, self._schemas)

    def _compare(self, control: psycopg.Connection[Row], since: Lsn) -> _Comparison:
        found = read_membership(control, self._name)
        recorded = read_recorded(self._lake) if found is None else recorded_or_new(self._lake, found)
        recorded = self._followed(recorded or Membership(0, frozenset(), {}))
        dropped = self._dropped(control, recorded, found)
        state = read_capture_state(self._lake)
        seen = None if state is None else state.publication_schemas
        losses = list(find_losses(self._name, recorded, found, dropped, seen))
        if whole := [loss.what for loss in losses if loss.table is None]:
            first, end = self._last_complete(since)[0], wal_end(control).lsn
            raise WrongSource(f"{'; '.join(whole)}: changes from {first} to {end} are missing", _RESYNC)
        return _Comparison(recorded, dropped, losses, found.schemas if found else frozenset())

    def _last_complete(self, since: Lsn) -> tuple[Lsn, int | None]:
        """Return the lake's position and currency at the last comparison without a loss."""
        seen = read_seen(self._lake)
        if seen is not None and seen[0] <= since:
            return seen
        positions = read_positions(self._lake)
        return since, positions.current_us if positions and positions.acknowledged <= since else None

    def _park(self, found: _Comparison, between: tuple[Lsn, Lsn], certain_us: int | None) -> None:
        since, end = between
        complete = self._last_complete(since)
        causes = (Cause.DDL, Cause.PUBLICATION)  # a table ends once, and the first record is the most exact
        exact = {n for n in found.dropped if any(_is_ended(find_parked(self._lake, n, each)) for each in causes)}
        gone = [Loss(f"table {name} was dropped at the source", name) for name in sorted(found.dropped - exact)]
        for loss in (*gone, *found.losses):
            if (name := loss.table) is None:
                continue
            reason, ended = loss.what, name in found.dropped
            remedy = NO_MORE_CHANGES if ended else _COPY_AGAIN if loss.past else self._remedy(name)
            first, time_us = (since, certain_us) if ended and certain_us is not None else complete
            last = Lsn(first - 1)
            parked = Parked(
                name, Cause.PUBLICATION, last, end, reason, remedy, time_us, ended=ended, renewable=loss.past
            )
            if park(self._lake, parked) or name not in self._reported:
                known = f"{reason}: it is known up to {parked.lsn}; capture goes on with all other tables"
                self._report(Notice(Event.TABLE_PARKED, known))
            self._reported.add(name)

    def _remedy(self, name: TableName) -> str:
        return (
            f"Publish all of {name} in {self._name} again, and run auditlake resync: it takes a new snapshot and keeps"
            f" the history. To stop following the table, move {self._lake.history(name)} away."
        )

    def _followed(self, recorded: Membership) -> Membership:
        """Leave out tables without a history: not copied yet, or no longer followed."""
        histories = frozenset(self._lake.history_names())  # of a store one listing, no request for each table
        tables = {name: member for name, member in recorded.tables.items() if name in histories}
        return replace(recorded, tables=tables)

    def _dropped(
        self, control: psycopg.Connection[Row], recorded: Membership, found: Membership | None
    ) -> frozenset[TableName]:
        carried = found.names if found else {}
        missing = {n: each.relation for n, each in recorded.tables.items() if each.relation not in carried}
        if not missing:
            return frozenset()
        existing = find_existing(control, missing.values())
        return frozenset(name for name, relation in missing.items() if relation not in existing)


def _in_both(first: _Comparison, second: _Comparison) -> _Comparison:
    """Return the second comparison with what the first one has found, too, or saw before it was undone."""
    lost = {loss.table for loss in first.losses} | first.dropped
    losses = [loss for loss in second.losses if loss.table in lost]
    gone = {loss.table for loss in losses} | second.dropped
    undone = [loss for loss in first.losses if loss.table not in gone and _is_undone(loss, first, second)]
    return replace(second, losses=[*losses, *undone], dropped=second.dropped & lost)


def _is_undone(loss: Loss, first: _Comparison, second: _Comparison) -> bool:
    """Return whether a table that a schema or all tables publish again is still recorded as before its loss."""
    if loss.table is None:
        return False
    member = first.recorded.tables.get(loss.table)
    return member is not None and member.entry is None and second.recorded.tables.get(loss.table) == member


def _is_ended(parked: Parked | None) -> bool:
    return parked is not None and parked.ended
