"""Rows of `changes` that expire: which they are, and what still needs them. No JVM.

They expire up to an LSN, the last one whose commit the lake knows to be older than `retention.changes`, or less far:

I1  No change of a table after its position goes: it is not folded yet, and the state of the table is made from it. A
    position never moves back, and whatever moves it (apply, or a new snapshot of the table) needs no change before it.
    Most tables have no change between their position and that LSN, so they hold nothing up.
I2  While a table is copied, nothing goes: which changes follow its snapshot is not known before it has a position.
I3  In a lake with a ledger, nothing goes that is not sealed. The leaves of what goes stay.
I4  Nothing goes while an erasure is unfinished, which looks in the changes of the row for values to erase, or while a
    legal hold covers a table of the lake: a file has the changes of all tables.

All changes of a commit expire together. Histories, `relations`, `added` and `gaps` do not depend on them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from auditlake.apply.tails import ChangesVersion, find_tails
from auditlake.delta.expired_rows import ExpiredRows, find_expired, remove_rows
from auditlake.delta.sql import read_newest, select
from auditlake.lake.erasures import unfinished
from auditlake.lake.expiries import CHANGES_NAME, ExpiredTable
from auditlake.lake.holds import HoldEvent
from auditlake.lake.layout import EXPIRED_APP
from auditlake.ledger.blocks import read_last_block
from auditlake.lsn import Lsn
from auditlake.settings.retention_rules import Period
from auditlake.temporal.knowledge import expired_upto
from auditlake.temporal.moments import Known, last_up_to
from auditlake.temporal.when import format_us

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Needed:
    """Why changes after an LSN must stay."""

    after: Lsn
    why: str


@dataclass(frozen=True, slots=True)
class ExpiringChanges:
    """The changes that expire: those up to `upto`, the new horizon; the present one is `horizon`.

    They were committed before `before_us`; there may be none. `needed` is what keeps later ones that are as old, `held`
    the hold that keeps all.
    """

    known: Known
    found: ExpiredRows
    horizon: Lsn
    upto: Lsn
    before_us: int
    needed: Needed | None
    held: HoldEvent | None

    @property
    def record(self) -> ExpiredTable:
        """Return the record of their removal."""
        return ExpiredTable(*CHANGES_NAME, self.upto, self.found.rows)

    def months(self) -> tuple[list[str], list[str]]:
        """Return the months of the commits: those of which every commit is among them, and the others."""
        days = f"select epoch_us(time) // {_DAY_US} as day, max(lsn) as last, min(lsn) as first from t group by 1"
        transactions = self.known.open_transactions()
        rows = [] if transactions is None else select(days, t=transactions).to_pylist()
        expired = {_month(row["day"]) for row in rows if row["first"] <= self.upto and row["last"] > self.horizon}
        others = {_month(row["day"]) for row in rows if row["last"] > self.upto}
        return sorted(expired - others), sorted(expired & others)

    def line(self) -> str:
        """Return the expiry in words."""
        whole, partly = self.months()
        months = ", ".join([*(f"all of {month}" for month in whole), *(f"some of {month}" for month in partly)])
        since = f"{CHANGES_NAME}: {self.found.rows:,} changes up to {self.upto}"
        return f"{since}, before {format_us(self.before_us)} ({months}; {self.found.freed_bytes:,} bytes)"

    def as_json(self) -> dict[str, object]:
        """Return the expiry as plain values."""
        whole, partly = self.months()
        return {
            "table": str(CHANGES_NAME),
            "horizon": str(self.horizon),
            "new_horizon": str(self.upto),
            "committed_before": format_us(self.before_us),
            "changes": self.found.rows,
            "bytes": self.found.freed_bytes,
            "whole_months": whole,
            "partial_months": partly,
            "held_by": None if self.held is None else self.held.name,
            "needed": None if self.needed is None else self.needed.why,
        }

    def remove(self) -> None:
        """Remove them, and move the horizon; `changes` may have got other files meanwhile."""
        remove_rows(self.found.table.place, "lsn", self.upto, EXPIRED_APP)


def find_expiring(known: Known, period: Period, holds: Sequence[HoldEvent]) -> ExpiringChanges | None:
    """Find the changes that have expired, or that only a need keeps; None if there are none."""
    before_us = period.before(known.positions.current_us)
    last = None if before_us is None else last_up_to(known, before_us)
    changes = read_newest(known.lake.changes)
    if before_us is None or last is None or changes is None:
        return None
    horizon, last = expired_upto(changes), Lsn(min(last, known.positions.watermark))
    needed = min(_needed(known, last), key=lambda each: each.after, default=None)
    upto = last if needed is None else min(last, needed.after)
    held = next((hold for hold in holds for table in known.listed if hold.covers(table)), None)
    found, old = find_expired(changes, "lsn", upto), find_expired(changes, "lsn", last).rows
    if not old:
        return None
    return ExpiringChanges(
        known, found, horizon, max(horizon, upto), before_us, needed if found.rows < old else None, held
    )


def _needed(known: Known, last: Lsn) -> Iterator[Needed]:
    """Yield what needs changes up to `last`: see I1 to I4."""
    lake = known.lake
    for name in known.copying:
        yield Needed(Lsn(0), f"{name} is being copied")
    if found := unfinished(lake):
        yield Needed(Lsn(0), f"an erasure is unfinished: {found[0].what}")
    if (block := read_last_block(lake)) is not None and block.upto.commit < last:
        yield Needed(block.upto.commit, "later ones are not sealed")
    changes = read_newest(lake.changes)
    if changes is not None:
        behind = {table: int(table.position) for table in known.listed if table.position < last}
        for tail in find_tails(lake, ChangesVersion(changes, known.positions.watermark), behind, last):
            yield Needed(tail.table.position, f"those of {tail.table.label} are not applied past its position")


def _month(day: int) -> str:
    return datetime.fromtimestamp(day * _DAY_US / 1_000_000, UTC).strftime("%Y-%m")
