"""Read what a lake must have: the history of a table, and the positions."""

from auditlake.lake.history import HistoryTable, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.positions import Positions, read_positions
from auditlake.relation import TableName


def history_of(lake: Lake, name: TableName) -> HistoryTable:
    """Open the current version of a history."""
    table = open_history(lake, name)
    assert table is not None
    return table


def positions_of(lake: Lake) -> Positions:
    """Read the positions of a lake."""
    found = read_positions(lake)
    assert found is not None
    return found
