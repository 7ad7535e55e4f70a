"""Capture up to now, in this process."""

import threading

from auditlake.capture.capture import Capture
from auditlake.capture.opening import Source
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.postgres.connection import connect
from auditlake.postgres.server import wal_end


def capture(dsn: str, lake: Lake) -> None:
    """Capture everything that is committed now."""
    with connect(dsn) as conn:
        end = wal_end(conn)
    Capture(Source(dsn, require_manifest(lake)), lake, threading.Event()).run(end)
