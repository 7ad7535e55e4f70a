"""Records of retention: up to where versions, changes and transactions were removed, how many, and when.

    expiries/000000.json  {"time_us": …, "tables": [{"schema": …, "table": …, "horizon": …, "versions": …}, …]}

Each file is one run, written once, before the first of its commits; the ledger seals it. A killed run leaves a record
that names tables whose versions are still there; the next run writes its own. So every horizon is on record before it
moves, and the records never count fewer versions than are missing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

from auditlake.delta.sql import TableFiles
from auditlake.lake.layout import EXPIRED_APP, Lake
from auditlake.lake.records import read_numbered, typed, write_numbered
from auditlake.lsn import Lsn
from auditlake.relation import TableName

CHANGES_NAME, TRANSACTIONS_NAME = TableName("auditlake", "changes"), TableName("auditlake", "transactions")
"""Stand for these tables in a record, with rows instead of versions; so they are called in SQL."""


@dataclass(frozen=True, slots=True)
class ExpiredTable:
    """The versions of one table that a run removed; `horizon` is the LSN up to which they had ended, or were made."""

    schema: str
    table: str
    horizon: int
    versions: int

    @property
    def name(self) -> TableName:
        """Return the name of the table's history."""
        return TableName(self.schema, self.table)


@dataclass(frozen=True, slots=True)
class ExpiryRun:
    """One run, at a time in microseconds since 1970."""

    time_us: int
    tables: tuple[ExpiredTable, ...]


def expired_upto(log: TableFiles | None) -> Lsn:
    """Return the LSN up to which rows of `changes` or `transactions` have expired; 0 if none has."""
    return Lsn(0 if log is None else log.transactions.get(EXPIRED_APP, 0))


def record_run(lake: Lake, run: ExpiryRun) -> None:
    """Record a run, durably; the caller holds `Stage.ERASE`. Raises LakeUnusable, LakeConflict."""
    write_numbered(lake.expiries, lambda _: asdict(run))


def read_runs(lake: Lake) -> list[ExpiryRun]:
    """Read the records of all runs, in their order; raises LakeUnusable if one cannot be read."""
    return read_numbered(lake.expiries, partial(typed, ExpiryRun), "Restore it; it records what retention removed.")


def expired_of(runs: Sequence[ExpiryRun], name: TableName) -> dict[Lsn, int]:
    """Return up to which LSNs versions of a table were removed, and how many each time."""
    found: dict[Lsn, int] = {}
    for each in (each for run in runs for each in run.tables if each.name == name):
        found[Lsn(each.horizon)] = found.get(Lsn(each.horizon), 0) + each.versions
    return found
