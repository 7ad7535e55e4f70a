"""Bytes of an entry of a Delta log, with a checksum: a changed bit would be another position, file or column.

Delta has no checksum for entries. So an entry that is written here has one in its `commitInfo`, in which Delta allows
any value: the CRC-32 of the entry as it is with eight zeros in that place. `engineInfo` says that there is one, so the
loss of its name is seen, too. Entries of other writers, Spark's and deltalake's, have none; they only need to be JSON.

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


def entry_bytes(info: Mapping[str, object], actions: Iterable[Mapping[str, object]]) -> bytes:
    """Return an entry with this `commitInfo`, to which its checksum is added."""
    first = {"commitInfo": {**info, "engineInfo": ENGINE, "crc32": "00000000"}}
    content = "".join(f"{json.dumps(action)}\n" for action in (first, *actions)).encode()
    return content.replace(_EMPTY, f'"crc32": "{zlib.crc32(content):08x}"'.encode(), 1)


def parsed_entry(place: Place, content: bytes) -> list[Mapping[str, Any]]:
    """Return the actions of an entry.

    Raises LakeUnusable if it is damaged.
    """
    require_intact(place, content)
    try:
        actions = [json.loads(line) for line in content.decode().split("\n") if line]
    except ValueError:
        raise lost(place, "is damaged: a line is not JSON") from None
    if not all(isinstance(action, dict) for action in actions):
        raise lost(place, "is damaged: a line is not an object")
    return actions


def require_intact(place: Place, content: bytes) -> None:
    """Require that an entry has content, and that which its checksum says, if it has one.

    Raises LakeUnusable.
    """
    if not content:
        raise lost(place, "is empty")
    found = _CHECKSUM.search(content)
    if found is None:
        if _ENGINE in content.partition(b"\n")[0]:
            raise lost(place, "is damaged: its checksum is missing")
        return
    summed = content[: found.start()] + _EMPTY + content[found.end() :]
    if zlib.crc32(summed) != int(found[1], 16):
        raise lost(place, f"is damaged: its CRC-32 is {zlib.crc32(summed):08x}, it records {found[1].decode()}")


def lost(place: Place, state: str) -> LakeUnusable:
    """Return the error for an entry that is missing, empty or damaged."""
    return LakeUnusable(
        f"{place} {state}, so the changes of its commit are lost",
        "Restore the file from a backup; without one, restore the lake, or begin a new one in another folder.",
    )
