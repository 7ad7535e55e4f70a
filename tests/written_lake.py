"""Lakes that many tests begin with: a process writes each of them once, and copies it for every test."""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path

from auditlake.lake.layout import Lake
from auditlake.store.place import Place, Remote
from tests.s3_server import chosen_store, copy_folder


def written_once(write: Callable[[Path], Lake]) -> Callable[[Path], Lake]:
    """Return a function that copies what `write` has written, in a folder of this process, when it is called first."""

    @cache
    def written() -> Lake:
        folder = tempfile.mkdtemp(prefix="auditlake-written-")
        atexit.register(shutil.rmtree, folder)
        return write(Path(folder, "lake"))

    @wraps(write)
    def copied(root: Path) -> Lake:
        folder: Place = written().root
        return Lake(copy_folder(folder, chosen_store(root) if isinstance(folder, Remote) else root))

    return copied
