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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import psycopg

from auditlake.errors import WrongSource
from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.parking import NO_MORE_CHANGES, RENEWED_BY_FOLLOW, Cause, Parked, find_parked, names_with, park
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
_DROPPED = "table {} was dropped at the source"
_RESYNC = "Run auditlake resync --all: it takes a new snapshot of all tables and keeps their history."
_COPY_AGAIN = f"The stream lacks changes. {RENEWED_BY_FOLLOW}"


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The recorded membership, the losses, and the entries of schemas.

    `ended` are the tables without more changes, with the reason; of these, `dropped` do not exist any more.
    """

    recorded: Membership
    ended: Mapping[TableName, str]
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
        if found.losses or found.ended:
            end = wal_end(control).lsn
            found = _in_both(found, self._compare(control, since))
            self._park(found, (since, end), certain_us)
        lost = {loss.table for loss in found.losses} | found.ended.keys()
        self.present = {name: member.relation for name, member in found.recorded.tables.items() if name not in lost}
        self._next_at, self._digest = time.monotonic() + _INTERVAL_S, digest

    def record_checked(self, since: Lsn, current_us: int) -> None:
        """Save the lake's position and currency at a comparison; call it only while we hold the slot."""
        write_seen(self._lake, since, current_us, self._schemas)

    def _compare(self, control: psycopg.Connection[Row], since: Lsn) -> _Comparison:
        found = read_membership(control, self._name)
        recorded = read_recorded(self._lake) if found is None else recorded_or_new(self._lake, found)
        recorded = self._followed(recorded or Membership(0, frozenset(), {}))
        ended, dropped = _ended(control, recorded, found)
        state = read_capture_state(self._lake)
        seen = None if state is None else state.publication_schemas
        losses = list(find_losses(self._name, recorded, found, ended, seen))
        if whole := [loss.what for loss in losses if loss.table is None]:
            first, end = self._last_complete(since)[0], wal_end(control).lsn
            raise WrongSource(f"{'; '.join(whole)}: changes from {first} to {end} are missing", _RESYNC)
        losses += self._returned(recorded, found.names if found else {})
        return _Comparison(recorded, ended, dropped, losses, found.schemas if found else frozenset())

    def _returned(self, recorded: Membership, carried: Collection[int]) -> Iterator[Loss]:
        """Yield the tables that were partitions of another one, and are none any more."""
        for name in names_with(self._lake, Cause.PUBLICATION) & recorded.tables.keys():
            parked, history = find_parked(self._lake, name, Cause.PUBLICATION), open_history(self._lake, name)
            is_over = history is None or parked is None or parked.until <= history.snapshot_lsn
            if recorded.tables[name].relation in carried and _is_ended(parked) and not is_over:
                what = f"table {name} was a partition of another table, whose history has its rows of then"
                yield Loss(what, name, carried=True, past=True)

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
        exact = {n for n in found.ended if any(_is_ended(find_parked(self._lake, n, each)) for each in causes)}
        gone = [Loss(found.ended[name], name) for name in sorted(found.ended.keys() - exact)]
        for loss in (*gone, *found.losses):
            if (name := loss.table) is None:
                continue
            reason, ended = loss.what, name in found.ended
            remedy = NO_MORE_CHANGES if ended else _COPY_AGAIN if loss.past else self._remedy(loss, name)
            first, time_us = (since, certain_us) if name in found.dropped and certain_us is not None else complete
            last = Lsn(first - 1)
            parked = Parked(
                name, Cause.PUBLICATION, last, end, reason, remedy, time_us, ended=ended, renewable=loss.past
            )
            if park(self._lake, parked) or name not in self._reported:
                parked = find_parked(self._lake, name, Cause.PUBLICATION) or parked  # an earlier capture saw it first
                known = f"{parked.reason}: it is known up to {parked.lsn}; capture goes on with all other tables"
                self._report(Notice(Event.TABLE_PARKED, known))
            self._reported.add(name)

    def _remedy(self, loss: Loss, name: TableName) -> str:
        first = "Run" if loss.carried else f"Publish all of {name} in {self._name} again, and run"
        return (
            f"{first} auditlake resync: it takes a new snapshot and keeps the history. To stop following the table,"
            f" move {self._lake.history(name)} away."
        )

    def _followed(self, recorded: Membership) -> Membership:
        """Leave out tables without a history: not copied yet, or no longer followed."""
        histories = frozenset(self._lake.history_names())  # of a store one listing, no request for each table
        tables = {name: member for name, member in recorded.tables.items() if name in histories}
        return replace(recorded, tables=tables)


def _ended(
    control: psycopg.Connection[Row], recorded: Membership, found: Membership | None
) -> tuple[dict[TableName, str], frozenset[TableName]]:
    """Return the tables that have no more changes of their own, with the reason; and which of them do not exist."""
    carried = found.names if found else {}
    missing = {name: each.relation for name, each in recorded.tables.items() if each.relation not in carried}
    if not missing:
        return {}, frozenset()
    existing = find_existing(control, missing.values())
    dropped = {name: _DROPPED.format(name) for name, relation in missing.items() if relation not in existing}
    ended = dict(dropped)
    for name, relation in missing.items():
        if root := next((carried[each] for each in existing.get(relation, ()) if each in carried), None):
            ended[name] = f"table {name} is a partition of {root} now, whose history has its rows"
    return ended, frozenset(dropped)


def _in_both(first: _Comparison, second: _Comparison) -> _Comparison:
    """Return the second comparison with what the first one has found, too, or saw before it was undone."""
    lost = {loss.table for loss in first.losses} | first.ended.keys()
    losses = [loss for loss in second.losses if loss.table in lost]
    gone = {loss.table for loss in losses} | second.ended.keys()
    undone = [loss for loss in first.losses if loss.table not in gone and _is_undone(loss, first, second)]
    ended = {name: reason for name, reason in second.ended.items() if name in lost}
    return replace(second, losses=[*losses, *undone], ended=ended)


def _is_undone(loss: Loss, first: _Comparison, second: _Comparison) -> bool:
    """Return whether a table that a schema or all tables publish again is still recorded as before its loss."""
    if loss.table is None:
        return False
    member = first.recorded.tables.get(loss.table)
    return member is not None and member.entry is None and second.recorded.tables.get(loss.table) == member


def _is_ended(parked: Parked | None) -> bool:
    return parked is not None and parked.ended
