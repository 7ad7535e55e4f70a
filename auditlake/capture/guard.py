"""The publication under a running capture: looked at before the first byte and now and then, compared with the record.

A loss is found at the next look, so what is missing lies between the last look that was well and this one. Noted of a
look is what the lake held by then, well behind the end of the log: a transaction that waits for a standby is in the
log already and not yet in the catalog.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import psycopg

from auditlake.errors import WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.membership import read_recorded, recorded_or_new
from auditlake.lake.runstate import read_seen, write_seen
from auditlake.lsn import Lsn
from auditlake.membership import Loss, Membership, find_losses
from auditlake.postgres.connection import Row
from auditlake.postgres.membership import find_existing, read_membership
from auditlake.postgres.server import wal_end
from auditlake.relation import TableName

_INTERVAL_S = 30.0
_NEW_LAKE = "Bootstrap a new lake with a new slot and publication; this one can still be asked."


class PublicationGuard:
    """Looks at the publication of one lake; tables that were dropped are told once, through `say`."""

    def __init__(self, lake: Lake, publication: str, say: Callable[[str], None]) -> None:
        self._lake = lake
        self._name = publication
        self._say = say
        self._told: set[TableName] = set()
        self._next_at = 0.0
        self.present: dict[TableName, int] = {}
        """OIDs of the tables that have a history and were there at the last look."""

    def look(self, control: psycopg.Connection[Row], since: Lsn) -> None:
        """See that the publication carries what it did.

        `since`, up to where the lake holds everything, stands for the last look where none is recorded. Raises
        WrongSource, with the bounds of what is missing.
        """
        found = read_membership(control, self._name)
        recorded = read_recorded(self._lake) if found is None else recorded_or_new(self._lake, found)
        recorded = self._followed(recorded or Membership(0, frozenset(), {}))
        dropped = self._dropped(control, recorded, found)
        losses = list(find_losses(self._name, recorded, found, dropped))
        if losses:
            raise self._lost(losses, min(read_seen(self._lake) or since, since), wal_end(control).lsn)
        for table in dropped - self._told:
            self._say(f"table {table} was dropped at the source: its history ends there, as it stands")
        self._told |= dropped
        self.present = {name: member.relation for name, member in recorded.tables.items() if name not in dropped}
        self._next_at = time.monotonic() + _INTERVAL_S

    @property
    def due(self) -> bool:
        """Whether the last look was half a minute ago."""
        return time.monotonic() >= self._next_at

    def note(self, since: Lsn) -> None:
        """Note a look that was well, once the slot is ours."""
        write_seen(self._lake, since)

    def _followed(self, recorded: Membership) -> Membership:
        """Leave out what has no history: it is still to be copied, or nobody wants it any more."""
        tables = {name: member for name, member in recorded.tables.items() if self._lake.history(name).exists()}
        return replace(recorded, tables=tables)

    def _dropped(
        self, control: psycopg.Connection[Row], recorded: Membership, found: Membership | None
    ) -> frozenset[TableName]:
        carried = found.tables if found else {}
        missing = {name: member.relation for name, member in recorded.tables.items() if name not in carried}
        if not missing:
            return frozenset()
        existing = find_existing(control, missing.values())
        return frozenset(name for name, relation in missing.items() if relation not in existing)

    def _lost(self, losses: list[Loss], since: Lsn, end: Lsn) -> WrongSource:
        what = "; ".join(loss.what for loss in losses)
        tables = [loss.table for loss in losses if loss.table is not None]
        if not tables:
            return WrongSource(f"{what}: changes from {since} to {end} are missing", _NEW_LAKE)
        names = ", ".join(str(table) for table in tables)
        folders = ", ".join(str(self._lake.history(table)) for table in tables)
        return WrongSource(
            f"{what}: its changes from {since} to {end} are missing",
            f"See that publication {self._name} carries {names} whole, move {folders} away, and run auditlake"
            " bootstrap: it copies what has no history. To follow it no longer, only move it away.",
        )
