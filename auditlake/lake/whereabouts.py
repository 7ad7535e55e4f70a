"""Which lake is in a folder: the original, a copy of it, or another one that took its place.

A copy has the same records in another folder, which has another inode; in an object store, another URL. So a copy
does not continue the origin of the lake's ledger, and forgets versions only after that was confirmed for it.

While a process runs, a restored copy or a new lake may take the place of its lake, with equal Delta versions and LSNs.
But every commit has an id. So it is the same lake if lake.json is the same, and so is the entry of `changes` that was
the newest when it was read. If that entry has expired since, nothing that the process kept is used.
"""

from dataclasses import dataclass
from hashlib import blake2b

from auditlake.delta.log_entry import entry_name
from auditlake.lake.layout import Lake
from auditlake.store.files import local_path, read_versioned
from auditlake.store.place import Place


def whereabouts(lake: Lake, folder: Place) -> str:
    """Return what to record of a lake, given the folder in it whose inode is compared on a disk."""
    local = local_path(folder)
    return str(lake.root) if local is None else f"inode {local.stat().st_ino}"


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
