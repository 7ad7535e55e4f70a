"""Blocks of the ledger, and the entries in them, as two Delta tables; and the tree over them.

A block seals what became durable since the one before. Its entries, in the order of their numbers, are cut into pages
of `PAGE_ENTRIES`; each page is one leaf of the tree, so that few nodes have to be hashed in Python: one for 128
entries instead of one each. A page does not extend over a block. `blocks` has the tree after each block (`Frontier`),
so appending and signing read nothing else.

    ledger/entries/   number, block, kind, lsn, ordinal, name, hash
    ledger/blocks/    block, origin, place, first_entry, entries, size, root, subtrees, bounds, key, time

`hash` commits to a row, and tells nothing about its values once the block's `key` is gone (`ledger.canonical`).

A lake that was copied or restored is another *incarnation*. Its first block gets another `origin`, because its `place`
(`lake.whereabouts` of the folder `blocks`) differs from that of the block before.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa

from auditlake.delta.sql import read_newest, select
from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.ledger.canonical import Identity, Kind, page_of
from auditlake.ledger.entries import Entry, with_us
from auditlake.ledger.merkle import HASH_BYTES, Frontier, leaf_hash
from auditlake.lsn import Lsn

PAGE_ENTRIES = 128
LAST_ORDINAL = (1 << 31) - 1
"""After every ordinal of a transaction."""
_TIME = pa.timestamp("us", tz="UTC")
_ERASABLE = frozenset({"key", "key_hash", "lookup_key"})
_IN_EACH = frozenset({"number", "block", "kind", "name"})
_RESTORE = "Restore the folder `ledger` of the lake."
_ORIGIN = re.compile(r"auditlake/[0-9]+/[a-z0-9_~-]+/[0-9a-f]{32}")
ENTRIES_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("block", pa.int64()),
        ("kind", pa.string()),
        ("lsn", pa.int64()),
        ("ordinal", pa.int64()),
        ("name", pa.string()),
        ("hash", pa.binary()),
        ("secret", pa.binary()),
        ("lookup", pa.binary()),
        ("commitment", pa.binary()),
    ]
)
BLOCKS_SCHEMA = pa.schema(
    [
        ("block", pa.int64()),
        ("origin", pa.string()),
        ("place", pa.string()),
        ("first_entry", pa.int64()),
        ("entries", pa.int64()),
        ("size", pa.int64()),
        ("root", pa.binary()),
        ("subtrees", pa.binary()),
        ("leaves", pa.binary()),
        ("after_lsn", pa.int64()),
        ("after_ordinal", pa.int64()),
        ("upto_lsn", pa.int64()),
        ("upto_ordinal", pa.int64()),
        ("key", pa.binary()),
        ("time", _TIME),
        ("key_hash", pa.binary()),
        ("lookup_key", pa.binary()),
    ]
)


class Bound(NamedTuple):
    """The last change of a block, by its transaction's LSN and its ordinal; `LAST_ORDINAL`: the whole transaction."""

    lsn: int
    ordinal: int

    @property
    def commit(self) -> Lsn:
        """Return the LSN of the last transaction that is sealed as a whole."""
        return Lsn(self.lsn if self.ordinal == LAST_ORDINAL else max(self.lsn - 1, 0))


BEGINNING = Bound(0, LAST_ORDINAL)


