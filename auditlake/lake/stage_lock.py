"""Stage locks: one process per stage and lake.

A stage orders its own effects only: two bootstraps would delete each other's files. So each stage takes an exclusive
lock before its first effect. `follow` takes those of capture and apply; `maintain` may run beside it, because its
commits cannot conflict unnoticed (`lake/compaction`, `spark/log_store`).

1. The lock is flock(2) on `locks/<stage>.lock` in the lake. The operating system releases it when the process ends,
   however it ends. The descriptor is closed on exec, so workers and JVM do not inherit the lock: it is the
   Python process that orders effects. A JVM that outlives it may still make one commit, which is safe
   (`spark/log_store`, I1).
2. The holder removes its file before it releases the lock, and the folders that were created for it if they are still
   empty: a command that is refused leaves nothing. A file without a lock was left by a process that was killed.
   Whoever locks a file that was removed meanwhile has locked nothing, and begins again.
3. The file identifies the process that holds the lock, for messages, and for who must know whether it lives
   (`holder_lives`); who gets the lock does not depend on it.
4. A process may take a lock that it holds already.
5. In an object store the lock is a lease (`lake/lease`).

Files of a lake hold rows, and are for owner and group only. Every writer to a lake holds a lock, so the
process sets its umask accordingly while it holds one; workers and JVM that it starts meanwhile inherit it.

Authority: flock(2), "NOTES"; umask(2)
"""

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.lease import Lease, Taken, lives, read_holder, this_process
from auditlake.store.failures import is_full, remedy_of
from auditlake.store.files import local_path, read_file
from auditlake.store.place import Place, by_requests

FOLDER = "locks"
_UMASK = 0o027
_FLAGS = os.O_RDWR | os.O_CREAT
_ATTEMPTS = 100
_NOT_WRITABLE = "Make the folder writable for auditlake, or use another lake."


class Stage(StrEnum):
    """A stage that only one process at a time may run on a lake."""

    BOOTSTRAP = "bootstrap"
    CAPTURE = "capture"
    APPLY = "apply"
    MAINTAIN = "maintain"
    RESYNC = "resync"
    SEAL = "seal"
    ERASE = "erase"
    """Removal of rows before their time, and what forbids it: retention, erasure, holds."""
    BACKUP = "backup"
    """On a folder of backups, not on a lake."""


class Lock(Protocol):
    """A lock that this process holds."""

    def release(self) -> None:
        """Let another process take it at once."""


@dataclass(slots=True)
class _Held:
    lock: Lock
    times: int = 1


_held: dict[Place, _Held] = {}
_masked: list[int] = []
"""The umask in force before, once for each hold."""
_mutex = threading.Lock()


@contextmanager
def hold(lake: Lake, command: str, *stages: Stage) -> Iterator[None]:
    """Hold the locks of stages for the user's `command`; raises LakeConflict, naming a holder, LakeUnusable."""
    with _restricted_umask(), ExitStack() as held:
        held.callback(_remove_empty, _missing_folders(lake))
        for stage in stages:
            place = lock_of(lake, stage)
            try:
                _take(place, stage, command)
            except OSError as exc:
                raise _unusable(place, exc) from exc
            held.callback(_release, place)
        yield


def lock_of(lake: Lake, stage: Stage) -> Path:
    """Return the file of a lock, or the object of a lease."""
    return lake.root / FOLDER / f"{stage}.lock"


def _missing_folders(lake: Lake) -> list[Path]:
    """Return the folder of the locks, and its parents that do not exist yet, the innermost first."""
    folder = local_path(lake.root / FOLDER)
    if folder is None:
        return []
    try:
        return [folder, *(parent for parent in folder.parents if not parent.exists())]
    except OSError as exc:
        raise _unusable(lake.root, exc) from exc


def _remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):  # one is in use, by this lake or by another process
        for folder in folders:
            folder.rmdir()


def _unusable(path: Place, exc: OSError) -> LakeUnusable:
    hint = remedy_of(exc) if is_full(exc) else _NOT_WRITABLE
    return LakeUnusable(f"{path} cannot be locked: {exc.strerror}", hint)


@contextmanager
def _restricted_umask() -> Iterator[None]:
    with _mutex:
        if not _masked:
            before = os.umask(_UMASK)
            os.umask(before | _UMASK)
            _masked.append(before)
        else:
            _masked.append(_masked[-1])
    try:
        yield
    finally:
        with _mutex:
            before = _masked.pop()
            if not _masked:
                os.umask(before)


def _take(place: Place, stage: Stage, command: str) -> None:
    with _mutex:
        if place in _held:
            _held[place].times += 1
            return
        file = local_path(place)
        holder = {"command": command, "since": datetime.now(UTC).isoformat(timespec="seconds")}
        try:
            _held[place] = _Held(Lease(place, holder) if file is None else FileLock(file, holder))
        except Taken as exc:
            raise _conflict(place, stage, exc.holder) from None


class FileLock:
    """A locked file of a lake on a disk."""

    def __init__(self, path: Path, holder: Mapping[str, Any]) -> None:
        """Lock the file, which is created if it is absent; raises Taken, OSError."""
        self._path = path
        self._descriptor = _locked(path)
        try:
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, json.dumps({**this_process(), **holder}).encode())
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Remove the file, then let another process lock it."""
        with suppress(OSError):  # a file that stays does no harm
            self._path.unlink()
        os.close(self._descriptor)


def _written(path: Path) -> Mapping[str, Any]:
    """Read the holder from its file; nothing if it has not written it yet, or just ended."""
    try:
        return dict(json.loads(read_file(path)))
    except (OSError, ValueError):
        return {}


def _locked(path: Path) -> int:
    """Lock the file; raises Taken if another process has it."""
    while True:
        descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise Taken(_written(path)) from None
        except OSError:
            os.close(descriptor)
            raise
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _opened(path: Path) -> int:
    """Open the file, again if another process removed the empty folder meanwhile (mkdir may call that existing)."""
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError, FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, _FLAGS, 0o640)
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, _FLAGS, 0o640)


def _release(place: Place) -> None:
    with _mutex:
        held = _held[place]
        held.times -= 1
        if held.times:
            return
        del _held[place]
        held.lock.release()


def _conflict(place: Place, stage: Stage, holder: Mapping[str, Any]) -> LakeConflict:
    who, stop = "another process", "it"
    with suppress(KeyError):
        who = f"process {holder['pid']} on {holder['host']} (auditlake {holder['command']}, since {holder['since']})"
        stop = f"process {holder['pid']}"
    return LakeConflict(
        f"{who} holds the lock of {stage} on {place.parent.parent}",
        f"Only one process may do this on a lake. Wait until {stop} ends, or stop it; then run this again.",
    )


def holder_lives(lake: Lake, stage: Stage) -> bool | None:
    """Return whether a process holds a lock; None if that cannot be known from here, as of another machine's.

    It takes no lock, which would refuse a process that starts at this moment, so it may miss one that has just begun.
    """
    place: Place = lock_of(lake, stage)
    try:
        held = read_holder(place) if by_requests(place) else json.loads(read_file(place))
        return False if held is None else lives(held)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # it is damaged, or not written yet
        return None
