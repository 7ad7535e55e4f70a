"""Rows of first copies and of new snapshots in the histories, as entries of the ledger. No JVM.

A *copy* is what a table had at the LSN of a snapshot: its first copy, or what a new snapshot changed. A history has
its rows as the versions that began with it (`_op` is `snapshot`), and those that it did not have any more as the
versions that ended with it (`_end_op` is `resync`). Both stay in the history, in whatever file, until they expire. All
else in a history follows from them and the changes, which `verify` folds again.

Rows have no order of their own, so the entries of a copy are in the order of their hashes.
"""

import hmac
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.errors import Unsupported
from auditlake.lake.history import RESYNC, HistoryTable
from auditlake.lake.history_files import Files, find_files
from auditlake.ledger.blocks import Block
from auditlake.ledger.canonical import (
    ENTRY,
    SECRET,
    SECRET_BYTES,
    VALUES,
    Identity,
    Kind,
    Value,
    canonical_text,
    list_texts,
)
from auditlake.ledger.entries import Entry
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.store.files import parquet
from auditlake.values.exact_text import stored_texts

_BATCH_ROWS = 65_536
_PERIOD = ("_from_lsn", "_to_lsn", "_op", "_end_op", "_ordinal", "_raw")


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Rows of one file that belong to a copy: their hashes, and their key as texts, by column."""

    kind: Kind
    hashes: list[bytes]
    file: str
    rows: pa.Table


def copies_of(table: HistoryTable, after: Lsn) -> list[Lsn]:
    """Return the LSNs of a table's snapshots after `after`, ascending."""
    files = _files(table)
    found = {table.snapshot_lsn}
    if after == 0 or table.first_snapshot_lsn != table.snapshot_lsn:
        for _, rows in _batches(files, ("_from_lsn", "_op")):
            begun = rows.filter(pc.equal(rows["_op"], "snapshot"))["_from_lsn"]
            found.update(map(Lsn, pc.unique(begun).to_pylist()))
    return sorted(lsn for lsn in found if lsn > after)


def copy_entry(table: HistoryTable, lsn: Lsn, rows: int, ended: int) -> Entry:
    """Return the entry of a copy: the names of its columns in the order of its values, and its numbers of rows."""
    columns = [text for each in committed_columns(table, lsn) for text in (each.name, "t" if each.key else "f")]
    fields: tuple[Value, ...] = (*table.name, lsn, rows, ended, columns)
    return Entry(Identity(Kind.COPY, lsn, None, str(table.name)), fields)


def committed_columns(table: HistoryTable, lsn: Lsn) -> list[Column]:
    """Return the columns whose values a row of a copy commits to, by name: a name is at most one column's at an LSN."""
    return sorted(table.columns_at(lsn), key=lambda column: column.name)


SecretOfRow = Callable[[Identity, bytes], bytes | None]
"""Returns the secret of a row of a copy, given its values in canonical form; None if it was destroyed."""


def derived(key: bytes) -> SecretOfRow:
    """Return the secrets that follow from the key of a block."""

    def secret(identity: Identity, values: bytes) -> bytes:
        return sha256(canonical_text((SECRET, key.hex(), *identity)).encode() + values).digest()[:SECRET_BYTES]

    return secret


def stored(secrets: Mapping[bytes, bytes], lookup_key: bytes) -> SecretOfRow:
    """Return the secrets that a block has by what `lookup` returns, once its key is gone."""

    def secret(identity: Identity, values: bytes) -> bytes | None:
        return secrets.get(lookup(lookup_key, identity, values))

    return secret


def secrets_in(block: Block, rows: pa.Table) -> SecretOfRow:
    """Return the secrets of the rows of a copy in a block, given its entries."""
    if block.key is not None:
        return derived(block.key)
    pairs = zip(rows["lookup"].to_pylist(), rows["secret"].to_pylist(), strict=True)
    return stored({found: secret for found, secret in pairs if secret is not None}, block.lookup_key or b"")


def lookup(key: bytes, identity: Identity, values: bytes) -> bytes:
    """Return what finds the stored secret of a row; without the lookup key of its block it tells nothing."""
    return hmac.digest(key, canonical_text(identity).encode() + values, "sha256")[:SECRET_BYTES]


def copied_rows(
    table: HistoryTable, lsn: Lsn, secrets: SecretOfRow, besides: Collection[str] = ()
) -> Iterator[CopiedRows]:
    """Hash the rows of a copy, file by file, with these secrets; a row without a secret has no hash.

    The rows also have the columns `besides`, by stored name, that their file has.

    Raises NotCanonical if a value has the byte 0, Unsupported if the history has foreign table features.
    """
    columns = committed_columns(table, lsn)
    shown = {*(column.stored for column in columns), *_PERIOD, *besides}
    for file, rows in _batches(_files(table), shown):
        for kind, condition in _PARTS.items():
            chosen = rows.filter(pc.fill_null(condition(rows, lsn), fill_value=False))
            if chosen.num_rows:
                identity = Identity(kind, lsn, None, str(table.name))
                yield CopiedRows(kind, _hashes(table, identity, secrets, chosen), file, chosen)


