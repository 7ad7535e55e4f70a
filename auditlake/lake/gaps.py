"""The `gaps` table: LSN ranges in which a table's changes are known to be missing. Reads only, no JVM.

In a gap (from, to) the state at `lsn_from` is known, the state at `lsn_to` is known again, and every state in between
is unknown. A gap without a table applies to all tables.
"""

from dataclasses import dataclass

from auditlake.delta.append_table import open_delta, select
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import TableName


@dataclass(frozen=True, slots=True)
class Gap:
    """Changes in (`lsn_from`, `lsn_to`) are missing, of all tables if `table` is None."""

    table: TableName | None
    lsn_from: Lsn
    lsn_to: Lsn
    reason: str

    def meets(self, name: TableName, first: Lsn, last: Lsn) -> bool:
        """Return whether a state of the table in [`first`, `last`] is unknown."""
        return self.table in {None, name} and self.lsn_from < last and first < self.lsn_to


def read_gaps(lake: Lake) -> tuple[Gap, ...]:
    """Read all gaps, ordered by `lsn_from`."""
    table = open_delta(lake.gaps)
    if table is None:
        return ()
    query = 'select "schema", "table", lsn_from, lsn_to, reason from gaps order by lsn_from'
    rows = select(table, "gaps", query).to_pylist()
    return tuple(Gap(_table(row), Lsn(row["lsn_from"]), Lsn(row["lsn_to"]), row["reason"]) for row in rows)


def _table(row: dict[str, str | None]) -> TableName | None:
    schema, table = row["schema"], row["table"]
    return None if schema is None or table is None else TableName(schema, table)
