"""Checkpoints of a Delta table's log: write one, delete the log before one, set aside one that cannot be read.

Order of effects, so that the log can be read after a crash or a power failure at any point:
1. write the checkpoint and fsync it;
2. delete entries and checkpoints of expired versions in order, but none from the second newest checkpoint on. So if an
   entry was deleted, the one before is gone, too, by which `log_writer.put_commit` recognizes a version that was used.

So there is always an older checkpoint with all entries since then. If the newest cannot be read, `set_aside_unreadable`
takes it out of the log, and every reader (also deltalake and Spark) uses the older one.

A version expires `kept_for_s` after the next version was committed.

Authority: Delta's PROTOCOL.md, "Checkpoints", "Last Checkpoint File", "Metadata Cleanup"
"""

import re
import time
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.delta.log_entry import entry_name
from auditlake.delta.log_reader import checkpoint_file, checkpoints
from auditlake.delta.table import open_table
from auditlake.errors import LakeUnusable
from auditlake.store.files import UNFINISHED, local_path, parquet, sync
from auditlake.store.place import Place

KEPT_FOR = "interval 6 hours"
KEPT_FOR_S = 6 * 3600.0
"""Retention of replaced files and versions: longer than any query runs."""

_OF_VERSION = re.compile(r"\.?(\d{20})\.(json|checkpoint\.parquet|crc)(\.crc)?")
_HINT = "_last_checkpoint"


def checkpoint(table: Place, kept_for_s: float = KEPT_FOR_S) -> None:
    """Write a checkpoint of the current version, then delete expired versions before an older checkpoint."""
    delta = open_table(table)
    log = table / "_delta_log"
    delta.create_checkpoint()
    sync(checkpoint_file(log, delta.version()), log)
    _delete_expired(log, time.time() - kept_for_s)


def _delete_expired(log: Place, before_s: float) -> None:
    for version in checkpoints(log)[1:]:
        if _expired(log, version, before_s) and is_readable(checkpoint_file(log, version)):
            sync(checkpoint_file(log, version), log)  # Spark writes checkpoints too, without fsync
            for file in sorted(_files_before(log, version), key=lambda file: file.name.lstrip(".")):
                file.unlink(missing_ok=True)
            break
    for file in log.glob(f".*{UNFINISHED}"):
        if _older(file, before_s):
            file.unlink(missing_ok=True)


def _expired(log: Place, version: int, before_s: float) -> bool:
    """Return whether all versions before this one are expired: its own entry is old enough, or deleted."""
    entry = log / entry_name(version)
    return _older(entry, before_s) if entry.exists() else True


def _older(file: Place, before_s: float) -> bool:
    try:
        return file.stat().st_mtime < before_s
    except FileNotFoundError:
        return False


def _files_before(log: Place, version: int) -> Iterator[Place]:
    """List entries, checkpoints and checksums of older versions, also checksums whose entry is deleted."""
    for file in log.iterdir():
        match = _OF_VERSION.fullmatch(file.name)
        if match and int(match[1]) < version:
            yield file


def is_readable(file: Place) -> bool:
    """Return whether a checkpoint is a complete Parquet file."""
    try:
        pq.ParquetFile(parquet(file)).read()
    except (pa.ArrowException, OSError):
        return False
    return True


def set_aside_unreadable(table: Place) -> bool:
    """Rename checkpoints that cannot be read, so that no reader uses them; return False if there are none.

    An object store has no partial objects, so there nothing is set aside.

    Raises LakeUnusable if the folder cannot be written.
    """
    log = local_path(table / "_delta_log")
    if log is None or not log.is_dir():
        return False
    versions = checkpoints(log)
    files = (checkpoint_file(log, version) for version in versions)
    broken = [file for file in files if not is_readable(file)]
    try:
        for file in broken:
            with suppress(FileNotFoundError):  # another process was faster
                file.rename(file.with_name(f".{file.name}.unreadable"))
        dangling = (log / _HINT).exists() and len(broken) == len(versions)
        if broken or dangling:
            (log / _HINT).unlink(missing_ok=True)
            sync(log)
    except OSError as exc:
        raise LakeUnusable(
            f"a checkpoint of {table} cannot be read, and cannot be set aside: {exc.strerror}",
            "Run auditlake status as the user that writes the lake, then try again.",
        ) from exc
    return bool(broken or dangling)
