"""The folder of one process for rows that leave its memory: what DuckDB and a local Spark spill.

A process that is killed cannot remove what it spilled, and rows of a table must not outlive it: `auditlake forget`
knows nothing of them. So each process has one folder in the system's temporary folder, and the next one that needs a
folder removes those of processes that have ended.

1. A process holds an flock(2) on the file `lock` in its folder; the system releases it however the process ends. (NFS
   locks no folder that is open for reading.)
2. Who removes a folder holds its lock, so it never removes that of a process at work. A folder without the file is not
   locked yet, and stays.
3. Between the creation of the file and its lock another process may remove the folder. So the creator looks for it once
   it has the lock, and creates another if it is gone.

Only folders of this user are removed, and no link is followed: others may create names in the temporary folder.

Authority: flock(2), "NOTES"
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

_PREFIX = "auditlake-process-"
_LOCK = "lock"
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@cache
def process_folder() -> Path:
    """Return this process's folder, which only this user can read; it is removed when the process ends."""
    _remove_left()
    folder, descriptor = _create()
    atexit.register(_remove_own, folder, os.getpid(), descriptor)
    return folder


def _create() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        descriptor = os.open(folder / _LOCK, _FLAGS | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return folder, descriptor
        os.close(descriptor)


def _remove_own(folder: Path, pid: int, descriptor: int) -> None:
    """Remove the folder, unless this is a fork of the process that created it."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _remove_left() -> None:
    """Remove the folders of processes that have ended."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if left.lstat().st_uid != os.getuid() or left.is_symlink():
                continue
            descriptor = os.open(left / _LOCK, _FLAGS)
        except (FileNotFoundError, NotADirectoryError):  # removed meanwhile, not locked yet, or no folder of ours
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except BlockingIOError:  # of a process at work
            pass
        finally:
            os.close(descriptor)
