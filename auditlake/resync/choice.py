"""Choice of the tables that get a new snapshot. No JVM."""

from collections.abc import Sequence

from auditlake.errors import BadUsage
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.parking import read_parked
from auditlake.relation import TableName
from auditlake.resync.hold import held_tables
from auditlake.temporal.table_lookup import find_table


def choose_tables(
    lake: Lake, histories: Sequence[HistoryTable], given: Sequence[str], *, every: bool, anew: bool = False
) -> list[TableName]:
    """Choose the tables named; with `every` all, or those that an earlier run did not finish; else the parked ones.

    With `anew`, the stream has to begin again, for all tables. Tables that were dropped at the source are left out
    unless they are named.

    Raises BadUsage.
    """
    if given and every:
        raise BadUsage("--table and --all exclude each other", "Use one of them, or neither.")
    if given:
        names = [table.name for table in histories]
        return sorted({find_table(text.split("."), names) for text in given})
    parked = read_parked(lake, histories)
    ended = {name for name, record in parked.items() if record.ended}
    if not anew and (unfinished := held_tables(lake, histories)):
        return unfinished
    chosen = [table.name for table in histories] if every else list(parked)
    return sorted(name for name in chosen if name not in ended)
