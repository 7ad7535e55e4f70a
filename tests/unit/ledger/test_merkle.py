"""The tree against the test vectors of Certificate Transparency, and against the definition of RFC 9162."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlake.ledger.merkle import EMPTY_ROOT, Frontier, inclusion_path, leaf_hash, node_hash, root_of

# github.com/google/certificate-transparency, merkletree/merkle_tree_test.cc
_LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
_ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def _defined(leaves: list[bytes]) -> bytes:
    """Return the hash of a tree by the recursion of RFC 9162, section 2.1.1."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return sha256(b"\1" + _defined(leaves[:split]) + _defined(leaves[split:])).digest()


@pytest.mark.parametrize("size", _ROOTS)
def test_the_roots_are_those_of_the_test_vectors(size: int) -> None:
    """Leaves and nodes have different first bytes."""
    assert root_of([leaf_hash(bytes.fromhex(each)) for each in _LEAVES[:size]]).hex() == _ROOTS[size]


@given(st.integers(0, 70), st.integers(0, 70))
def test_appending_in_parts_gives_the_defined_root(first: int, second: int) -> None:
    """The subtrees are all that is needed to append, and survive being written and read."""
    leaves = [leaf_hash(bytes([each])) for each in range(first + second)]
    part = Frontier().with_leaves(leaves[:first])
    read = Frontier.of(part.size, part.as_bytes())
    assert read.with_leaves(leaves[first:]).root == _defined(leaves)


@given(st.integers(1, 70), st.data())
def test_a_path_leads_from_its_leaf_to_the_root(size: int, data: st.DataObject) -> None:
    """The path is followed as RFC 9162, section 2.1.3.2, defines it."""
    index = data.draw(st.integers(0, size - 1))
    leaves = [leaf_hash(bytes([each])) for each in range(size)]
    found, at, last = leaves[index], index, size - 1
    for each in inclusion_path(leaves, index):
        if at & 1 or at == last:
            found = node_hash(each, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = node_hash(found, each)
        at, last = at >> 1, last >> 1
    assert (last, found) == (0, root_of(leaves))


def test_subtrees_of_another_size_are_refused() -> None:
    """A tree of three leaves has two complete subtrees."""
    with pytest.raises(ValueError, match="64 bytes"):
        Frontier.of(4, bytes(64))
    assert Frontier.of(0, b"").root == EMPTY_ROOT
