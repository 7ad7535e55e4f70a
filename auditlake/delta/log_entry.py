"""Bytes of an entry of a Delta log, with a checksum: a changed bit would be another position, file or column.

Delta has no checksum for entries. So an entry that is written here has one in its `commitInfo`, in which Delta allows
any value: the CRC-32 of the version, as in the entry's name, and of the entry as it is with eight zeros in that place.
So an entry in the place of another is found. `engineInfo` announces the checksum, so its removal is found, too. Entries
of other writers, Spark's and deltalake's, have none; they only need to be JSON.

Authority: Delta's PROTOCOL.md, "Commit Provenance Information"
"""

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from auditlake.errors import LakeUnusable
from auditlake.store.place import Place

ENGINE = "auditlake/crc32"
"""`engineInfo` of an entry with a checksum."""
_ENGINE, _EMPTY = f'"{ENGINE}"'.encode(), b'"crc32": "00000000"'
_CHECKSUM = re.compile(rb'"crc32": "([0-9a-f]{8})"')


def entry_name(version: int) -> str:
    """Return the name of a version's entry."""
    return f"{version:020}.json"


def entry_bytes(version: int, info: Mapping[str, object], actions: Iterable[Mapping[str, object]]) -> bytes:
    """Return an entry with this `commitInfo`, to which its checksum is added."""
    first = {"commitInfo": {**info, "engineInfo": ENGINE, "crc32": "00000000"}}
    content = "".join(f"{json.dumps(action)}\n" for action in (first, *actions)).encode()
    checksum = _checksum(entry_name(version), content)
    return content.replace(_EMPTY, f'"crc32": "{checksum:08x}"'.encode(), 1)


def _checksum(name: str, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(name.encode()))


def parsed_entry(place: Place, content: bytes) -> list[Mapping[str, Any]]:
    """Return the actions of an entry; raises LakeUnusable if it is damaged."""
    require_intact(place, content)
    try:
        actions = [json.loads(line) for line in content.decode().split("\n") if line]
    except ValueError:
        raise lost(place, "is damaged: a line is not JSON") from None
    if not all(isinstance(action, dict) for action in actions):
        raise lost(place, "is damaged: a line is not an object")
    return actions


def require_intact(place: Place, content: bytes) -> None:
    """Require that an entry has content, and that it matches its checksum, if it has one; raises LakeUnusable."""
    if not content:
        raise lost(place, "is empty")
    found = _CHECKSUM.search(content)
    if found is None:
        if _ENGINE in content.partition(b"\n")[0]:
            raise lost(place, "is damaged: its checksum is missing")
        return
    checksum = _checksum(place.name, content[: found.start()] + _EMPTY + content[found.end() :])
    if checksum != int(found[1], 16):
        raise lost(place, f"is damaged: its CRC-32 is {checksum:08x}, it records {found[1].decode()}")


def lost(place: Place, state: str) -> LakeUnusable:
    """Return the error for an entry that is missing, empty or damaged."""
    return LakeUnusable(
        f"{place} {state}, so the changes of its commit are lost",
        "Restore the file from a backup; without one, restore the lake, or begin a new one in another folder.",
    )
