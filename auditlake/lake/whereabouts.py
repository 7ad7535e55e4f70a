"""Which lake is in a folder: the original, a copy of it, or another one that took its place.

A copy has the same records in another folder, which has another inode; in an object store, another URL. So a copy
does not continue the origin of the lake's ledger, and forgets versions only after that was confirmed for it.

A file system gives a freed inode to the next folder, so that a copy in the place of a lost lake often has its inode. It
has another time of birth, which nothing can set: ext4, XFS, btrfs and tmpfs have one, NFS and ext4 with inodes of 128
bytes may not. The folder is one below the root, which stays if the root is a mount point that is emptied and refilled.

While a process runs, a restored copy or a new lake may take the place of its lake, with equal Delta versions and LSNs.
But every commit has an id. So it is the same lake if lake.json is the same, and so is the entry of `changes` that was
the newest when it was read. If that entry has expired since, nothing that the process kept is used.
"""

import ctypes
import os
import struct
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from auditlake.delta.log_entry import entry_name
from auditlake.lake.layout import Lake
from auditlake.store.files import local_path, read_versioned
from auditlake.store.place import Place

_AT_FDCWD, _STATX_BTIME, _STATX_BYTES = -100, 0x800, 256
_BIRTH = struct.Struct("=I76xqI")
"""In `struct statx`: the mask of what it has, and the seconds and nanoseconds of `stx_btime`."""


def whereabouts(lake: Lake, folder: Place) -> str:
    """Return what to record of a lake, given the folder in it that is compared on a disk.

    Raises FileNotFoundError without the folder.
    """
    local = local_path(folder)
    if local is None:
        return str(lake.root)
    born_ns = _born_ns(local)
    return _inode(local) if born_ns is None else f"{_inode(local)} born {born_ns}"


def was_at(folder: Place, recorded: str, recorded_us: int) -> bool:
    """Return whether a folder is the one whose inode was recorded at a time, as earlier versions did, without a birth.

    A copy that keeps the time of the record is younger than that.
    """
    local = local_path(folder)
    return local is not None and recorded == _inode(local) and (_born_ns(local) or 0) // 1000 <= recorded_us


def _inode(folder: Path) -> str:
    return f"inode {folder.stat().st_ino}"


def _born_ns(folder: Path) -> int | None:
    """Return when a folder was created, in nanoseconds since 1970; None if the system does not know it.

    Authority: statx(2), which os.stat does not call
    """
    statx = getattr(ctypes.CDLL(None), "statx", None)
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if statx is None or statx(_AT_FDCWD, os.fsencode(folder), 0, _STATX_BTIME, found):
        return None
    has, seconds, nanoseconds = _BIRTH.unpack_from(found)
    return seconds * 1_000_000_000 + nanoseconds if has & _STATX_BTIME else None


@dataclass(slots=True)
class _Seen:
    """Mark of a session's lake: of lake.json, and of the log entry of a version of `changes`."""

    version: int = -1
    mark: bytes | None = None


def remember(lake: Lake, version: int) -> None:
    """Keep a mark of the lake in the session; call it before the lake is read, with a version of `changes`."""
    seen = lake.session.part(_Seen)
    seen.version, seen.mark = version, _mark(lake, version)


def is_replaced(lake: Lake) -> bool:
    """Return whether another lake is in the place of the one that the session remembers."""
    seen = lake.session.part(_Seen)
    return seen.mark is None or seen.mark != _mark(lake, seen.version)


def _mark(lake: Lake, version: int) -> bytes | None:
    """Return a hash that no other lake has; None if files are missing. Without changes the version is -1."""
    places = [lake.manifest, *([lake.changes / "_delta_log" / entry_name(version)] if version >= 0 else ())]
    try:
        return blake2b(b"\0".join(read_versioned(place)[0] for place in places)).digest()
    except FileNotFoundError:
        return None
