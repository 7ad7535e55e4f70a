"""Fsync of files, and of folders, which makes the names in them durable; objects of a store are durable already.

Authority: fsync(2)
"""

import os
from pathlib import Path

from auditlake.store.place import Place


def make_folder(place: Place) -> None:
    """Create a folder and its missing parents; their names are on the disk when this returns."""
    if not isinstance(place, Path):
        return
    missing = [place, *place.parents]
    missing = missing[: next(depth for depth, folder in enumerate(missing) if folder.is_dir())]
    place.mkdir(parents=True, exist_ok=True)
    sync(*(folder.parent for folder in reversed(missing)))


def sync(*places: Place) -> None:
    """Fsync files and folders."""
    for path in places:
        if not isinstance(path, Path):
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
