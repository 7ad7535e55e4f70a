r"""Proofs that a transaction, or the history of a row, is sealed: everything that a verifier without this code needs.

    {
      "format": "auditlake proof 1",
      "checkpoint": "auditlake/…\n1283\nqINS…\n",          the tree, or a whole signed digest
      "entries": [{"record": …, "secret": …, "values": …, "leaf": 7, "place": 3, "kind": …, …}, …],
      "pages": {"7": {"hashes": [hex, …], "path": [base64, …]}}
    }

A verifier checks, for each entry (docs/proof-and-erasure.md, tests/proof_verifier.py):

1. SHA-256(`auditlake values 1` 0; secret 0; values) is the commitment, the last field of the record.
2. SHA-256(record) is hash number `place` of the page of its leaf.
3. SHA-256(0x00 · `auditlake page 1` and a line feed · hashes) is a leaf; the path leads to the root from there.
4. The signature of the checkpoint.

If values were erased, `secret` and `values` are null: then 1 cannot be checked, and all else can.
`kind`, `lsn` and `ordinal` repeat fields of the record, for people. Only the secrets of these entries are shown.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from auditlake.audit.changes import in_changes
from auditlake.audit.history_conditions import types_over_time
from auditlake.audit.lake_reader import Reader, Span, in_lsns
from auditlake.audit.queries import RowQuestion, life_of
from auditlake.audit.row_key import Written
from auditlake.audit.transaction_contents import find_transaction
from auditlake.delta.sql import select
from auditlake.errors import BadUsage, LakeUnusable, NotAnswerable
from auditlake.lake.history import RESYNC, HistoryTable
from auditlake.lake.layout import Lake
from auditlake.ledger.blocks import PAGE_ENTRIES, Block, hashes_in, leaves_of, read_blocks, read_entries
from auditlake.ledger.canonical import OF_COPIES, Kind, canonical_text, hash_of, page_of
from auditlake.ledger.copies import copy_entry, find_copied, lookup
from auditlake.ledger.digest import checkpoint_of
from auditlake.ledger.entries import CHANGES, TRANSACTIONS, Entry, entry_of, small_entries, with_us
from auditlake.ledger.merkle import inclusion_path, leaf_hash
from auditlake.ledger.signed_note import read_checkpoint
from auditlake.lsn import Lsn
from auditlake.messages import say
from auditlake.temporal.knowledge import require_kept

FORMAT = "auditlake proof 1"
_MOST = 10_000
Row = Mapping[str, Any]
"""A row of the ledger's entries."""
Place = tuple[str, int | None, int | None, str]
_SEAL_FIRST = "auditlake seal seals it; then make a new digest."


@dataclass(frozen=True, slots=True)
class ProofTarget:
    """What to prove: a transaction, or a table and the key of a row, as it was written."""

    what: str
    key: Written


def proofs_of(lake: Lake, target: ProofTarget, note: str | None) -> dict[str, object]:
    """Return proofs as JSON, to a digest or to all that is sealed; raises BadUsage, NotAnswerable."""
    reader = Reader(lake, datetime.now(UTC))
    entries = list(_of_row(reader, target) if target.key else _of_transaction(reader, target.what))
    if len(entries) > _MOST:
        raise NotAnswerable(f"{target.what} has more than {_MOST:,} entries", "Prove a row of it: prove TABLE KEY.")
    return _Proofs(lake, note).of([*_relations(lake, entries), *entries])


def _of_transaction(reader: Reader, name: str) -> Iterator[Entry]:
    transaction, _ = find_transaction(reader, name)
    require_kept("changes", reader.expired, transaction.lsn, f"a proof of transaction {transaction.lsn}")
    condition = f"lsn = {transaction.lsn:d}"
    yield from _rows(reader, TRANSACTIONS.kind, condition)
    yield from _rows(reader, CHANGES.kind, f"{condition} order by ordinal limit {_MOST + 1}")


def _of_row(reader: Reader, target: ProofTarget) -> Iterator[Entry]:
    life = life_of(reader, RowQuestion(target.what, target.key, None, None))
    if not life.events:
        raise NotAnswerable(f"no row of {life.table.label} ever had this key", "auditlake row shows what is known.")
    reader.say_missing(Span(life.table.horizon, life.span.upto), [life.table])
    life.say_expired()
    keys = {key for event in life.events for key in (event.key, event.key_before) if key is not None}
    copied = {Lsn(event.mark.lsn) for event in life.events if event.mark.op in {"snapshot", RESYNC}}
    typed = [types_over_time(life.table, column) for column in life.table.key]
    for lsn in sorted(copied):
        table = _as_read(reader, life.table)
        yield _copy(reader.lake, table, lsn)
        for key in sorted(keys):
            yield from find_copied(table, lsn, list(zip(typed, key, strict=True)))
    lsns: list[int] = sorted({event.mark.lsn for event in life.events} - copied)
    if lsns:
        concerned = f"({in_changes(life.table, reader.relations_of(life.table), keys)} or op = 'truncate')"
        if lsns[0] <= reader.expired:
            say(f"the changes up to {reader.expired} have expired: of earlier ones, only their transactions are proved")
        condition = f"{reader.about(life.table.name)} and {in_lsns(lsns)} and {concerned}"
        yield from _rows(reader, TRANSACTIONS.kind, in_lsns(lsns))
        yield from _rows(reader, CHANGES.kind, f"{condition} order by lsn, ordinal")


