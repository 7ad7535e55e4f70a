"""The main slot against the lake: whether the one can go on where the other is. Reads only.

The lake records a position before it is acknowledged, so the slot is never beyond the lake. If it is, somebody else
has read from it, or it was dropped and made again: changes are missing, and nothing but a new lake mends that. Nor can
the server's log end before the lake does: then the server was put back to an earlier state.
"""

import psycopg

from auditlake.errors import SourceUnready, WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.postgres.connection import Row
from auditlake.postgres.slot import SlotState, read_slot

_NEW_LAKE = "Bootstrap a new lake with a new slot; this one can still be asked."
_OTHER_SLOT = "Choose another slot."


def see_slot(name: str, slot: SlotState | None, acknowledged: Lsn) -> None:
    """See that a slot can go on from `acknowledged`, which must have been read after it where a capture may run.

    Raises WrongSource, with the bounds of what is missing.
    """
    if slot is None:
        raise WrongSource(f"slot {name} is gone: changes from {acknowledged} on are missing", _NEW_LAKE)
    _see_kind(name, slot)
    missing = f"changes from {acknowledged} to {slot.wal_end} are missing"
    if slot.lost:
        why = f" ({slot.invalidation})" if slot.invalidation else ""
        raise WrongSource(f"slot {name} has lost its log{why}: {missing}", _NEW_LAKE)
    confirmed = slot.confirmed_flush_lsn
    if confirmed is None or confirmed > acknowledged:
        raise WrongSource(
            f"slot {name} stands at {confirmed}, this lake at {acknowledged}: another reader took the changes between"
            " the two, or it is a new slot of that name; they are missing",
            _NEW_LAKE,
        )
    if slot.wal_end < acknowledged:
        raise WrongSource(
            f"the source's log ends at {slot.wal_end}, this lake at {acknowledged}: the source was put back to an"
            " earlier state, and the lake holds what it has forgotten between the two",
            _NEW_LAKE,
        )


def _see_kind(name: str, slot: SlotState) -> None:
    """See that a slot is one that captures read."""
    if slot.plugin != "pgoutput":
        kind = "physical" if slot.plugin is None else f"of plugin {slot.plugin}"
        raise WrongSource(f"slot {name} is {kind}, need a logical one of plugin pgoutput", _OTHER_SLOT)
    if slot.temporary:
        raise WrongSource(f"slot {name} is temporary: it goes with its session (pid {slot.active_pid})", _OTHER_SLOT)
    if slot.two_phase:
        raise WrongSource(
            f"slot {name} has two_phase, need one without: what it sends at PREPARE it does not send again at COMMIT"
            " PREPARED",
            _OTHER_SLOT,
        )
    if slot.synced and slot.confirmed_flush_lsn is None:
        raise WrongSource(f"slot {name} was not yet copied to this server when it was promoted", _NEW_LAKE)


def main_slot(control: psycopg.Connection[Row], lake: Lake, name: str) -> Lsn | None:
    """See that the slot can serve this lake, and give its confirmed_flush; None where it is still to be made.

    Raises WrongSource where it is gone, is of another kind, or somebody else has read from it.
    """
    slot, positions = read_slot(control, name), read_positions(lake)
    if positions is not None:
        see_slot(name, slot, positions.acknowledged)
    if slot is None:
        return None
    _see_kind(name, slot)
    see_database(name, slot, control.info.dbname)
    if slot.confirmed_flush_lsn is None:
        raise SourceUnready(
            f"slot {name} is still being created by pid {slot.active_pid}, which waits for writing transactions",
            "Run the same command again when it has ended.",
        )
    return slot.confirmed_flush_lsn


def see_database(name: str, slot: SlotState, database: str) -> None:
    """See that a slot decodes this database.

    Raises WrongSource.
    """
    if slot.database != database:
        raise WrongSource(f"slot {name} is of database {slot.database}, need one of {database}", _OTHER_SLOT)
