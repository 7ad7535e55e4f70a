"""Deletion vectors of a Delta table: the positions, from 0, of the rows of a data file that are deleted.

Authority: Delta's PROTOCOL.md, "Deletion Vectors", "Deletion Vector Format"
"""

import base64
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from pyroaring import BitMap64

from auditlake.store.files import open_file, write_new
from auditlake.store.place import Place

Descriptor = Mapping[str, Any]
"""The descriptor of a deletion vector in an action."""

_MAGIC = (1681511377).to_bytes(4, "little")
_FORMAT_VERSION = b"\x01"
_UUID_LENGTH = 20
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85, _TO_B85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)


def read_vector(table: Place, descriptor: Descriptor) -> BitMap64:
    """Read the positions of deleted rows; raises ValueError if the content contradicts the descriptor."""
    place, size_bytes = descriptor["pathOrInlineDv"], descriptor["sizeInBytes"]
    match descriptor["storageType"]:
        case "i":
            content = _from_z85(place)[:size_bytes]
        case "u":
            content = _stored(_file(table, place), descriptor)
        case kind:
            raise ValueError(f"a deletion vector of storage type {kind}")
    if content[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"a deletion vector that begins with {content[: len(_MAGIC)].hex()}")
    return BitMap64.deserialize(content[len(_MAGIC) :])


def vector_file(table: Place, descriptor: Descriptor) -> Place | None:
    """Return the file with a deletion vector; None if it is in the log itself."""
    return _file(table, descriptor["pathOrInlineDv"]) if descriptor["storageType"] == "u" else None


def write_vectors(table: Place, vectors: Sequence[BitMap64]) -> list[Descriptor]:
    """Write deletion vectors into one new file of the table; it is on the disk when this returns."""
    name, content = uuid.uuid4(), _FORMAT_VERSION
    descriptors: list[Descriptor] = []
    for vector in vectors:
        bitmap = _MAGIC + vector.serialize()
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": base64.b85encode(name.bytes).translate(_TO_Z85).decode(),
                "offset": len(content),
                "sizeInBytes": len(bitmap),
                "cardinality": len(vector),
            }
        )
        content += len(bitmap).to_bytes(4, "big") + bitmap + zlib.crc32(bitmap).to_bytes(4, "big")
    write_new(table / _file_name(name), content)
    return descriptors


def _file(table: Place, place: str) -> Place:
    prefix, name = place[:-_UUID_LENGTH], _from_z85(place[-_UUID_LENGTH:])
    return table / prefix / _file_name(uuid.UUID(bytes=name))


def _stored(path: Place, descriptor: Descriptor) -> bytes:
    with open_file(path) as file:
        if (version := file.read(len(_FORMAT_VERSION))) != _FORMAT_VERSION:
            raise ValueError(f"{path} has format version {version.hex()}, need {_FORMAT_VERSION.hex()}")
        file.seek(descriptor.get("offset") or len(_FORMAT_VERSION))
        size_bytes = int.from_bytes(file.read(4), "big")
        bitmap, checksum = file.read(size_bytes), int.from_bytes(file.read(4), "big")
    if size_bytes != descriptor["sizeInBytes"] or checksum != zlib.crc32(bitmap):
        raise ValueError(f"{path} has another deletion vector than the log says")
    return bitmap


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_TO_B85))


def _file_name(name: uuid.UUID) -> str:
    return f"deletion_vector_{name}.bin"
