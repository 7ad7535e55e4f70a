"""Copy files between two places, each on a disk or in a store: one gets its name when it is complete and durable."""

import os
import shutil
import uuid
from pathlib import Path

from auditlake.store import objects
from auditlake.store.files import UNFINISHED, list_written, remove_files, sync
from auditlake.store.place import Place

_CHUNK_BYTES = 8 << 20


def copy_file(source: Place, target: Place) -> int:
    """Copy a file into an existing folder; return its size in bytes.

    Raises FileNotFoundError if the source does not exist, any other OSError if one of them cannot be read or written.
    """
    with source.open("rb") as reading:
        if not isinstance(target, Path):
            upload = objects.Upload(target.session, target.bucket, target.key)
            shutil.copyfileobj(reading, upload, _CHUNK_BYTES)
            upload.finish()
            return upload.tell()
        unfinished = target.with_name(f".{uuid.uuid4()}{UNFINISHED}")
        try:
            with unfinished.open("wb") as writing:
                shutil.copyfileobj(reading, writing, _CHUNK_BYTES)
                writing.flush()
                os.fsync(writing.fileno())
                size_bytes = writing.tell()
            unfinished.rename(target)
        finally:
            unfinished.unlink(missing_ok=True)
    sync(target.parent)
    return size_bytes


def existing_files(folder: Place) -> set[str]:
    """List the files below a folder that copies go to, and delete what killed copies left; one process at a time."""
    names = {name for name, _ in list_written(folder)}
    unfinished = {name for name in names if name.endswith(UNFINISHED)}
    remove_files([folder / name for name in unfinished])
    return names - unfinished
