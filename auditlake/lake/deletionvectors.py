"""Deletion vectors of a Delta table: which rows of a data file, by their places in it, are no longer in the table.

Authority: Delta's PROTOCOL.md, "Deletion Vectors", "Deletion Vector Format"
"""

import base64
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyroaring import BitMap64

from auditlake.lake.commits import sync

Descriptor = Mapping[str, Any]
"""What an action says of its deletion vector."""

_MAGIC = (1681511377).to_bytes(4, "little")
_FORMAT_VERSION = b"\x01"
_UUID_LENGTH = 20
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85, _TO_B85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)


def read_vector(table: Path, descriptor: Descriptor) -> BitMap64:
    """Read the places of the rows that are marked.

    Raises ValueError where what is there is no deletion vector.
    """
    given, size_bytes = descriptor["pathOrInlineDv"], descriptor["sizeInBytes"]
    match descriptor["storageType"]:
        case "i":
            held = _from_z85(given)[:size_bytes]
        case "u":
            prefix, name = given[:-_UUID_LENGTH], _from_z85(given[-_UUID_LENGTH:])
            held = _stored(table / prefix / _file_name(uuid.UUID(bytes=name)), descriptor)
        case kind:
            raise ValueError(f"a deletion vector of storage type {kind}")
    if held[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"a deletion vector that begins with {held[: len(_MAGIC)].hex()}")
    return BitMap64.deserialize(held[len(_MAGIC) :])


def write_vectors(table: Path, vectors: Sequence[BitMap64]) -> list[Descriptor]:
    """Write deletion vectors into one new file of the table, which is on the disk when this returns."""
    name, content = uuid.uuid4(), _FORMAT_VERSION
    found: list[Descriptor] = []
    for vector in vectors:
        held = _MAGIC + vector.serialize()
        found.append(
            {
                "storageType": "u",
                "pathOrInlineDv": base64.b85encode(name.bytes).translate(_TO_Z85).decode(),
                "offset": len(content),
                "sizeInBytes": len(held),
                "cardinality": len(vector),
            }
        )
        content += len(held).to_bytes(4, "big") + held + zlib.crc32(held).to_bytes(4, "big")
    (table / _file_name(name)).write_bytes(content)
    sync(table / _file_name(name), table)
    return found


def _stored(path: Path, descriptor: Descriptor) -> bytes:
    with path.open("rb") as file:
        file.seek(descriptor.get("offset") or len(_FORMAT_VERSION))
        size_bytes = int.from_bytes(file.read(4), "big")
        held, checksum = file.read(size_bytes), int.from_bytes(file.read(4), "big")
    if size_bytes != descriptor["sizeInBytes"] or checksum != zlib.crc32(held):
        raise ValueError(f"{path} holds another deletion vector than the log says")
    return held


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_TO_B85))


def _file_name(name: uuid.UUID) -> str:
    return f"deletion_vector_{name}.bin"
