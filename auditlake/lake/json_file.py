"""Small JSON files of the lake, replaced as a whole: a reader sees the old content or the new, never a partial file.

Only a file written as durable is fsynced. All other state that cannot be recreated is in the Delta tables.
"""

import json
from collections.abc import Callable
from pathlib import Path

from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.store import files
from auditlake.store.place import Place


def write_record(lake: Lake, place: Place, content: object, *, durable: bool = False) -> None:
    """Replace the file at `place` by `content`; a folder below the lake's is created if missing.

    Raises LakeUnusable if the folder cannot be written.
    """
    try:
        if isinstance(place, Path) and place.parent != lake.root:  # the root exists, or this is not a lake
            place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, content, durable=durable)
    except OSError as exc:
        raise LakeUnusable(f"{lake.root} cannot be written: {exc.strerror}", "Fix the folder.") from exc


def change_record(lake: Lake, place: Place, content: object, version: str | None) -> None:
    """Replace a durable file that was read as `version` (`store.files.read_versioned`), None if it was absent.

    On a disk, the lock of the stage that writes it keeps others out. A lease may have passed to another process.

    Raises LakeConflict if another process changed it meanwhile, LakeUnusable if the folder cannot be written.
    """
    if isinstance(place, Path):
        write_record(lake, place, content, durable=True)
        return
    try:
        files.replace_version(place, json.dumps(content, indent=2) + "\n", version)
    except FileExistsError:
        raise LakeConflict(
            f"another process changed {place}", "Another process has taken over this stage; stop this one."
        ) from None
    except OSError as exc:
        raise LakeUnusable(f"{lake.root} cannot be written: {exc.strerror}", "Fix the folder.") from exc


def replace_file(
    place: Place, content: object, *, durable: bool, before_rename: Callable[[], None] = lambda: None
) -> None:
    """Replace the file at `place` by `content`, in an existing folder.

    Raises OSError.
    """
    files.replace_file(place, json.dumps(content, indent=2) + "\n", durable=durable, before_rename=before_rename)
