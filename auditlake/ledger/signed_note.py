"""Signed notes and checkpoints: the text of a digest, its Ed25519 signature, and keys in the form of Go's `sumdb/note`.

    auditlake/7423…/shop/1f6e…           origin: the incarnation of the lake
    1283                                 size of the tree
    qINS1GRFhWHwdkUeqLEoP4yEMkTBBzxBkGwGQlVlVcs=     root, base64

    — auditlake Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=

A key is named by its first part; a signature has the first four bytes of SHA-256 of name and public key, so that a
verifier finds its key. Lines before the empty line are signed. A checkpoint has exactly three. A size is below 2**63.

A witness signs with a key of another type. Its signature begins with a time, in seconds since 1970, which is signed.

Authority: C2SP signed-note, tlog-checkpoint and tlog-cosignature; golang.org/x/mod/sumdb/note
"""

import base64
import binascii
import re
from dataclasses import dataclass
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from auditlake.errors import BadUsage
from auditlake.ledger.merkle import HASH_BYTES

_ED25519 = b"\1"
_COSIGNATURE = b"\4"
_ID_BYTES, _TIME_BYTES = 4, 8
_PRIVATE = "PRIVATE+KEY+"
_NAME = re.compile(r"[^\s+]+")
_SIGNATURE = re.compile(r"— ([^\s+]+) ([A-Za-z0-9+/]+={0,2})")
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}")
_MOST_LEAVES = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a digest names: `size` and `root` of the tree of the incarnation `origin`."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """Return the three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies digests: that of the lake, or of a witness."""

    name: str
    raw: bytes
    is_witness: bool = False

    @property
    def _content(self) -> bytes:
        return (_COSIGNATURE if self.is_witness else _ED25519) + self.raw

    @property
    def key_id(self) -> bytes:
        return sha256(f"{self.name}\n".encode() + self._content).digest()[:_ID_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{base64.b64encode(self._content).decode()}"

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Parse a public key as `str` formats it; raises BadUsage."""
        parts = text.strip().split("+", 2)
        content = _decoded(parts[-1])
        if len(parts) != len(("name", "id", "key")) or content is None or len(content) != 1 + HASH_BYTES:
            raise BadUsage("the public key is not of the form name+id+key", "auditlake digest --show-key prints it.")
        key = cls(parts[0], content[1:], is_witness=content[:1] == _COSIGNATURE)
        if content[:1] not in {_ED25519, _COSIGNATURE} or key.key_id.hex() != parts[1]:
            raise BadUsage(
                f"the public key {parts[0]} has the ID {parts[1]}, its content has {key.key_id.hex()}",
                "Copy it once more; auditlake digest --show-key prints it.",
            )
        return key

    def signed(self, text: str, line: str) -> bool:
        """Return whether a line of a note is this key's signature of the text above."""
        match = _SIGNATURE.fullmatch(line)
        content = _decoded(match[2]) if match and match[1] == self.name else None
        return content is not None and content[:_ID_BYTES] == self.key_id and self._made(text, content[_ID_BYTES:])

    def _made(self, text: str, signature: bytes) -> bool:
        if self.is_witness:
            time_s, signature = int.from_bytes(signature[:_TIME_BYTES]), signature[_TIME_BYTES:]
            text = f"cosignature/v1\ntime {time_s}\n{text}"
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, text.encode())
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """A key that signs digests; it is never shown."""

    name: str
    seed: bytes

    @classmethod
    def generate(cls, name: str) -> "SigningKey":
        """Make a new key; raises BadUsage if it cannot have this name."""
        if not _NAME.fullmatch(name):
            raise BadUsage(f"a key cannot be named {name!r}, need a name without spaces and +", "Give another --name.")
        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.name, Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw())

    def encoded(self) -> str:
        """Return the key as its file has it: a secret."""
        content = base64.b64encode(_ED25519 + self.seed).decode()
        return f"{_PRIVATE}{self.name}+{self.public.key_id.hex()}+{content}"

    @classmethod
    def parse(cls, text: str, origin: str) -> "SigningKey":
        """Parse a key as `encoded` formats it; `origin` is for messages. Raises BadUsage, without the text."""
        name, _, rest = text.strip().removeprefix(_PRIVATE).partition("+")
        key_id, _, encoded = rest.partition("+")
        content = _decoded(encoded)
        wrong = BadUsage(f"{origin} has no key of auditlake digest", "auditlake digest --new-key FILE makes one.")
        if not text.startswith(_PRIVATE) or content is None or len(content) != 1 + HASH_BYTES:
            raise wrong
        key = cls(name, content[1:])
        if content[:1] != _ED25519 or key.public.key_id.hex() != key_id:
            raise wrong
        return key

    def sign(self, checkpoint: Checkpoint) -> str:
        """Return the signed note of a checkpoint."""
        text = checkpoint.text()
        signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(text.encode())
        return f"{text}\n— {self.name} {base64.b64encode(self.public.key_id + signature).decode()}\n"


def open_note(note: str, key: PublicKey, origin: str) -> Checkpoint:
    """Verify a digest and return its checkpoint; `origin` is where it was read, for messages.

    Signatures of other keys are ignored, as witnesses add theirs.

    Raises BadUsage if the note is not a digest, or this key did not sign it.
    """
    text, blank, signatures = note.partition("\n\n")
    checkpoint = read_checkpoint(note) if blank else None
    if checkpoint is None:
        raise BadUsage(f"{origin} is not a digest", "Give a file that auditlake digest wrote.")
    if not any(key.signed(f"{text}\n", line) for line in signatures.splitlines()):
        raise BadUsage(
            f"{origin} is not signed by {key.name} ({key.key_id.hex()})",
            "It was changed, or another key signed it. Do not trust it.",
        )
    return checkpoint


def read_checkpoint(note: str) -> Checkpoint | None:
    """Return the checkpoint of a note without checking its signatures; None if it is not one."""
    lines = note.partition("\n\n")[0].removesuffix("\n").split("\n")
    if len(lines) != len(("origin", "size", "root")):
        return None
    origin, size, root = lines[0], lines[1], _decoded(lines[2])
    if not origin or not _SIZE.fullmatch(size) or int(size) > _MOST_LEAVES or root is None or len(root) != HASH_BYTES:
        return None
    return Checkpoint(origin, int(size), root)


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
