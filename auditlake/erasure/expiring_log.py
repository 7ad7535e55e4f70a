"""Rows of `changes` and `transactions` that expire: which they are, and what still needs them. No JVM.

Changes expire up to an LSN, the last one whose commit the lake knows to be older than `retention.changes`, or less far:

I1  No change of a table after its position goes: it is not folded yet, and the state of the table is made from it. A
    position never moves back, and whatever moves it (apply, or a new snapshot of the table) needs no change before it.
    Most tables have no change between their position and that LSN, so they hold nothing up.
I2  While a table is copied, nothing goes: which changes follow its snapshot is not known before it has a position. A
    bootstrap holds its lock from before its snapshot until its last table has a position (`copied_upto`), and a table
    without a position is one whose copy was killed.
I3  In a lake with a ledger, nothing goes that is not sealed. The leaves of what goes stay.
I4  Nothing goes while an erasure is unfinished, which looks in the changes of the row for values to erase, or while a
    legal hold covers a table of the lake: a file has the changes of all tables.

Transactions expire as far as `retention.transactions` says, but:

I5  No transaction goes before its changes, which are shown with it, so I1 to I4 hold for transactions, too.
I6  The last one that is older than all periods stays. A time means the last commit up to it, and only transactions have
    times; so every time within a period is known, and there is always a commit for the next one to be later than.

All changes of a commit expire together. Histories, `relations`, `added` and `gaps` do not depend on them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditlake.apply.tails import ChangesVersion, Schemas, find_tails
from auditlake.delta.expired_rows import ExpiredRows, find_expired, remove_rows
from auditlake.delta.sql import TableFiles, read_newest, select
from auditlake.instants import month_of
from auditlake.lake.erasures import unfinished
from auditlake.lake.expiries import CHANGES_NAME, TRANSACTIONS_NAME, ExpiredTable, expired_upto
from auditlake.lake.holds import HoldEvent
from auditlake.lake.layout import ERASED_APP, EXPIRED_APP, Lake
from auditlake.lake.positions import read_positions
from auditlake.lake.stage_lock import Stage, holder_lives
from auditlake.ledger.blocks import read_last_block
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.settings.retention_rules import RetentionPeriods
from auditlake.temporal.moments import Known, last_transaction_up_to, last_up_to
from auditlake.temporal.when import format_us


@dataclass(frozen=True, slots=True)
class Needed:
    """Why rows after an LSN must stay."""

    after: Lsn
    why: str


@dataclass(frozen=True, slots=True)
class ExpiringRows:
    """The rows of a table that expire: those up to `upto`, the new horizon; the present one is `horizon`.

    They were committed before `before_us`, and are so many `rows`, perhaps none. `needed` is what keeps later ones that
    are as old, `held` the hold that keeps all.
    """

    known: Known
    name: TableName
    found: ExpiredRows
    rows: int
    horizon: Lsn
    upto: Lsn
    before_us: int
    needed: Needed | None
    held: HoldEvent | None

    @property
    def record(self) -> ExpiredTable:
        """Return the record of their removal."""
        return ExpiredTable(*self.name, self.upto, self.rows)

    def months(self) -> tuple[list[str], list[str]]:
        """Return the months of the commits that expire: first the months without any other commit."""
        days = "select epoch_us(date_trunc('day', time)) as us, max(lsn) as last, min(lsn) as first from t group by 1"
        transactions = self.known.open_transactions()
        rows = [] if transactions is None else select(days, t=transactions).to_pylist()
        expired = {month_of(row["us"]) for row in rows if row["first"] <= self.upto and row["last"] > self.horizon}
        others = {month_of(row["us"]) for row in rows if row["last"] > self.upto}
        return sorted(expired - others), sorted(expired & others)

    def line(self) -> str:
        """Return the expiry in words."""
        what = f"{self.name}: {self.rows:,} {self.name.table} up to {self.upto}"
        return removal(what, self.before_us, self.months(), self.found.freed_bytes)

    def as_json(self) -> dict[str, object]:
        """Return the expiry as plain values."""
        whole, partly = self.months()
        return {
            "table": str(self.name),
            "horizon": str(self.horizon),
            "new_horizon": str(self.upto),
            "committed_before": format_us(self.before_us),
            "rows": self.rows,
            "bytes": self.found.freed_bytes,
            "whole_months": whole,
            "partial_months": partly,
            "held_by": None if self.held is None else self.held.name,
            "needed": None if self.needed is None else self.needed.why,
        }

    def remove(self) -> None:
        """Remove them, and move the horizon; the table may have got other files meanwhile."""
        remove_rows(self.found.table.place, "lsn", self.upto, EXPIRED_APP, ERASED_APP)


def removal(what: str, before_us: int, months: tuple[list[str], list[str]], freed_bytes: int) -> str:
    """Return in words what expires, the months that go whole and in part, and the size of the removed files."""
    whole, partly = months
    parts = [*(f"all of {month}" for month in whole), *(f"some of {month}" for month in partly)]
    return f"{what}, before {format_us(before_us)} ({', '.join(parts) or 'no month'}; {freed_bytes:,} bytes)"


@dataclass(frozen=True, slots=True)
class _Old:
    """The rows of a table that are old enough: those up to the LSN `last`, committed before `before_us`."""

    name: TableName
    table: TableFiles
    before_us: int
    last: Lsn


def copied_upto(lake: Lake) -> Lsn:
    """Return the LSN up to which no running copy needs changes; read what is known of the lake after this.

    A copy that ended before has positions, which are read then. One that has not begun will have a later snapshot than
    the watermark of now; so it does no harm that a process just about to begin may be missed.
    """
    positions = read_positions(lake)
    return Lsn(0) if positions is None or holder_lives(lake, Stage.BOOTSTRAP) is not False else positions.watermark


def find_expiring(known: Known, kept: RetentionPeriods, holds: Sequence[HoldEvent], copied: Lsn) -> list[ExpiringRows]:
    """Find changes, then transactions, that have expired or are needed; `copied` is from before `known` was read."""
    changes, transactions = read_newest(known.lake.changes), known.open_transactions()
    if changes is None or transactions is None:
        return []
    held = next((hold for hold in holds for table in known.listed if hold.covers(table)), None)
    old = _old_changes(known, changes, kept)
    of_changes = None if old is None else _found(known, old, _most_needed(known, changes, old.last, copied), held)
    gone = expired_upto(changes) if of_changes is None else of_changes.upto
    old = _old_transactions(known, transactions, kept)
    of_transactions = None if old is None else _found(known, old, Needed(gone, "their changes are kept"), held)
    return [each for each in (of_changes, of_transactions) if each is not None]


def _old_changes(known: Known, changes: TableFiles, kept: RetentionPeriods) -> _Old | None:
    before_us = kept.changes.before(known.elapsed_us)
    last = None if before_us is None else last_up_to(known, before_us)
    if before_us is None or last is None:
        return None
    return _Old(CHANGES_NAME, changes, before_us, Lsn(min(last, known.positions.watermark)))


def _old_transactions(known: Known, transactions: TableFiles, kept: RetentionPeriods) -> _Old | None:
    """Return the transactions that are older than all periods, but for the last of them (I6)."""
    now_us = known.elapsed_us
    own_us = kept.transactions.before(now_us)
    if own_us is None:
        return None
    others_us = (period.before(now_us) for period in (kept.changes, *(period for _, period in kept.versions)))
    before_us = min([own_us, *(us for us in others_us if us is not None)])
    last = last_transaction_up_to(known, before_us)
    return None if last is None else _Old(TRANSACTIONS_NAME, transactions, before_us, Lsn(last - 1))


def _found(known: Known, old: _Old, needed: Needed | None, held: HoldEvent | None) -> ExpiringRows | None:
    """Return the old rows that nothing needs; None if no row is old."""
    found = find_expired(old.table, "lsn", old.last)
    rows = old_rows = found.rows
    if not old_rows:
        return None
    if needed is not None and needed.after < old.last:
        found = find_expired(old.table, "lsn", needed.after)
        rows = found.rows
    horizon = expired_upto(old.table)
    upto = Lsn(max(horizon, found.upto))
    return ExpiringRows(
        known, old.name, found, rows, horizon, upto, old.before_us, needed if rows < old_rows else None, held
    )


def _most_needed(known: Known, changes: TableFiles, last: Lsn, copied: Lsn) -> Needed | None:
    return min(_needed(known, changes, last, copied), key=lambda each: each.after, default=None)


def _needed(known: Known, changes: TableFiles, last: Lsn, copied: Lsn) -> Iterator[Needed]:
    """Yield what needs changes up to `last`: see I1 to I4."""
    lake = known.lake
    if copied < last:
        yield Needed(copied, "auditlake bootstrap copies tables")
    for name in known.copying:
        yield Needed(Lsn(0), f"{name} is being copied")
    if found := unfinished(lake):
        yield Needed(Lsn(0), f"an erasure is unfinished: {found[0].what}")
    if (block := read_last_block(lake)) is not None and block.upto.commit < last:
        yield Needed(block.upto.commit, "later ones are not sealed")
    behind = {table: int(table.position) for table in known.listed if table.position < last}
    log, schemas = ChangesVersion(changes, known.positions.watermark), Schemas(known.versions, known.answers)
    for tail in find_tails(lake, log, behind, last, schemas):
        yield Needed(tail.table.position, f"those of {tail.table.label} are not applied past its position")