def _began(rows: pa.Table, lsn: Lsn) -> pa.Array:
    return pc.and_(pc.equal(rows["_op"], "snapshot"), pc.equal(rows["_from_lsn"], int(lsn)))


def _ended(rows: pa.Table, lsn: Lsn) -> pa.Array:
    return pc.and_(pc.equal(rows["_end_op"], RESYNC), pc.equal(rows["_to_lsn"], int(lsn)))


_PARTS = {Kind.ROW: _began, Kind.ENDED: _ended}


def values_of(table: HistoryTable, lsn: Lsn, rows: pa.Table) -> list[bytes]:
    """Return the canonical form of rows of a copy, from texts made by column; raises NotCanonical."""
    numbers = [rows[name].to_pylist() for name in ("_from_lsn", "_ordinal")]
    texts = [text_column(rows, column) for column in committed_columns(table, lsn)]
    lists = list_texts(texts, rows.num_rows).to_pylist()
    triples = zip(*numbers, lists, strict=True)
    return [canonical_text((begin, ordinal)).encode() + listed.encode() for begin, ordinal, listed in triples]


def _hashes(table: HistoryTable, identity: Identity, secrets: SecretOfRow, rows: pa.Table) -> list[bytes]:
    """Hash rows as `Entry.hash` does; empty bytes for one whose secret is destroyed."""
    lsn = Lsn(identity.lsn or 0)
    record_head = canonical_text((ENTRY, identity.kind, *table.name, lsn)).encode()
    values_head = canonical_text((VALUES,)).encode()
    found = []
    for values in values_of(table, lsn, rows):
        if (secret := secrets(identity, values)) is None:
            found.append(b"")
            continue
        commitment = sha256(b"%s%s\0;%s" % (values_head, secret.hex().encode(), values)).hexdigest()
        found.append(sha256(b"%s%s\0;" % (record_head, commitment.encode())).digest())
    return found


def row_entries(table: HistoryTable, lsn: Lsn, kind: Kind, rows: pa.Table) -> list[Entry]:
    """Return the entries of rows of a copy, with their values."""
    columns = committed_columns(table, lsn)
    texts = [text_column(rows, column).to_pylist() for column in columns]
    numbers = [rows[name].to_pylist() for name in ("_from_lsn", "_ordinal")]
    identity = Identity(kind, lsn, None, str(table.name))
    return [
        Entry(identity, (*table.name, lsn), (begin, ordinal, values))
        for begin, ordinal, *values in zip(*numbers, *texts, strict=True)
    ]


def find_copied(table: HistoryTable, lsn: Lsn, key: Sequence[tuple[Sequence[Column], str]]) -> Iterator[Entry]:
    """Yield the entries of a copy that concern the row with a key: of each part the physical columns, and the text."""
    typed = chain.from_iterable(columns for columns, _ in key)
    shown = {*(each.stored for each in (*committed_columns(table, lsn), *typed)), *_PERIOD}
    for _, rows in _batches(_files(table), shown):
        here = pa.array([True] * rows.num_rows)
        for columns, text in key:
            here = pc.and_(here, _has_text(rows, columns, text))
        chosen = rows.filter(here)
        for kind, condition in _PARTS.items():
            part = chosen.filter(pc.fill_null(condition(chosen, lsn), fill_value=False))
            yield from row_entries(table, lsn, kind, part) if part.num_rows else ()


def _has_text(rows: pa.Table, columns: Sequence[Column], text: str) -> pa.Array:
    found = pa.array([False] * rows.num_rows)
    for column in columns:
        if column.stored in rows.column_names:
            found = pc.or_(found, pc.fill_null(pc.equal(text_column(rows, column), text), fill_value=False))
    return found


def text_column(rows: pa.Table, column: Column) -> pa.Array:
    """Return the exact texts of a column of rows of a history."""
    return stored_texts(column, rows[column.stored].combine_chunks(), rows["_raw"].combine_chunks())


def _files(table: HistoryTable) -> Files:
    files = find_files(table)
    if files is None:
        raise Unsupported(
            f"{table.name} cannot be sealed: another program has given its history table features",
            "Undo that, or give the table a new snapshot: auditlake resync --table.",
        )
    return files


def _batches(files: Files, columns: Collection[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of some columns in parts, without the deleted ones, with the name of their file."""
    for path, name in zip(files.paths, files.by_name, strict=True):
        file = pq.ParquetFile(parquet(path))
        present = set(file.schema_arrow.names)
        gone = np.fromiter(files.gone(name), np.int64)
        first = 0
        for batch in file.iter_batches(_BATCH_ROWS, columns=[each for each in columns if each in present]):
            kept = np.ones(batch.num_rows, bool)
            here = gone[(gone >= first) & (gone < first + batch.num_rows)]
            kept[here - first] = False
            first += batch.num_rows
            yield name, pa.table(batch).filter(pa.array(kept))
