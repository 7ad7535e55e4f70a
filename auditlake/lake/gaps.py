"""The `gaps` table: LSN ranges in which a table's changes are known to be missing. No JVM.

In a gap (from, to) the state at `lsn_from` is known, the state at `lsn_to` is known again, and every state in between
is unknown: the history still shows the one at `lsn_from`. The same holds for the times `from_us` and `to_us`, because a
moment without a commit may be inside a gap, too. A gap without a table applies to all tables.

A gap is recorded before the commit that ends it. If a process is killed in between, the next snapshot records a longer
one, and the first is part of it. `resync` writes here, and capture for ranges in which a table's shape is uncertain;
the later of two commits is retried.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from auditlake.delta.append_table import AppendLog
from auditlake.delta.small_tables import read_small_table
from auditlake.errors import LakeConflict
from auditlake.instants import now_us
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.store.attempts import attempts

UNKNOWN_SHAPE = "its shape in between is not known"
"""Begins the reason of a gap in which no change of a row is missing."""
_TIME = pa.timestamp("us", tz="UTC")
_ATTEMPTS = 10
GAPS_SCHEMA = pa.schema(
    [
        ("schema", pa.string()),
        ("table", pa.string()),
        ("lsn_from", pa.int64()),
        ("lsn_to", pa.int64()),
        ("reason", pa.string()),
        ("time", _TIME),
        ("time_from", _TIME),
        ("time_to", _TIME),
    ]
)


@dataclass(frozen=True, slots=True)
class Gap:
    """Changes in (`lsn_from`, `lsn_to`) are missing, of all tables if `table` is None.

    `from_us` is the last known moment before, None if it is not known better than by `lsn_from`; `to_us` the first one
    after. Both are in microseconds since 1970.
    """

    table: TableName | None
    lsn_from: Lsn
    lsn_to: Lsn
    reason: str
    from_us: int | None = None
    to_us: int | None = None

    @property
    def lacks_changes(self) -> bool:
        """Return whether changes of rows are missing, and not only the moment at which the shape changed."""
        return not self.reason.startswith(UNKNOWN_SHAPE)

    def is_of(self, name: TableName) -> bool:
        """Return whether changes of the table are missing."""
        return self.table in {None, name}


def read_gaps(lake: Lake) -> tuple[Gap, ...]:
    """Read all gaps, ordered by `lsn_from`."""
    rows = read_small_table(lake.session, lake.gaps, GAPS_SCHEMA)
    times = {name: rows[name].cast(pa.int64()) for name in ("time_from", "time_to")}
    ordered = rows.drop_columns(["time", *times]).append_column("from_us", times["time_from"])
    ordered = ordered.append_column("to_us", times["time_to"]).sort_by(
        [("lsn_from", "ascending"), ("lsn_to", "ascending")]
    )
    return tuple(
        Gap(_table(row), Lsn(row["lsn_from"]), Lsn(row["lsn_to"]), row["reason"], row["from_us"], row["to_us"])
        for row in ordered.to_pylist()
    )


def record_gaps(lake: Lake, gaps: Iterable[Gap]) -> None:
    """Record gaps that are not recorded yet; raises LakeUnusable, or LakeConflict after too many attempts."""
    wanted = tuple(gaps)
    for _ in attempts(_ATTEMPTS, str(lake.gaps), "Run this again."):
        known = set(read_gaps(lake))
        rows = [_row(gap) for gap in wanted if gap not in known]
        if not rows:
            return
        with suppress(LakeConflict):
            AppendLog(lake.gaps, GAPS_SCHEMA).append(pa.RecordBatch.from_pylist(rows, schema=GAPS_SCHEMA), {})
            return


def _row(gap: Gap) -> dict[str, object]:
    return {
        "schema": None if gap.table is None else gap.table.schema,
        "table": None if gap.table is None else gap.table.table,
        "lsn_from": gap.lsn_from,
        "lsn_to": gap.lsn_to,
        "reason": gap.reason,
        "time": now_us(),
        "time_from": gap.from_us,
        "time_to": gap.to_us,
    }


def _table(row: dict[str, str | None]) -> TableName | None:
    schema, table = row["schema"], row["table"]
    return None if schema is None or table is None else TableName(schema, table)
