"""Capture up to now, in this process."""

import threading

from auditlake.capture.preconditions import Source
from auditlake.capture.supervisor import open_capture
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.source.connection import connect
from auditlake.source.server import wal_end


def capture(dsn: str, lake: Lake) -> None:
    """Capture everything that is committed now."""
    with connect(dsn) as conn:
        end = wal_end(conn)
    open_capture(Source(dsn, require_manifest(lake)), lake, threading.Event()).run(end)
