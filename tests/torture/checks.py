"""What must hold of a lake when the dust has settled: each check by its name. No JVM but where it says so."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from auditlake.lake.history import list_histories
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from tests import oracle
from tests.torture import ledger as ledgers
from tests.torture.schema import TABLES


@dataclass(frozen=True)
class Evidence:
    """What is compared with the lake: where PostgreSQL is, and what it said at some moments."""

    dsn: str
    lake: Lake
    moments: Sequence[oracle.Moment]
    tables: Sequence[str] = TABLES


def acknowledged(evidence: Evidence) -> int:
    """Nothing was acknowledged that is not in a commit of `changes`."""
    confirmed, positions = oracle.confirmed_flush(evidence.dsn), read_positions(evidence.lake)
    assert positions is not None
    assert confirmed <= positions.acknowledged, f"{confirmed} is acknowledged, {positions.acknowledged} is in the lake"
    return 1


def places(evidence: Evidence) -> int:
    """`changes` has each place of each transaction once, `transactions` each transaction, and they agree."""
    changes, transactions = oracle.changes(evidence.lake), oracle.transactions(evidence.lake)
    found = {}
    for lsn, rows in groupby(changes, key=lambda row: row["lsn"]):
        of_one: list[Mapping[str, Any]] = list(rows)
        assert [row["ordinal"] for row in of_one] == list(range(len(of_one))), f"places of transaction at {lsn}"
        found[lsn] = of_one[0]["xid"], of_one[0]["time"]
    assert found == {row["lsn"]: (row["xid"], row["time"]) for row in transactions}, "transactions and changes differ"
    return len(changes)


def log(evidence: Evidence) -> int:
    """Snapshots and `changes` lead to what PostgreSQL said at each moment."""
    return sum(oracle.assert_log(evidence.lake, evidence.moments))


def transactions(evidence: Evidence) -> int:
    """Every transaction of `changes` is what the ledger has of it."""
    return ledgers.assert_changes(evidence.lake, ledgers.read_ledger(evidence.dsn, evidence.lake))


def states(evidence: Evidence) -> int:
    """Histories, all applied, hold what PostgreSQL said at each moment."""
    applied = {table.name.table for table in list_histories(evidence.lake)}
    assert applied == set(evidence.tables)
    return sum(oracle.assert_histories_at(evidence.lake, evidence.moments))


def periods(evidence: Evidence) -> int:
    """Periods are not empty, do not overlap, and at most one of a key is open."""
    return oracle.assert_periods(evidence.lake)


def versions(evidence: Evidence) -> int:
    """Histories have exactly the versions that the ledger leads to."""
    return ledgers.assert_versions(evidence.lake, ledgers.read_ledger(evidence.dsn, evidence.lake))


Check = Callable[[Evidence], int]
OF_CAPTURE: tuple[Check, ...] = (acknowledged, places, transactions, log)
OF_APPLY: tuple[Check, ...] = (periods, states, versions)


def failures(checks: Sequence[Check], evidence: Evidence) -> tuple[dict[str, int], dict[str, str]]:
    """Run checks; give how much each has compared, and what failed."""
    compared, failed = {}, {}
    for check in checks:
        try:
            compared[check.__name__] = check(evidence)
        except AssertionError as exc:
            failed[check.__name__] = str(exc).partition("\n")[0]
    return compared, failed
