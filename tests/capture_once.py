"""Capture up to now, in this process."""

import threading

from auditlake.capture.preconditions import CaptureSource
from auditlake.capture.supervisor import open_capture
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.source.connection import connect
from auditlake.source.server import wal_end


def capture(dsn: str, lake: Lake) -> None:
    """Capture everything that is committed now."""
    manifest = require_manifest(lake)
    with connect(dsn, manifest.lsn_offset) as conn:
        end = wal_end(conn)
    open_capture(CaptureSource(dsn, manifest), lake, threading.Event()).run(end)