def _copy(lake: Lake, table: HistoryTable, lsn: Lsn) -> Entry:
    """Return the entry of a copy, which has the names of its columns."""
    kinds = f"('{Kind.ROW}', '{Kind.ENDED}')"
    found = read_entries(lake, f"kind in {kinds} and lsn = {lsn:d}", ("number", "kind", "name")).to_pylist()
    counts = Counter(row["kind"] for row in found if row["name"] == str(table.name))
    return copy_entry(table, lsn, counts[Kind.ROW], counts[Kind.ENDED])


def _as_read(reader: Reader, table: HistoryTable) -> HistoryTable:
    """Return a table with the names of its columns that its history has."""
    as_read = reader.known.as_read or {}
    return as_read.get(table.name, table)


def _rows(reader: Reader, kind: Kind, condition: str) -> Iterator[Entry]:
    rows = CHANGES if kind is Kind.CHANGE else TRANSACTIONS
    table = reader.changes if kind is Kind.CHANGE else reader.transactions
    for row in with_us(select(f"from t where {condition}", t=table)).to_pylist():
        yield entry_of(rows, row)


def _relations(lake: Lake, entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the entries with the column names of the changes."""
    at = list(CHANGES.fields).index("relation")
    numbers = {entry.fields[at] for entry in entries if entry.identity.kind is Kind.CHANGE}
    for entry in small_entries(lake):
        if entry.identity.kind is Kind.RELATION and entry.fields[0] in numbers:
            yield entry


class _Proofs:
    """Proofs to one tree of a ledger."""

    def __init__(self, lake: Lake, note: str | None) -> None:
        self._lake = lake
        blocks = read_blocks(lake)
        if not blocks:
            raise NotAnswerable("nothing in this lake is sealed", _SEAL_FIRST)
        self._note = checkpoint_of(blocks[-1]).text() if note is None else note
        checkpoint = read_checkpoint(self._note)
        if checkpoint is None:
            raise BadUsage("the file is not a digest", "Give a file that auditlake digest wrote.")
        self._size = checkpoint.size
        found = next((block for block in blocks if block.tree.size == self._size), None)
        if found is None or found.tree.root != checkpoint.root:
            raise LakeUnusable("the digest names another ledger", "auditlake verify --digest shows what was changed.")
        self._blocks = {block.number: block for block in blocks if block.tree.size <= self._size}
        self._leaves = leaves_of(self._blocks.values())

    def of(self, entries: Sequence[Entry]) -> dict[str, object]:
        """Return the proofs of these entries."""
        proofs, pages = [], dict[str, object]()
        for entry, row in self._found(entries):
            block = self._blocks.get(row["block"])
            if block is None:
                raise _not_sealed(entry)
            if not block.has(row["number"]):
                raise _changed(block)
            page, place = divmod(row["number"] - block.first_entry, PAGE_ENTRIES)
            leaf = block.size_before + page
            if f"{leaf}" not in pages:
                pages[f"{leaf}"] = self._page(block, page, leaf)
            proofs.append(_proof(entry, block, row, (leaf, place)))
        return {"format": FORMAT, "checkpoint": self._note, "entries": proofs, "pages": pages}

    def _found(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, Row]]:
        """Yield each entry with its row in the ledger."""
        kinds = ", ".join(sorted({f"'{entry.identity.kind}'" for entry in entries}))
        lsns = in_lsns([entry.identity.lsn or 0 for entry in entries])
        rows = read_entries(self._lake, f"kind in ({kinds}) and {lsns}").to_pylist() if entries else []
        by_hash = {row["hash"]: row for row in rows}
        by_lookup = {row["lookup"]: row for row in rows if row["lookup"] is not None}
        by_place = {_place(*_identity(row)): row for row in rows}
        for entry in entries:
            row = self._by_key(entry, rows, by_hash) or self._by_secret(entry, by_lookup, by_place)
            if row is None:
                raise _erased(entry) if self._is_erased(entry, rows) else _not_sealed(entry)
            yield entry, row

    def _is_erased(self, entry: Entry, rows: Sequence[Row]) -> bool:
        """Return whether the ledger has an entry in its place, or one of its copy, without a secret."""
        at = _place(*entry.identity)
        without_secret = (row for row in rows if row["secret"] is None and at == _place(*_identity(row)))
        blocks = (self._blocks.get(row["block"]) for row in without_secret)
        return any(block is not None and block.key is None for block in blocks)

    def _by_key(self, entry: Entry, rows: Sequence[Row], by_hash: Mapping[bytes, Row]) -> Row | None:
        """Find the row of an entry whose secret follows from the key of its block."""
        blocks = (self._blocks[number] for number in _block_numbers(entry, rows, self._blocks))
        hashes = (entry.hash(entry.secret(block.key)) for block in blocks if block.key is not None)
        return next((by_hash[each] for each in hashes if each in by_hash), None)

    def _by_secret(self, entry: Entry, by_lookup: Mapping[bytes, Row], by_place: Mapping[Place, Row]) -> Row | None:
        """Find the row of an entry in a block without a key, also if its values were erased."""
        if entry.identity.kind in OF_COPIES:
            values = canonical_text(entry.values).encode()
            keys = [block.lookup_key for block in self._blocks.values() if block.lookup_key is not None]
            row = next((by_lookup[n] for k in keys if (n := lookup(k, entry.identity, values)) in by_lookup), None)
        else:
            row = by_place.get(_place(*entry.identity))
        if row is None or row["block"] not in self._blocks:
            return None
        return row if hash_of(_record(entry, self._blocks[row["block"]], row)) == row["hash"] else None

    def _page(self, block: Block, page: int, leaf: int) -> dict[str, object]:
        first = block.first_entry + page * PAGE_ENTRIES
        last = min(first + PAGE_ENTRIES, block.first_entry + block.entries)
        rows = read_entries(self._lake, f"number >= {first:d} and number < {last:d}", ("number", "hash"))
        hashes = hashes_in(rows)
        if self._leaves[leaf : leaf + 1] != [leaf_hash(page_of(hashes))]:
            raise _changed(block)
        path = [base64.b64encode(each).decode() for each in inclusion_path(self._leaves, leaf)]
        return {"hashes": [each.hex() for each in hashes], "path": path}


def _changed(block: Block) -> LakeUnusable:
    return LakeUnusable(
        f"the ledger was changed in block {block.number}", "auditlake verify --digest shows what was changed."
    )


def _block_numbers(entry: Entry, rows: Iterable[Mapping[str, object]], blocks: Mapping[int, Block]) -> list[int]:
    """Return the blocks that may have an entry, by its kind and its LSN."""
    same = {row["block"] for row in rows if (row["kind"], row["lsn"]) == (entry.identity.kind, entry.identity.lsn)}
    return [number for number in blocks if number in same]


def _identity(row: Row) -> tuple[str, int | None, int | None, str]:
    return row["kind"], row["lsn"], row["ordinal"], row["name"]


def _named(entry: Entry) -> str:
    kind, lsn, ordinal, _ = entry.identity
    return f"{kind} at {Lsn(lsn or 0)}" + (f", {ordinal}" if kind is Kind.CHANGE else "")


def _erased(entry: Entry) -> NotAnswerable:
    of_copy = ", or another row of its copy was, and it was changed" if entry.identity.kind in OF_COPIES else ""
    return NotAnswerable(
        f"{_named(entry)} was erased, so nothing proves it any more{of_copy}",
        "auditlake verify --digest shows whether anything was changed besides.",
    )


def _not_sealed(entry: Entry) -> NotAnswerable:
    return NotAnswerable(
        f"{_named(entry)} is not in the tree, or not as it was sealed",
        f"If it is newer than the tree, {_SEAL_FIRST} Else auditlake verify --digest shows what was changed.",
    )


def _place(kind: str, lsn: int | None, ordinal: int | None, name: str) -> Place:
    """Return what distinguishes an entry with a number, or a copy; the name of a change is for messages only."""
    return kind, lsn, ordinal, "" if kind in {Kind.CHANGE, Kind.TRANSACTION} else name


def _record(entry: Entry, block: Block, row: Row) -> str:
    """Return the record of an entry, without its values if these were erased; empty if nothing is left of it."""
    secret = block.secret(entry, row["secret"])
    if secret is not None:
        return entry.record(secret)
    return "" if row["commitment"] is None else entry.record_with(row["commitment"])


def _proof(entry: Entry, block: Block, row: Row, at: tuple[int, int]) -> dict[str, object]:
    kind, lsn, ordinal, _ = entry.identity
    secret, (leaf, place) = block.secret(entry, row["secret"]), at
    return {
        "kind": kind,
        "lsn": None if lsn is None else str(Lsn(lsn)),
        "ordinal": ordinal if kind is Kind.CHANGE else None,
        "record": _record(entry, block, row),
        "secret": None if secret is None else secret.hex(),
        "values": None if secret is None else canonical_text(entry.values),
        "leaf": leaf,
        "place": place,
    }
