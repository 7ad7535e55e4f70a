"""Lakes that take the place of another one under a process that goes on: a restored copy, or a new lake.

Both may have equal Delta versions and LSNs, so nothing that a process keeps by these tells them apart. But every commit
has an id of its own. So the lake is still the one that was read if lake.json is, and the entry of the log of `changes`
that was the newest one then. An entry that has expired since is as if another lake was there: nothing kept is used.
"""

from dataclasses import dataclass
from hashlib import blake2b

from auditlake.delta.log_entry import entry_name
from auditlake.lake.layout import Lake
from auditlake.store.files import read_versioned


@dataclass(slots=True)
class _Seen:
    """What a session knows of its lake: a version of `changes`, and the mark of lake.json and of its entry."""

    version: int = -1
    mark: bytes | None = None


def remember(lake: Lake, version: int) -> None:
    """Keep in the session by what the lake is known again; called before it is read, with a version of `changes`."""
    seen = lake.session.part(_Seen)
    seen.version, seen.mark = version, _mark(lake, version)


def is_replaced(lake: Lake) -> bool:
    """Return whether another lake is in the place of the one that the session remembers."""
    seen = lake.session.part(_Seen)
    return seen.mark is None or seen.mark != _mark(lake, seen.version)


def _mark(lake: Lake, version: int) -> bytes | None:
    """Return what no other lake has; None if files are missing. Without changes the version is -1."""
    places = [lake.manifest, *([lake.changes / "_delta_log" / entry_name(version)] if version >= 0 else ())]
    try:
        return blake2b(b"\0".join(read_versioned(place)[0] for place in places)).digest()
    except FileNotFoundError:
        return None
