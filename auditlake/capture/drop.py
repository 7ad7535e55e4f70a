"""Drop: remove from the source what bootstrap created there, and nothing else. The lake stays and can still be queried.

1. Without a lake there is no record of what bootstrap created: nothing is dropped.
2. The slot is dropped only if it is the one this lake was captured from: logical, of pgoutput and this database, and
   not ahead of the lake, which means that another lake reads it.
3. The publication is dropped only if bootstrap created it (`lake.manifest`), it is still the same one by its OID, and
   no other slot of the database can be reading it. PostgreSQL does not record which publications a slot reads, so any
   other slot of pgoutput counts.
4. The DDL trigger serves every lake of the database: it is removed if there is no other slot of pgoutput, and if our
   role may remove it.
The slot goes first: it makes the server retain WAL, and without its publication it could not be read again.
"""

import psycopg

from auditlake.capture.preconditions import current_manifest
from auditlake.errors import LakeConflict, SourceUnready, WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import created_publication, require_manifest
from auditlake.lake.positions import read_positions
from auditlake.lake.records import read_recorded
from auditlake.messages import Say
from auditlake.source.connection import Row, connect, fetch
from auditlake.source.ddl_trigger import read_ddl_trigger, remove, removing_statements
from auditlake.source.publication import drop_publication, read_membership
from auditlake.source.slot import drop_slot, read_slot

_OTHER_SLOTS = """
select slot_name::text from pg_catalog.pg_replication_slots
 where plugin = 'pgoutput' and database = pg_catalog.current_database() and slot_name <> %s and not temporary
 order by slot_name
"""


def drop_source_objects(conninfo: str, lake: Lake, slot: str, publication: str, say: Say) -> None:
    """Drop the slot and the publication that bootstrap created for this lake.

    Raises LakeUnusable if there is no lake, WrongSource if it records another source or the slot is not its own,
    LakeConflict if the slot is being read, SourceUnready if another slot may read the publication: then the slot of
    this lake is dropped already.
    """
    recorded = require_manifest(lake)
    with connect(conninfo, recorded.lsn_offset) as conn:
        recorded.check_same(current_manifest(conn, slot, publication))
        _check_slot(conn, lake, slot)
        try:
            dropped = drop_slot(conn, slot)
        except psycopg.errors.ObjectInUse as exc:
            raise LakeConflict(
                f"slot {slot} is being read", "Stop the capture that reads it, then run auditlake drop again."
            ) from exc
        say(f"dropped slot {slot}" if dropped else f"slot {slot} does not exist")
        _remove_ddl_trigger(conn, slot, say)
        _drop_publication(conn, lake, slot, publication, say)


def _remove_ddl_trigger(conn: psycopg.Connection[Row], slot: str, say: Say) -> None:
    if not read_ddl_trigger(conn).exists:
        return
    by_hand = f"To remove it: {' '.join(removing_statements())}"
    if others := _other_slots(conn, slot):
        say(f"the DDL trigger stays: {_named(others)} may need it. {by_hand}")
        return
    try:
        remove(conn)
    except SourceUnready as exc:
        say(f"the DDL trigger stays: {exc.message}. {by_hand}")
        return
    say("removed the DDL trigger")


def _other_slots(conn: psycopg.Connection[Row], slot: str) -> list[str]:
    return [str(other) for (other,) in fetch(conn, _OTHER_SLOTS, slot)]


def _check_slot(conn: psycopg.Connection[Row], lake: Lake, name: str) -> None:
    slot, positions = read_slot(conn, name), read_positions(lake)
    if slot is None:
        return
    if slot.plugin != "pgoutput" or slot.database != conn.info.dbname:
        what = f"plugin {slot.plugin or 'none'}, database {slot.database or 'none'}"
        raise WrongSource(
            f"slot {name} ({what}) was not created for this lake (plugin pgoutput, database {conn.info.dbname})",
            "Nothing was dropped.",
        )
    confirmed = slot.confirmed_flush_lsn
    if positions is not None and confirmed is not None and confirmed > positions.acknowledged:
        raise WrongSource(
            f"slot {name} is at {confirmed}, this lake at {positions.acknowledged}: another lake or client reads it",
            "Nothing was dropped. If nothing else needs the slot: "
            f"select pg_drop_replication_slot('{name}'). This lake cannot use it any more.",
        )


def _drop_publication(conn: psycopg.Connection[Row], lake: Lake, slot: str, name: str, say: Say) -> None:
    found = read_membership(conn, name)
    if found is None:
        say(f"publication {name} does not exist")
        return
    by_hand = f'drop publication "{name}";'
    if not created_publication(lake):
        say(f"publication {name} stays: bootstrap did not record that it created it. To remove it: {by_hand}")
        return
    recorded = read_recorded(lake)
    if recorded is not None and recorded.publication != found.publication:
        say(f"publication {name} stays: it was created again since bootstrap created it. To remove it: {by_hand}")
        return
    if others := _other_slots(conn, slot):
        raise SourceUnready(
            f"publication {name} was not dropped: {_named(others)} may read it",
            f"If none of them does, run: {by_hand}",
        )
    drop_publication(conn, name)
    say(f"dropped publication {name}")


def _named(slots: list[str]) -> str:
    return f"slot{'s' if len(slots) > 1 else ''} {', '.join(slots)} of this database"
