"""Verifier of `auditlake prove`, which shares no code with auditlake: the standard library, and Ed25519.

    python proof_verifier.py PUBLIC_KEY < proof.json

It follows docs/proof-and-erasure.md and prints what is proved, or fails.
"""

import base64
import json
import sys
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

END = "\0;"


def verify(proof: dict[str, Any], public_key: str | None) -> list[list[str | None]]:
    """Verify all entries of a proof; return the fields of their records. Raises AssertionError or a parse error."""
    assert proof["format"] == "auditlake proof 1"
    note = proof["checkpoint"]
    text = note.split("\n\n")[0].rstrip("\n") + "\n"
    if public_key is not None:
        _verify_signature(note, text, public_key)
    _, size, root = text.splitlines()
    return [_verify_entry(each, proof["pages"], int(size), base64.b64decode(root)) for each in proof["entries"]]


def _verify_signature(note: str, text: str, public_key: str) -> None:
    name, key_id, encoded = public_key.split("+", 2)
    raw = base64.b64decode(encoded)
    assert raw[0] == 1
    assert sha256(f"{name}\n".encode() + raw).digest()[:4].hex() == key_id
    lines = note.split("\n\n")[1].splitlines()
    (line,) = [each for each in lines if each.startswith(f"— {name} ")]
    signature = base64.b64decode(line.split(" ")[2])
    assert signature[:4].hex() == key_id
    Ed25519PublicKey.from_public_bytes(raw[1:]).verify(signature[4:], text.encode())


def _verify_entry(entry: dict[str, Any], pages: dict[str, Any], size: int, root: bytes) -> list[str | None]:
    record = entry["record"]
    assert record.startswith(f"auditlake entry 1{END}{entry['kind']}{END}")
    if entry["secret"] is not None or entry["values"] is not None:  # else they were erased
        commitment = sha256(f"auditlake values 1{END}{entry['secret']}{END}{entry['values']}".encode()).hexdigest()
        assert fields(record)[-1] == commitment
    page = pages[str(entry["leaf"])]
    assert page["hashes"][entry["place"]] == sha256(record.encode()).hexdigest()
    content = b"auditlake page 1\n" + bytes.fromhex("".join(page["hashes"]))
    path = [base64.b64decode(each) for each in page["path"]]
    assert _root(sha256(b"\0" + content).digest(), entry["leaf"], size, path) == root
    return fields(record)


def _root(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """Follow RFC 9162, section 2.1.3.2."""
    assert index < size
    first, last, found = index, size - 1, leaf
    for each in path:
        assert last
        if first & 1 or first == last:
            found = sha256(b"\1" + each + found).digest()
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            found = sha256(b"\1" + found + each).digest()
        first, last = first >> 1, last >> 1
    assert last == 0
    return found


def fields(record: str) -> list[Any]:
    """Split a canonical text into its fields; a list is a Python list."""
    found: list[Any] = []
    while record:
        at = record.index("\0")
        text, mark, record = record[:at], record[at + 1], record[at + 2 :]
        if mark == "-":
            assert not text
            found.append(None)
        elif mark == ";":
            found.append(text)
        else:
            assert mark == "["
            elements, record = _elements(record, int(text))
            found.append(elements)
    return found


def _elements(rest: str, count: int) -> tuple[list[str | None], str]:
    body, _, record = rest.partition("\0]")
    elements = [None if each == "\0N" else each for each in body.split("\0,")] if count else []
    assert len(elements) == count
    return elements, record


if __name__ == "__main__":
    for each in verify(json.load(sys.stdin), sys.argv[1]):
        sys.stdout.write(f"{each}\n")
