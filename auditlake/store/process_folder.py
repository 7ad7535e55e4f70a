"""The folder of one process for rows that leave its memory: what DuckDB and a local Spark spill.

Spilled rows must not outlive a process that is killed: `auditlake forget` knows nothing of them. So each process has
one folder in the system's temporary folder, and removes those of processes that have ended.

1. A process holds a shared flock(2) on its folder, which the system releases however the process ends. That also keeps
   systemd-tmpfiles from removing it.
2. A process removes a folder only while it holds its exclusive lock. NFS grants none on a folder, which can only be
   opened for reading, so there the folders of killed processes stay.
3. Between the creation of a folder and its lock another process may remove it: then the creator makes another.

Only folders of this user are removed, and no link is followed: others may create names in the temporary folder.

Authority: flock(2), "NOTES"; tmpfiles.d(5), "Age"
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

_PREFIX = "auditlake-process-"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@cache
def process_folder() -> Path:
    """Return this process's folder, which only this user can read; it is removed when the process ends."""
    remove_left()
    folder, descriptor = _create()
    atexit.register(_remove_own, folder, os.getpid(), descriptor)
    return folder


def _create() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, _FLAGS)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


def _remove_own(folder: Path, pid: int, descriptor: int) -> None:
    remove_own(folder, pid)
    os.close(descriptor)


def remove_own(folder: Path, pid: int) -> None:
    """Remove a folder that the process `pid` created, unless this is a fork of it."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left() -> None:
    """Remove the folders of processes that have ended: call it after one was killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(left, _FLAGS)
        except OSError:  # removed meanwhile, a link, or another user's
            continue
        try:
            if os.fstat(descriptor).st_uid == os.getuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
        except OSError:  # of a process at work, or NFS
            pass
        finally:
            os.close(descriptor)
