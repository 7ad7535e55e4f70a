"""Transactions in a lake, to compare with those that its source would send again. Reads only, no JVM."""

import pyarrow as pa

from auditlake.delta.append_table import open_delta, select
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn


def read_committed(lake: Lake, since: Lsn, upto: Lsn) -> frozenset[tuple[Lsn, int, int]]:
    """Read LSN, xid and time (us since 1970) of the visible transactions with commit LSN in `[since, upto)`."""
    table, positions = open_delta(lake.transactions), read_positions(lake)
    if table is None or positions is None:
        return frozenset()
    query = f"select lsn, xid, time from transactions where lsn >= {since:d} and lsn < {upto:d}"
    rows = select(table, "transactions", query)
    columns = (rows["lsn"], rows["xid"], rows["time"].cast(pa.int64()))
    transactions = zip(*(column.to_pylist() for column in columns), strict=True)
    return frozenset((Lsn(lsn), xid, time_us) for lsn, xid, time_us in transactions if lsn <= positions.watermark)
