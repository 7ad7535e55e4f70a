"""Legal holds: rows and tables that neither retention nor an erasure may remove, and who demanded that.

    holds/000000.json  {"event": "added", "name": …, "tables": PATTERN, "token": …, "until_us": …, "reason": …, …}
    holds/000001.json  {"event": "released", "name": …, …}

Each file is an event, written once under the next number, so what was held when stays on record; the ledger seals it.
A hold is in force from its addition until its release or its end. It covers the tables whose names match a pattern,
also those that come later, or one row, for which the record has a token (`lake.key_tokens`).

Whatever removes rows holds the lock of `Stage.ERASE` and reads the holds under it; `hold add` and `release` take the
same lock, so a hold never begins while rows that it covers are being removed.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass

from auditlake.instants import now_us
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.records import read_numbered, typed, write_numbered
from auditlake.relation import TableName
from auditlake.settings.mask_rules import matches_table

ADDED, RELEASED = "added", "released"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class HoldEvent:
    """The addition or the release of a hold. Without `token` it is about all rows of the tables; times in us."""

    event: str
    name: str
    tables: str
    token: str | None
    until_us: int | None
    reason: str
    by: str
    time_us: int

    def covers(self, table: HistoryTable, tokens: Collection[str] | None = None) -> bool:
        """Return whether rows of a table with these tokens, or any, are held, whatever name the table has now."""
        if not any(matches(self.tables, name) for name in table.known_as):
            return False
        return self.token is None or tokens is None or self.token in tokens


def matches(pattern: str, table: TableName) -> bool:
    """Return whether a pattern of `schema.table`, or of `table` alone, matches a name."""
    return matches_table(pattern if "." in pattern else f"*.{pattern}", table)


def read_events(lake: Lake) -> list[HoldEvent]:
    """Read all additions and releases of holds, in order; raises LakeUnusable if a record cannot be read."""
    remedy = "Restore it; it records which rows must be kept."
    return read_numbered(lake.holds, _event, remedy)


def _event(content: object) -> HoldEvent:
    event = typed(HoldEvent, content)
    if event.event not in {ADDED, RELEASED}:
        raise ValueError(f"an event is neither {ADDED} nor {RELEASED}")
    return event


def holds_in_force(lake: Lake, at_us: int | None = None) -> list[HoldEvent]:
    """Read the holds that are in force, in the order of their addition; raises LakeUnusable."""
    return in_force_at(read_events(lake), now_us() if at_us is None else at_us)


def in_force_at(events: Iterable[HoldEvent], at_us: int) -> list[HoldEvent]:
    """Return the holds that these events leave in force at a time."""
    held: dict[str, HoldEvent] = {}
    for each in events:
        if each.event == ADDED:
            held[each.name] = each
        else:
            held.pop(each.name, None)
    return [each for each in held.values() if each.until_us is None or each.until_us > at_us]


def record_event(lake: Lake, event: HoldEvent) -> None:
    """Write an event under the next number; durable when this returns. The caller holds the lock of `Stage.ERASE`.

    Raises LakeUnusable if the folder cannot be written, LakeConflict if other processes write again and again.
    """
    write_numbered(lake.holds, lambda _: asdict(event))
