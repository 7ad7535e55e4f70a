"""What a slot would send again: the transactions between its confirmed_flush and a later LSN. Moves nothing.

Authority: postgresql.org/docs/current/functions-admin.html, pg_logical_slot_peek_binary_changes;
protocol-logicalrep-message-formats.html, "Begin"
"""

import struct
from typing import NamedTuple, cast

import psycopg
from psycopg import sql

from auditlake.errors import LakeConflict
from auditlake.lsn import Lsn
from auditlake.postgres.connection import Row, fetch

_BEGIN = struct.Struct(">cqqI")
_POSTGRES_EPOCH_US = 946_684_800_000_000

_BEGINS = """
select substring(data from 1 for 21)
  from pg_catalog.pg_logical_slot_peek_binary_changes(
         %s, %s::pg_lsn, null, 'proto_version', '1', 'messages', 'true', 'publication_names', %s)
 where pg_catalog.get_byte(data, 0) = pg_catalog.ascii('B')
"""


class Committed(NamedTuple):
    """A transaction: its commit LSN, its xid, and its commit time in microseconds since 1970."""

    lsn: Lsn
    xid: int
    time_us: int


def read_resent(conn: psycopg.Connection[Row], slot: str, publication: str, upto: Lsn) -> frozenset[Committed]:
    """Read the transactions that the slot would send again, of those that commit before `upto`.

    Raises LakeConflict where somebody reads the slot.
    """
    try:
        rows = fetch(conn, _BEGINS, slot, str(upto), sql.Identifier(publication).as_string())
    except psycopg.errors.ObjectInUse as exc:
        raise LakeConflict(f"slot {slot} is in use", "Another capture reads it; stop that one first.") from exc
    found = (_committed(cast("bytes", row[0])) for row in rows)
    return frozenset(transaction for transaction in found if transaction.lsn < upto)


def _committed(begin: bytes) -> Committed:
    _, lsn, time_us, xid = _BEGIN.unpack(begin)
    return Committed(Lsn(lsn), xid, time_us + _POSTGRES_EPOCH_US)
