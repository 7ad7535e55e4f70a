"""The main slot against the lake: whether the one can go on where the other is. Reads only.

The lake records a position before it is acknowledged, so the slot is never beyond the lake. If it is, somebody else
has read from it and changes are missing; nothing but a new lake mends that.
"""

import psycopg

from auditlake.errors import SourceUnready, WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.postgres.connection import Row
from auditlake.postgres.slot import SlotState, read_slot

_NEW_LAKE = "Bootstrap a new lake with a new slot."


def see_slot(name: str, slot: SlotState | None, acknowledged: Lsn) -> None:
    """See that a slot can go on from `acknowledged`, which must have been read after it where a capture may run.

    Raises WrongSource.
    """
    if slot is None:
        raise WrongSource(f"slot {name} is gone: changes after {acknowledged} are missing", _NEW_LAKE)
    if slot.wal_status == "lost":
        raise WrongSource(f"slot {name} has lost its log: changes after {acknowledged} are missing", _NEW_LAKE)
    confirmed = slot.confirmed_flush_lsn
    if confirmed is None or confirmed > acknowledged:
        raise WrongSource(
            f"slot {name} stands at {confirmed}, this lake at {acknowledged}: changes between the two are missing",
            _NEW_LAKE,
        )


def main_slot(control: psycopg.Connection[Row], lake: Lake, name: str) -> Lsn | None:
    """See that the slot can serve this lake, and give its confirmed_flush; None where it is still to be made.

    Raises WrongSource where it is gone, is of another kind, or somebody else has read from it.
    """
    slot, positions = read_slot(control, name), read_positions(lake)
    if positions is not None:
        see_slot(name, slot, positions.acknowledged)
    if slot is None:
        return None
    database = control.info.dbname
    if (slot.plugin, slot.database) != ("pgoutput", database):
        raise WrongSource(
            f"slot {name} is of plugin {slot.plugin} in database {slot.database}, need pgoutput in {database}",
            "Choose another slot.",
        )
    if slot.confirmed_flush_lsn is None:
        raise SourceUnready(
            f"slot {name} is still being created by pid {slot.active_pid}, which waits for writing transactions",
            "Run the same command again when it has ended.",
        )
    return slot.confirmed_flush_lsn
