"""Rows of `changes` and `transactions`, read before they expire, so that a campaign can compare all that was captured.

Only rows up to the horizon may be gone, and none of them may be there; every other row is as it was read before. Values
of rows that are erased are left out of that comparison.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from auditlake.delta.sql import read_newest
from auditlake.lake.expiries import expired_upto
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.store.place import Place
from tests import oracle
from tests.random_ddl import ERASED

Row = dict[str, Any]
Log = dict[tuple[int, ...], Row]
"""Rows by LSN, those of `changes` by LSN and ordinal."""
_ERASABLE = frozenset({"op", "old", "new", "unchanged", "content", "context"})


@dataclass
class LogArchive:
    """The rows of one lake that were visible at some time, by their place in the log."""

    lake: Lake
    _changes: Log = field(default_factory=dict)
    _transactions: Log = field(default_factory=dict)

    def read_current(self) -> int | None:
        """Read what is there now; return the time, in microseconds, up to which every commit is in the archive.

        None before anything was captured.
        """
        positions = read_positions(self.lake)
        if positions is None:
            return None
        self.changes()
        self.transactions()
        return positions.current_us

    def changes(self) -> list[Row]:
        """Return every change that was ever visible, in order; AssertionError if one is lost, there again or other."""
        found: Log = {(row["lsn"], row["ordinal"]): row for row in oracle.changes(self.lake)}
        return _merged(self._changes, found, self._horizon(self.lake.changes), _is_erasable)

    def transactions(self) -> list[Row]:
        """Return every transaction that was ever visible; AssertionError as `changes`."""
        found: Log = {(row["lsn"],): row for row in oracle.transactions(self.lake)}
        return _merged(self._transactions, found, self._horizon(self.lake.transactions), lambda _: True)

    def horizons(self) -> dict[str, int]:
        """Return the horizons of both logs."""
        return {log.name: self._horizon(log) for log in (self.lake.changes, self.lake.transactions)}

    @staticmethod
    def _horizon(log: Place) -> int:
        return expired_upto(read_newest(log))


def _is_erasable(row: Mapping[str, Any]) -> bool:
    return bool(row["schema"] == ERASED or row["op"] == "message")


def _merged(
    archive: Log,
    found: Log,
    horizon: int,
    is_erasable: Callable[[Row], bool],
) -> list[Row]:
    """Add the rows that were found to the archive, and return it in order."""
    expired = [place for place in found if place[0] <= horizon]
    assert not expired, f"{len(expired)} rows up to the horizon {horizon} are there, such as {expired[0]}"
    lost = [place for place in archive if place[0] > horizon and place not in found]
    assert not lost, f"{len(lost)} rows are gone that had not expired, such as {lost[0]}"
    for place, row in found.items():
        before = archive.setdefault(place, row)
        ignored = _ERASABLE if is_erasable(before) else frozenset[str]()
        differs = [name for name in row if name not in ignored and row[name] != before[name]]
        assert not differs, f"{', '.join(differs)} of {place} changed"
    return [archive[place] for place in sorted(archive)]
