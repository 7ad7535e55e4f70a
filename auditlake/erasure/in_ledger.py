"""Destroy the secrets of the ledger's entries whose values are erased, and keep those of all others.

The secrets of a block follow from its key, so the key has to go, and the secrets of the other entries are written out
before. Entries and hashes stay, so every digest still fits, and every other row is still compared and proved.

Order of effects, before any value is erased from the lake:

1. The entries of the blocks concerned get their secrets; rows of copies also what finds them again, under a new key for
   lookups (`ledger.copies`). Those that are erased get their commitment instead, with which the rest of their record
   still verifies. The old files are deleted.
2. These blocks get the hash of their key in place of the key, which their first entry names. The old files are deleted.
3. `next.json` is deleted; it may have the key of the last block.

A kill after 1 leaves the key, from which all follows again. A block that lost its key before has the secrets already.
All that is durable is sealed before, so a block is never erased from while it is being sealed.
"""

import secrets as random_bytes
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.delta.erasing import ErasureTask, erase
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.ledger.blocks import Block, read_blocks, read_entries
from auditlake.ledger.canonical import KEY_BYTES, OF_COPIES, Identity, Kind, hash_of, secret_of
from auditlake.ledger.copies import copied_rows, derived, lookup, secrets_in, values_of
from auditlake.ledger.entries import Entry
from auditlake.lsn import Lsn

_WITHOUT_NAME = frozenset({Kind.CHANGE, Kind.TRANSACTION})
"""Kinds whose rows have a name for messages only."""


def destroy_secrets(lake: Lake, numbers: frozenset[int], entries: Mapping[tuple[str, int, int], Entry]) -> None:
    """Destroy the secrets of these entries; `entries` are those of changes and transactions that still have values."""
    blocks = {block.number: block for block in read_blocks(lake) if any(map(block.has, numbers))}
    if not blocks:
        return
    keys = {number: block.lookup_key or random_bytes.token_bytes(KEY_BYTES) for number, block in blocks.items()}
    of_copies = {n: _of_copies(lake, block, keys[n]) for n, block in blocks.items() if block.key is not None}

    def with_secrets(rows: pa.Table) -> pa.Table:
        changed = [_entry(row, blocks, of_copies, numbers, entries) for row in rows.to_pylist()]
        return pa.Table.from_pylist(changed, rows.schema)

    def without_keys(rows: pa.Table) -> pa.Table:
        changed = [_block(row, blocks, keys) for row in rows.to_pylist()]
        return pa.Table.from_pylist(changed, rows.schema)

    erase(lake.ledger_entries, ErasureTask(lambda _: True, with_secrets))
    erase(lake.ledger_blocks, ErasureTask(lambda _: True, without_keys))
    lake.next_block.unlink(missing_ok=True)


def _entry(
    row: dict[str, Any],
    blocks: Mapping[int, Block],
    of_copies: Mapping[int, Mapping[bytes, tuple[bytes, bytes]]],
    numbers: frozenset[int],
    entries: Mapping[tuple[str, int, int], Entry],
) -> dict[str, Any]:
    block = blocks.get(row["block"])
    if block is None:
        return row
    kind = Kind(row["kind"])
    if row["number"] in numbers:
        entry = entries.get((kind, row["lsn"], row["ordinal"]))
        secret = None if entry is None else block.secret(entry, row["secret"])
        commitment = None if entry is None or secret is None else entry.commitment(secret)
        if entry is not None and commitment is not None and hash_of(entry.record_with(commitment)) == row["hash"]:
            row = row | {"commitment": commitment}
        return row | {"secret": None, "lookup": None}
    if block.key is None:
        return row
    if kind in OF_COPIES:
        found = of_copies[block.number].get(row["hash"], (None, None))
        return row | dict(zip(("lookup", "secret"), found, strict=True))
    identity = Identity(kind, row["lsn"], row["ordinal"], "" if kind in _WITHOUT_NAME else row["name"])
    return row | {"secret": secret_of(block.key, identity)}


def _block(row: dict[str, Any], blocks: Mapping[int, Block], keys: Mapping[int, bytes]) -> dict[str, Any]:
    block = blocks.get(row["block"])
    if block is None or block.key is None:
        return row
    return row | {"key": None, "key_hash": bytes.fromhex(block.key_hash), "lookup_key": keys[block.number]}


def _of_copies(lake: Lake, block: Block, lookup_key: bytes) -> dict[bytes, tuple[bytes, bytes]]:
    """Return lookup and secret of every row of the copies in a block, by its hash."""
    assert block.key is not None  # noqa: S101 - the caller chose such blocks
    secrets, found = derived(block.key), dict[bytes, tuple[bytes, bytes]]()
    for table, lsn in _copies_in(lake, block):
        for part in copied_rows(table, lsn, secrets):
            identity = Identity(part.kind, lsn, None, str(table.name))
            for values, hashed in zip(values_of(table, lsn, part.rows), part.hashes, strict=True):
                secret = secrets(identity, values)
                assert secret is not None  # noqa: S101 - it is derived
                found[hashed] = lookup(lookup_key, identity, values), secret
    return found


def _copies_in(lake: Lake, block: Block) -> Iterator[tuple[HistoryTable, Lsn]]:
    tables = {str(table.name): table for table in list_histories(lake)}
    for row in read_entries(lake, f"block = {block.number:d} and kind = '{Kind.COPY}'", ("name", "lsn")).to_pylist():
        if row["name"] in tables:
            yield tables[row["name"]], Lsn(row["lsn"])


def numbers_of_copies(
    lake: Lake, table: HistoryTable, needed: Collection[str], concerns: Callable[[pa.Table], np.ndarray]
) -> Iterator[int]:
    """Yield the numbers of the entries of those rows of a table's copies that are concerned, by `needed` columns."""
    blocks = {block.number: block for block in read_blocks(lake)}
    condition = f"kind = '{Kind.COPY}'"
    for row in read_entries(lake, condition, ("name", "lsn", "block")).to_pylist():
        if row["name"] != str(table.name) or row["block"] not in blocks:
            continue
        block, lsn = blocks[row["block"]], Lsn(row["lsn"])
        of_copy = f"block = {block.number:d} and lsn = {lsn:d} and kind in ('{Kind.ROW}', '{Kind.ENDED}')"
        rows = read_entries(lake, of_copy, ("number", "name", "hash", "lookup", "secret"))
        rows = rows.filter(pc.equal(rows["name"], str(table.name)))
        numbers: dict[bytes, list[int]] = {}
        for number, hashed in zip(rows["number"].to_pylist(), rows["hash"].to_pylist(), strict=True):
            numbers.setdefault(hashed, []).append(number)
        for part in copied_rows(table, lsn, secrets_in(block, rows), needed):
            mask = concerns(part.rows)
            for hashed, concerned in zip(part.hashes, mask, strict=True):
                if concerned and numbers.get(hashed):
                    yield numbers[hashed].pop()
