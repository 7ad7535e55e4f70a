"""Checks of a lake after a run, selected by name. No JVM.

A parked table is compared at moments up to the LSN at which it is parked. A gap hides the moments inside; the states of
a table that got a new snapshot are compared after its gap, too, but no longer follow from the changes. Tables of random
schema changes are compared by `tests.shape_oracle`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from auditlake.lake.gaps import Gap, read_gaps
from auditlake.lake.layout import Lake
from auditlake.lake.parking import read_parked
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from tests import oracle
from tests.torture import ledger as ledgers
from tests.torture.log_archive import LogArchive, Row
from tests.torture.schema import TABLES


@dataclass(frozen=True)
class Evidence:
    """A lake, its source, and the states that PostgreSQL reported at some moments.

    `tables` have a history; `parked` are those of them that must be parked at the end, and no others.
    """

    dsn: str
    lake: Lake
    moments: Sequence[oracle.Moment]
    tables: Sequence[str] = TABLES
    parked: Collection[str] = ()
    archive: LogArchive | None = None
    """What has expired of `changes` and `transactions`, if they did."""

    def changes(self) -> list[Row]:
        """Return every change that was captured, in order."""
        return oracle.changes(self.lake) if self.archive is None else self.archive.changes()

    def transactions(self) -> list[Row]:
        """Return every transaction that was captured, in order."""
        return oracle.transactions(self.lake) if self.archive is None else self.archive.transactions()

    @property
    def known(self) -> list[oracle.Moment]:
        """Return the moments without the states of tables that are not known then, or were parked before."""
        histories = oracle.fixed_histories(self.lake)
        ends = {name.table: each.lsn for name, each in read_parked(self.lake, histories).items()}
        gaps = self._gaps()

        def is_known(name: str, lsn: Lsn) -> bool:
            inside = (gap for of, gap in gaps if of == name and gap.lsn_from < lsn < gap.lsn_to)
            return lsn <= ends.get(name, lsn) and not any(inside)

        return _restricted(self.moments, is_known)

    @property
    def replayable(self) -> list[oracle.Moment]:
        """Return the known moments whose states follow from the first snapshots and the changes."""
        resynced = {table.name.table for table in oracle.fixed_histories(self.lake) if table.resynced}
        ends = {name: gap.lsn_from for name, gap in reversed(self._gaps()) if name in resynced}
        return _restricted(self.known, lambda name, lsn: lsn <= ends.get(name, lsn))

    def _gaps(self) -> list[tuple[str, Gap]]:
        return [(gap.table.table, gap) for gap in read_gaps(self.lake) if gap.table is not None]


def _restricted(moments: Sequence[oracle.Moment], is_known: Callable[[str, Lsn], bool]) -> list[oracle.Moment]:
    return [
        oracle.Moment(each.lsn, {name: rows for name, rows in each.states.items() if is_known(name, each.lsn)})
        for each in moments
    ]


def acknowledged(evidence: Evidence) -> int:
    """Check that a commit of `changes` holds whatever was acknowledged."""
    confirmed, positions = oracle.confirmed_flush(evidence.dsn), read_positions(evidence.lake)
    assert positions is not None
    assert confirmed <= positions.acknowledged, f"{confirmed} is acknowledged, {positions.acknowledged} is in the lake"
    return 1


def ordinals(evidence: Evidence) -> int:
    """Check that `changes` has every ordinal of each transaction once, and that `transactions` has the same ones."""
    changes, transactions = evidence.changes(), evidence.transactions()
    headers = {}
    for lsn, rows in groupby(changes, key=lambda row: row["lsn"]):
        of_one: list[Mapping[str, Any]] = list(rows)
        assert [row["ordinal"] for row in of_one] == list(range(len(of_one))), f"ordinals of transaction at {lsn}"
        headers[lsn] = of_one[0]["xid"], of_one[0]["time"]
    assert headers == {row["lsn"]: (row["xid"], row["time"]) for row in transactions}, "transactions and changes differ"
    return len(changes)


def log(evidence: Evidence) -> int:
    """Check that snapshots and `changes`, replayed, equal the state that PostgreSQL reported at each moment."""
    return sum(oracle.assert_log(evidence.lake, evidence.replayable, evidence.changes()))


def transactions(evidence: Evidence) -> int:
    """Check that every transaction in `changes` equals that of the ledger."""
    return ledgers.assert_changes(evidence.changes(), ledgers.read_ledger(evidence.dsn, evidence.lake))


def parked(evidence: Evidence) -> int:
    """Check that exactly the expected tables are parked, and that no history has passed its LSN."""
    histories = {table.name: table for table in oracle.fixed_histories(evidence.lake)}
    stopped = read_parked(evidence.lake, histories.values())
    resynced = {name.table for name, table in histories.items() if table.resynced}  # by a `follow` that ran long enough
    expected = (set(evidence.parked) & set(evidence.tables)) - resynced
    assert {name.table for name in stopped} == expected, f"parked are {[str(each) for each in stopped.values()]}"
    for name, each in stopped.items():
        position = histories[name].position
        assert position <= each.lsn, f"{name} is parked at {each.lsn}, its history has position {position}"
    return len(stopped)


def complete(evidence: Evidence) -> int:
    """Check that every change is folded, of a parked table every one up to its LSN; return the number of changes."""
    histories = {table.name: table for table in oracle.fixed_histories(evidence.lake)}
    ends = {name: each.lsn for name, each in read_parked(evidence.lake, histories.values()).items()}
    folded = 0
    for change in evidence.changes():
        table = histories.get(TableName(change["schema"], change["table"])) if change["table"] else None
        if table is not None and change["lsn"] <= ends.get(table.name, change["lsn"]):
            assert change["lsn"] <= table.position, f"{table.name}: {Lsn(change['lsn'])} is not folded"
            folded += 1
    return folded


def states(evidence: Evidence) -> int:
    """Check that the histories, all applied, equal the state that PostgreSQL reported at each moment."""
    applied = {table.name.table for table in oracle.fixed_histories(evidence.lake)}
    assert applied == set(evidence.tables)
    return sum(oracle.assert_histories_at(evidence.lake, evidence.known))


def periods(evidence: Evidence) -> int:
    """Check that periods are not empty and do not overlap, and that at most one version of a key is open."""
    return oracle.assert_periods(evidence.lake)


def versions(evidence: Evidence) -> int:
    """Check that the histories have exactly the versions that follow from the ledger."""
    ledger = ledgers.read_ledger(evidence.dsn, evidence.lake)
    return ledgers.assert_versions(evidence.lake, ledger, evidence.transactions())


Check = Callable[[Evidence], int]
OF_CAPTURE: tuple[Check, ...] = (acknowledged, ordinals, transactions, parked, log)
OF_APPLY: tuple[Check, ...] = (periods, parked, complete, states, versions)


def failures(checks: Sequence[Check], evidence: Evidence) -> tuple[dict[str, int], dict[str, str]]:
    """Run checks; return how much each has compared, and what failed."""
    compared, failed = {}, {}
    for check in checks:
        try:
            compared[check.__name__] = check(evidence)
        except AssertionError as exc:
            failed[check.__name__] = str(exc).partition("\n")[0]
    return compared, failed
