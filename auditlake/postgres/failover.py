"""Failover: whether a slot would survive the promotion of a standby. Reads only.

Authority: postgresql.org/docs/current/logicaldecoding-explanation.html, "Replication Slot Synchronization";
runtime-config-replication.html, synchronized_standby_slots
"""

from typing import cast

import psycopg

from auditlake.postgres.connection import Row, fetch_one
from auditlake.postgres.slot import read_slot

# A standby copies slots only where it reads through a physical slot of its own.
_STANDBYS = """
select coalesce(pg_catalog.current_setting('synchronized_standby_slots', true), ''),
       array(select slot_name::text from pg_catalog.pg_replication_slots where slot_type = 'physical' order by 1)
"""


def failover_remarks(conn: psycopg.Connection[Row], slot: str, *, wanted: bool) -> list[str]:
    """Say what stands between a slot and a failover without a gap; nothing where there is no standby."""
    setting, standbys = cast("tuple[str, list[str]]", fetch_one(conn, _STANDBYS))
    state = read_slot(conn, slot)
    if not standbys:
        return []
    if conn.info.server_version < _FAILOVER_SINCE:
        return [f"a standby has no copy of slot {slot} before version 17: after a promotion it is gone"]
    remarks = []
    if state is not None and not state.failover:
        mend = "auditlake bootstrap makes it one" if wanted else "the setting failover is off"
        remarks.append(f"slot {slot} is no failover slot, a promoted standby will not have it: {mend}")
    if not setting:
        remarks.append(
            "synchronized_standby_slots is empty, so a lake may be ahead of a promoted standby and be refused there:"
            f" set it to the slots of the standbys that may be promoted ({', '.join(standbys)})"
        )
    return remarks


_FAILOVER_SINCE = 170000