@dataclass(frozen=True, slots=True)
class Block:
    """A block: changes in (`after`, `upto`], and the tree after it."""

    number: int
    origin: str
    place: str
    first_entry: int
    entries: int
    tree: Frontier
    after: Bound
    upto: Bound
    key: bytes | None
    """None if values of its entries were erased."""
    time_us: int
    leaves: bytes = b""
    """The hashes of its pages, one after the other."""
    erased_hash: str | None = None
    """The hash of the key, if that is gone."""
    lookup_key: bytes | None = None
    """Finds the stored secrets of rows of copies, if the key is gone."""

    @property
    def key_hash(self) -> str:
        """Return the hash of the key, in hexadecimal."""
        return self.erased_hash or "" if self.key is None else sha256(b"auditlake key" + self.key).hexdigest()

    def secret(self, entry: Entry, stored: bytes | None) -> bytes | None:
        """Return the secret of an entry of this block, given what the entry's row has; None if it is destroyed."""
        return stored if self.key is None else entry.secret(self.key)

    def has(self, number: int) -> bool:
        """Return whether an entry is one of this block."""
        return self.first_entry <= number < self.first_entry + self.entries

    @property
    def pages(self) -> int:
        """Return the number of leaves of the block."""
        return -(-self.entries // PAGE_ENTRIES)

    @property
    def size_before(self) -> int:
        """Return the size of the tree before the block."""
        return self.tree.size - self.pages

    def row(self) -> dict[str, Any]:
        """Return the row of `blocks`."""
        return {
            "block": self.number,
            "origin": self.origin,
            "place": self.place,
            "first_entry": self.first_entry,
            "entries": self.entries,
            "size": self.tree.size,
            "root": self.tree.root,
            "subtrees": self.tree.as_bytes(),
            "leaves": self.leaves,
            "after_lsn": self.after.lsn,
            "after_ordinal": self.after.ordinal,
            "upto_lsn": self.upto.lsn,
            "upto_ordinal": self.upto.ordinal,
            "key": self.key,
            "time": self.time_us,
            "key_hash": None if self.erased_hash is None else bytes.fromhex(self.erased_hash),
            "lookup_key": self.lookup_key,
        }


def block_entry(block: Block, before: Frontier) -> Entry:
    """Return the first entry of a block, which chains it to the tree before it."""
    bounds = (*block.after, *block.upto)
    fields = (block.number, block.origin, before.size, before.root.hex(), *bounds, block.time_us, block.key_hash)
    return Entry(Identity(Kind.BLOCK, None, block.number, ""), fields)


def has_ledger(lake: Lake) -> bool:
    """Return whether a block was ever sealed, or is being sealed."""
    return (lake.ledger_blocks / "_delta_log").exists()


def read_blocks(lake: Lake) -> list[Block]:
    """Read all blocks, in order; none if nothing was ever sealed. Raises LakeUnusable if a block is not one."""
    return _read(lake, "order by block")


def read_last_block(lake: Lake) -> Block | None:
    """Read the last block; None if nothing was ever sealed. Raises LakeUnusable if it is not a block."""
    return next(iter(_read(lake, "order by block desc limit 1")), None)


def _read(lake: Lake, clause: str) -> list[Block]:
    table = read_newest(lake.ledger_blocks)
    if table is None:
        return []
    rows = select(f"select {', '.join(BLOCKS_SCHEMA.names)} from blocks {clause}", blocks=table)
    return list(_blocks(with_us(rows.cast(BLOCKS_SCHEMA))))


def _blocks(rows: pa.Table) -> Iterator[Block]:
    for row in rows.to_pylist():
        try:
            yield _block(row)
        except ValueError as exc:
            raise LakeUnusable(f"block {row['block']} of the ledger cannot be read: {exc}", _RESTORE) from exc


def _block(row: Mapping[str, Any]) -> Block:
    """Return the block of a row, which whoever may write the lake wrote; raises ValueError if it is none."""
    if empty := [name for name, value in row.items() if value is None and name not in _ERASABLE]:
        raise ValueError(f"its {empty[0]} is NULL")
    if negative := [name for name, value in row.items() if isinstance(value, int) and value < 0]:
        raise ValueError(f"its {negative[0]} is {row[negative[0]]}")
    if not _ORIGIN.fullmatch(row["origin"]):  # it is signed, and a name of a folder
        raise ValueError("its origin is not that of a lake")
    tree = Frontier.of(row["size"], row["subtrees"])
    if tree.root != row["root"]:
        raise ValueError("its root is not that of its subtrees")
    return Block(
        row["block"],
        row["origin"],
        row["place"],
        row["first_entry"],
        row["entries"],
        tree,
        Bound(row["after_lsn"], row["after_ordinal"]),
        Bound(row["upto_lsn"], row["upto_ordinal"]),
        row["key"],
        row["time"],
        row["leaves"],
        None if row["key_hash"] is None else row["key_hash"].hex(),
        row["lookup_key"],
    )


def read_entries(lake: Lake, condition: str, columns: Sequence[str] = ()) -> pa.Table:
    """Read the entries that match a condition, by number; none if nothing was ever sealed. Raises LakeUnusable."""
    table, wanted = read_newest(lake.ledger_entries), columns or ENTRIES_SCHEMA.names
    schema = pa.schema([ENTRIES_SCHEMA.field(name) for name in wanted])
    if table is None:
        return schema.empty_table()
    sql = f"select {', '.join(wanted)} from entries where {condition} order by number"
    rows = select(sql, entries=table).cast(schema)
    if empty := [name for name in wanted if name in _IN_EACH and rows[name].null_count]:
        raise LakeUnusable(f"an entry of the ledger has NULL as its {empty[0]}", _RESTORE)
    return rows


def hashes_in(entries: pa.Table) -> list[bytes]:
    """Return the hashes of entries; empty bytes for one that has none."""
    return [each or b"" for each in entries["hash"].to_pylist()]


def page_leaves(hashes: Sequence[bytes]) -> list[bytes]:
    """Return the leaf hashes of a block, given the hashes of its entries."""
    starts = range(0, len(hashes), PAGE_ENTRIES)
    return [leaf_hash(page_of(hashes[start : start + PAGE_ENTRIES])) for start in starts]


def leaves_of(blocks: Iterable[Block]) -> list[bytes]:
    """Return the leaf hashes of the tree after the last of these blocks, which are all up to it."""
    joined = b"".join(block.leaves for block in blocks)
    return [joined[at : at + HASH_BYTES] for at in range(0, len(joined), HASH_BYTES)]


def origins_of(blocks: Sequence[Block]) -> Mapping[str, tuple[int, int]]:
    """Return the incarnations of a lake by origin, each with the sizes of its first and its last tree."""
    found: dict[str, tuple[int, int]] = {}
    for block in blocks:
        first, _ = found.get(block.origin, (block.tree.size, 0))
        found[block.origin] = (first, block.tree.size)
    return found
