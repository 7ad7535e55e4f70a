"""How far a lake is: what may be asked of it. Reads only, no JVM.

The watermark is the commit LSN of the last complete transaction in `changes`; what has been acknowledged to
PostgreSQL may be further on, because nothing for us lies between. A time can be asked for up to `current_us`: the
capture promises that every later commit gets a later `time_mono`.
"""

from dataclasses import dataclass

import pyarrow as pa

from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, CURRENT_APP, Lake
from auditlake.lake.log import open_delta, select
from auditlake.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of `changes` at one Delta version of it; all inclusive. `current_us` is microseconds since 1970."""

    delta_version: int
    watermark: Lsn
    acknowledged: Lsn
    current_us: int

    @property
    def known_lsn(self) -> Lsn:
        """The highest LSN for which the lake knows every commit; one may start exactly at `acknowledged`."""
        return Lsn(max(self.watermark, self.acknowledged - 1))


def read_positions(lake: Lake) -> Positions | None:
    """Read the positions; None where capture has never started."""
    table = open_delta(lake.changes)
    if table is None:
        return None
    watermark = table.transaction_version(CHANGES_APP)
    acknowledged = table.transaction_version(ACKNOWLEDGED_APP)
    if watermark is None or acknowledged is None:
        return None
    return Positions(table.version(), Lsn(watermark), Lsn(acknowledged), table.transaction_version(CURRENT_APP) or 0)


def read_committed(lake: Lake, since: Lsn, upto: Lsn) -> frozenset[tuple[Lsn, int, int]]:
    """Read LSN, xid and time (us since 1970) of the visible transactions with commit LSN in `[since, upto)`."""
    table, positions = open_delta(lake.transactions), read_positions(lake)
    if table is None or positions is None:
        return frozenset()
    query = f"select lsn, xid, time from transactions where lsn >= {since:d} and lsn < {upto:d}"
    rows = select(table, "transactions", query)
    columns = (rows["lsn"], rows["xid"], rows["time"].cast(pa.int64()))
    found = zip(*(column.to_pylist() for column in columns), strict=True)
    return frozenset((Lsn(lsn), xid, time_us) for lsn, xid, time_us in found if lsn <= positions.watermark)
