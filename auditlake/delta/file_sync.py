"""Fsync of files, and of folders, which makes the names in them durable. Authority: fsync(2)."""

import os
from pathlib import Path


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents; their names are on the disk when this returns."""
    missing = [path, *path.parents]
    missing = missing[: next(depth for depth, folder in enumerate(missing) if folder.is_dir())]
    path.mkdir(parents=True, exist_ok=True)
    sync(*(folder.parent for folder in reversed(missing)))


def sync(*paths: Path) -> None:
    """Fsync files and folders."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
