"""Drop: remove from the source what bootstrap created there. The lake stays and can still be asked."""

from collections.abc import Callable

import psycopg

from auditlake.capture.sameness import current_manifest
from auditlake.errors import LakeConflict
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import read_manifest
from auditlake.postgres.connection import connect
from auditlake.postgres.publication import drop_publication
from auditlake.postgres.slot import drop_slot


def drop_source_objects(conninfo: str, lake: Lake, slot: str, publication: str, say: Callable[[str], None]) -> None:
    """Drop slot, then publication: a slot without its publication could never be read again.

    Raises WrongSource where the lake records another source, LakeConflict where the slot is being read.
    """
    with connect(conninfo) as conn:
        recorded = read_manifest(lake)
        if recorded is not None:
            recorded.check_same(current_manifest(conn, slot, publication))
        try:
            dropped = drop_slot(conn, slot)
        except psycopg.errors.ObjectInUse as exc:
            raise LakeConflict(
                f"slot {slot} is being read", "Stop the capture that reads it, then drop again."
            ) from exc
        say(f"dropped slot {slot}" if dropped else f"there was no slot {slot}")
        drop_publication(conn, publication)
        say(f"dropped publication {publication}")
