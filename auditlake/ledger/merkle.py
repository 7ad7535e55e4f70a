"""Merkle tree of RFC 9162, section 2.1: roots, proofs, and appending with the hashes of complete subtrees.

A tree of n leaves is a list of complete subtrees, the largest first, one for each bit of n: its *frontier*. It is all
that is needed to append leaves and to compute the root, so the leaves need not be read again. Leaves and nodes are
hashed with different first bytes, so that a node cannot be presented as a leaf. Pure.

Authority: RFC 9162, sections 2.1.1 to 2.1.4
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(content: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\0" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node above two others."""
    return sha256(b"\1" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Frontier:
    """A tree of `size` leaves, as the roots of its complete subtrees, the largest first."""

    size: int = 0
    subtrees: tuple[bytes, ...] = ()

    def with_leaves(self, hashes: Iterable[bytes]) -> "Frontier":
        """Return the tree with more leaves after its own."""
        size, subtrees = self.size, list(self.subtrees)
        for each in hashes:
            added = each
            merged = size
            while merged & 1:
                added = node_hash(subtrees.pop(), added)
                merged >>= 1
            subtrees.append(added)
            size += 1
        return Frontier(size, tuple(subtrees))

    @property
    def root(self) -> bytes:
        """Return the hash of the tree."""
        if not self.subtrees:
            return EMPTY_ROOT
        *others, root = self.subtrees
        for each in reversed(others):
            root = node_hash(each, root)
        return root

    def as_bytes(self) -> bytes:
        """Return the subtrees one after the other."""
        return b"".join(self.subtrees)

    @classmethod
    def of(cls, size: int, subtrees: bytes) -> "Frontier":
        """Return the tree that `as_bytes` describes; raises ValueError for a wrong number of subtrees."""
        if len(subtrees) != HASH_BYTES * size.bit_count():
            raise ValueError(f"{len(subtrees)} bytes of subtrees, a tree of {size} leaves has {size.bit_count()}")
        parts = range(0, len(subtrees), HASH_BYTES)
        return cls(size, tuple(subtrees[at : at + HASH_BYTES] for at in parts))


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root of a tree with these leaf hashes."""
    return Frontier().with_leaves(leaves).root


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the path from a leaf to the root of a tree with these leaf hashes, the nearest node first."""
    if len(leaves) == 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*inclusion_path(leaves[:split], index), root_of(leaves[split:])]
    return [*inclusion_path(leaves[split:], index - split), root_of(leaves[:split])]


def consistency_path(leaves: Sequence[bytes], old: int) -> list[bytes]:
    """Return the proof that the tree of the first `old` of these leaf hashes, at least one, is a part of their tree."""
    return _from_old(leaves, old, is_known=True)


def _from_old(leaves: Sequence[bytes], old: int, *, is_known: bool) -> list[bytes]:
    """Return the same of a subtree; `is_known`: the verifier has the root of its first `old` leaves, the old tree."""
    if old == len(leaves):
        return [] if is_known else [root_of(leaves)]
    split = _split(len(leaves))
    if old <= split:
        return [*_from_old(leaves[:split], old, is_known=is_known), root_of(leaves[split:])]
    return [*_from_old(leaves[split:], old - split, is_known=False), root_of(leaves[:split])]


def _split(size: int) -> int:
    """Return the size of the left subtree of a tree: the largest power of two below its size."""
    return 1 << (size - 1).bit_length() - 1
