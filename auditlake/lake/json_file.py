"""Small JSON files of the lake, written by rename: a reader sees the old content or the new, never a partial file.

Only a file written as durable is fsynced. All other state that cannot be recreated is in the Delta tables.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from auditlake.delta.file_sync import sync
from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake


def unfinished_file(path: Path) -> Path:
    """Return the temporary path of a file while it is written; a killed process may leave it."""
    return path.with_suffix(".partial")


def write_record(lake: Lake, path: Path, content: object, *, durable: bool = False) -> None:
    """Replace the file at `path` by `content`; a folder below the lake's is created if missing.

    Raises LakeUnusable if the folder cannot be written.
    """
    try:
        if path.parent != lake.root:  # the root exists, or this is not a lake
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content, durable=durable)
    except OSError as exc:
        raise LakeUnusable(f"{lake.root} cannot be written: {exc.strerror}", "Fix the folder.") from exc


def replace_file(
    path: Path, content: object, *, durable: bool, before_rename: Callable[[], None] = lambda: None
) -> None:
    """Replace the file at `path` by `content`, in an existing folder.

    Raises OSError.
    """
    unfinished = unfinished_file(path)
    with unfinished.open("w") as file:
        file.write(json.dumps(content, indent=2) + "\n")
        if durable:
            file.flush()
            os.fsync(file.fileno())
    before_rename()
    unfinished.rename(path)
    if durable:
        sync(path.parent)
