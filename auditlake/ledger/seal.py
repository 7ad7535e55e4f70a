"""Seal what is durable in a lake: its logical rows become entries of blocks, and blocks leaves of one tree.

Order of effects, for each block, under the lock of the stage:

1. Delete entries above the last block: a killed run left them.
2. Write `next.json`, durable: the key of the block, its last change, and its time. A run that is killed later seals the
   same block from it, with the same hashes.
3. Append the entries, in as many commits as they need.
4. Append the block. From now on it exists, and a digest may name it.

Nothing above the watermark is sealed, because capture may discard it. A block has at most 100,000 transactions, and
ends after a million changes, within a transaction if that is larger. An existing lake is sealed from its beginning: its
first block proves what was in the lake when it was sealed.

This never runs in the way of capture. DataFusion hashes in its own threads, and appending is two commits, or a few more
for a copy of very many rows.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from auditlake.delta.append_table import NOT_JOINED, AppendLog
from auditlake.delta.datafusion import hashed
from auditlake.delta.sql import read_newest, select
from auditlake.failpoints import After, reach
from auditlake.instants import now_us
from auditlake.lake.histories import Histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import LEDGER_APP, Lake, path_segment
from auditlake.lake.manifest import require_manifest
from auditlake.lake.positions import read_positions
from auditlake.lake.records import read_record, write_record
from auditlake.lake.stage_lock import Stage, hold
from auditlake.lake.whereabouts import was_at, whereabouts
from auditlake.ledger.blocks import (
    BEGINNING,
    BLOCKS_SCHEMA,
    ENTRIES_SCHEMA,
    LAST_ORDINAL,
    Block,
    Bound,
    block_entry,
    page_leaves,
    read_entries,
    read_last_block,
)
from auditlake.ledger.canonical import IN_DATAFUSION, KEY_BYTES, Identity, Kind, sql_constant
from auditlake.ledger.copies import copied_rows, copies_of, copy_entry, derived
from auditlake.ledger.entries import CHANGES, TRANSACTIONS, Entry, small_entries, sql_of
from auditlake.ledger.merkle import Frontier
from auditlake.lsn import Lsn
from auditlake.messages import FailureReports
from auditlake.store.files import make_folder

MOST_TRANSACTIONS, MOST_CHANGES = 100_000, 1_000_000
_MOST_ENTRIES = 1 << 24
"""Entries of one commit: a copy may have more hashes than fit into one Arrow array, which ends at 2 GiB."""
_TIDY_EVERY = 200
"""Blocks after which small files are joined."""
_SMALL = "('relation', 'added', 'gap', 'hold', 'erasure', 'expiry', 'copy')"


@dataclass(frozen=True, slots=True)
class Next:
    """A block that is being sealed."""

    number: int
    key: bytes
    upto: Bound
    time_us: int

    def as_json(self) -> dict[str, object]:
        return {"block": self.number, "key": self.key.hex(), "upto": list(self.upto), "time": self.time_us}


@dataclass(slots=True)
class Sealer:
    """Seals one lake, again and again; keeps what is sealed of its small tables and copies."""

    lake: Lake
    stop: Callable[[], bool] = lambda: False
    last: Block | None = None
    was_stopped: bool = False
    """Whether the last pass ended after a block because of `stop`."""
    _histories: Histories | None = None
    _sealed: set[Identity] = field(default_factory=set)
    _copies: dict[str, Lsn] = field(default_factory=dict)

    def seal(self, command: str) -> list[Block]:
        """Seal all that is durable now, not what becomes so meanwhile; return the new blocks.

        Raises LakeConflict, LakeUnusable.
        """
        manifest = require_manifest(self.lake)
        with hold(self.lake, command, Stage.SEAL):
            make_folder(self.lake.ledger)
            writer = _Writer(self.lake)
            self._read_sealed()
            watermark = sealable_upto(self.lake)
            identity = f"auditlake/{manifest.system_identifier}/{path_segment(manifest.database)}"
            found, self.was_stopped = [], False
            while (block := self._seal_next(writer, identity, watermark)) is not None:
                found.append(block)
                if self.stop():
                    self.was_stopped = True
                    break
            return found

    def _read_sealed(self) -> None:
        """Read the last block, and if another process sealed it, what is sealed of small tables and copies."""
        last = read_last_block(self.lake)
        if last is not None and last == self.last:
            return
        self.last = last
        rows = read_entries(self.lake, f"kind in {_SMALL}", ("kind", "lsn", "ordinal", "name", "number")).to_pylist()
        self._sealed = {Identity(Kind(row["kind"]), row["lsn"], row["ordinal"], row["name"]) for row in rows}
        self._copies = {}
        for each in self._sealed:
            if each.kind is Kind.COPY:
                self._copies[each.name] = max(self._copies.get(each.name, Lsn(0)), Lsn(each.lsn or 0))

    def _seal_next(self, writer: "_Writer", identity: str, watermark: Lsn) -> Block | None:
        number = self.last.number + 1 if self.last else 0
        after = self.last.upto if self.last else BEGINNING
        place = whereabouts(self.lake, self.lake.ledger_blocks)
        is_same = self.last is not None and self._is_at(self.last, place)
        prepared = _read_prepared(self.lake, number)
        upto = prepared.upto if prepared else _cut(self.lake, after, watermark)
        small = [entry for entry in small_entries(self.lake) if entry.identity not in self._sealed]
        copies = self._new_copies()
        if is_same and upto == after and not small and not copies:
            return None
        following = prepared or Next(number, secrets.token_bytes(KEY_BYTES), upto, now_us())
        if prepared is None:
            write_record(self.lake, self.lake.next_block, following.as_json(), durable=True)
            reach(After.BLOCK_PREPARED)
        origin = self.last.origin if self.last and is_same else f"{identity}/{_incarnation(following.key)}"
        begun = _Begun(self.lake, following, after, origin, place, self.last)
        block = writer.write(begun, small, copies)
        self.last = block
        self._sealed |= {entry.identity for entry in small}
        self._copies |= {str(table.name): lsn for table, lsn in copies}
        return block

    def _is_at(self, last: Block, place: str) -> bool:
        """Return whether the last block was sealed where the lake is now."""
        return last.place == place or was_at(self.lake.ledger_blocks, last.place, last.time_us)

    def _new_copies(self) -> list[tuple[HistoryTable, Lsn]]:
        """Return the copies that are not sealed, by table and LSN."""
        self._histories = self._histories or Histories(self.lake)
        found = []
        for table in self._histories.current():
            sealed = self._copies.get(str(table.name), Lsn(0))
            if table.snapshot_lsn > sealed:
                found += [(table, lsn) for lsn in copies_of(table, sealed)]
        return found


def sealable_upto(lake: Lake) -> Lsn:
    """Return the commit LSN up to which everything is durable; 0 if capture has never started."""
    positions = read_positions(lake)
    return Lsn(0) if positions is None else positions.watermark


def _incarnation(key: bytes) -> str:
    """Return the last part of an origin, from the key of its first block, which it does not reveal."""
    return sha256(b"auditlake incarnation" + key).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class _Begun:
    lake: Lake
    following: Next
    after: Bound
    origin: str
    place: str
    last: Block | None

    @property
    def tree(self) -> Frontier:
        return self.last.tree if self.last else Frontier()

    def block(self, entries: int, leaves: Sequence[bytes] = ()) -> Block:
        first = self.last.first_entry + self.last.entries if self.last else 0
        given = self.following
        return Block(
            given.number,
            self.origin,
            self.place,
            first,
            entries,
            self.tree.with_leaves(leaves),
            self.after,
            given.upto,
            given.key,
            given.time_us,
            b"".join(leaves),
        )


class _Writer:
    """Writes the two tables."""

    def __init__(self, lake: Lake) -> None:
        self._entries = AppendLog(lake.ledger_entries, ENTRIES_SCHEMA)
        self._blocks = AppendLog(lake.ledger_blocks, BLOCKS_SCHEMA)
        self._failures = FailureReports()
        written, last = (self._last(log) for log in (self._entries, self._blocks))
        if written > last:
            self._entries.discard_above("block", last)
            self._entries.put_back(LEDGER_APP, last)

    @staticmethod
    def _last(log: AppendLog) -> int:
        """Return the number of the last block in a table, -1 before the first."""
        position = log.position(LEDGER_APP)
        return -1 if position is None else position

    def write(self, begun: _Begun, small: Sequence[Entry], copies: Sequence[tuple[HistoryTable, Lsn]]) -> Block:
        """Write the entries of a block, then the block."""
        key, number = begun.following.key, begun.following.number
        head = block_entry(begun.block(0), begun.tree)
        parts = [_table([head, *small], key)]
        parts += [_copied(table, lsn, key) for table, lsn in copies]
        parts += [*_streamed(begun)]
        entries = pa.concat_tables(parts)
        hashes = entries["hash"].to_pylist()
        block = begun.block(len(hashes), page_leaves(hashes))
        numbers = pa.array(np.arange(block.first_entry, block.first_entry + len(hashes)))
        nothing = pa.nulls(len(hashes), pa.binary())
        columns = [numbers, pa.repeat(pa.scalar(number, pa.int64()), len(hashes)), *entries.columns, *[nothing] * 3]
        rows = pa.table(columns, schema=ENTRIES_SCHEMA)
        for first in range(0, len(rows), _MOST_ENTRIES):
            (batch,) = rows.slice(first, _MOST_ENTRIES).combine_chunks().to_batches()
            self._entries.append(batch, {LEDGER_APP: number})
        reach(After.ENTRIES_SEALED)
        self._blocks.append(pa.RecordBatch.from_pylist([block.row()], BLOCKS_SCHEMA), {LEDGER_APP: number})
        reach(After.BLOCK_SEALED)
        if number % _TIDY_EVERY == _TIDY_EVERY - 1:
            for damaged in (*self._entries.tidy(), *self._blocks.tidy()):
                self._failures.report(NOT_JOINED, damaged)
        return block


_ADDED_LATER = {"number", "block", "secret", "lookup", "commitment"}
_COLUMNS = pa.schema([field for field in ENTRIES_SCHEMA if field.name not in _ADDED_LATER])


def _table(entries: Sequence[Entry], key: bytes) -> pa.Table:
    rows = [{**entry.identity._asdict(), "hash": entry.hash(entry.secret(key))} for entry in entries]
    return pa.Table.from_pylist(rows, _COLUMNS)


def _copied(table: HistoryTable, lsn: Lsn, key: bytes) -> pa.Table:
    """Return the entries of a copy: its own, then those of its rows by their hashes."""
    hashes: dict[Kind, list[bytes]] = {Kind.ROW: [], Kind.ENDED: []}
    for part in copied_rows(table, lsn, derived(key)):
        hashes[part.kind] += part.hashes
    own = copy_entry(table, lsn, len(hashes[Kind.ROW]), len(hashes[Kind.ENDED]))
    parts = [_table([own], key)]
    for kind, found in hashes.items():
        rows = len(found)
        constants = (
            pa.array([value] * rows, each.type) for value, each in zip((kind, int(lsn)), _COLUMNS, strict=False)
        )
        columns = [*constants, pa.nulls(rows, pa.int64()), pa.array([str(table.name)] * rows), pa.array(sorted(found))]
        parts.append(
            pa.table([column.cast(each.type) for column, each in zip(columns, _COLUMNS, strict=True)], _COLUMNS)
        )
    return pa.concat_tables(parts)


def _streamed(begun: _Begun) -> Iterator[pa.Table]:
    """Return the entries of the transactions of a block, and of its changes."""
    if begun.after == begun.following.upto:
        return
    key = sql_constant(begun.following.key.hex())
    lake, bounds = begun.lake, (begun.after, begun.following.upto)
    for rows, place, condition, ordinal, name in (
        (TRANSACTIONS, lake.transactions, commits_in(*bounds), "0", "''"),
        (CHANGES, lake.changes, changes_in(*bounds), "ordinal", NAME.format("")),
    ):
        shown = f"'{rows.kind}' as kind, lsn, cast({ordinal} as bigint) as ordinal, {name} as name"
        entries = hashed(place, f"select {shown}, {sql_of(rows, key, IN_DATAFUSION)} as hash from t where {condition}")
        if entries is not None:
            yield entries.cast(_COLUMNS).sort_by([("lsn", "ascending"), ("ordinal", "ascending")])


NAME = "concat(coalesce({0}\"schema\", ''), '.', coalesce({0}\"table\", ''))"
"""SQL for the table of a change, given an alias: the `name` of its entry, which is for messages only."""


def changes_in(after: Bound, upto: Bound) -> str:
    """Return the condition that a change is in (`after`, `upto`]; bounds of LSNs alone let files be skipped."""
    first = f"(lsn > {after.lsn:d} or ordinal > {after.ordinal:d})"
    last = f"(lsn < {upto.lsn:d} or ordinal <= {upto.ordinal:d})"
    return f"lsn >= {after.lsn:d} and lsn <= {upto.lsn:d} and {first} and {last}"


def commits_in(after: Bound, upto: Bound) -> str:
    """Return the condition that a transaction became complete in (`after`, `upto`]."""
    return f"lsn > {after.commit:d} and lsn <= {upto.commit:d}"


def _cut(lake: Lake, after: Bound, watermark: Lsn) -> Bound:
    """Return where the block after `after` ends: at the watermark, or when it is large enough."""
    if watermark <= after.commit:
        return after
    rows = _transactions_after(lake, after, watermark)
    counts = np.cumsum(rows["changes"].to_numpy())
    fit = min(int(np.searchsorted(counts, MOST_CHANGES, side="right")), MOST_TRANSACTIONS)
    if fit >= len(counts):
        return Bound(watermark, LAST_ORDINAL)
    if fit:
        return Bound(rows["lsn"][fit - 1].as_py(), LAST_ORDINAL)
    return _within(lake, rows["lsn"][0].as_py(), after)


def _transactions_after(lake: Lake, after: Bound, watermark: Lsn) -> pa.Table:
    table = read_newest(lake.transactions)
    if table is None:
        return pa.table({"lsn": pa.array([], pa.int64()), "changes": pa.array([], pa.int64())})
    changes = "inserts + updates + deletes + truncates as changes"
    condition = f"lsn > {after.commit:d} and lsn <= {watermark:d} order by lsn limit {MOST_TRANSACTIONS + 1}"
    return select(f"select lsn, {changes} from t where {condition}", t=table.within(lsn=(after.commit + 1, watermark)))


def _within(lake: Lake, lsn: int, after: Bound) -> Bound:
    """Return where a block ends within a transaction, or its end."""
    first = after.ordinal if after.lsn == lsn else -1
    changes = read_newest(lake.changes)
    sql = f"select max(ordinal) as o from t where lsn = {lsn:d}"
    greatest = None if changes is None else select(sql, t=changes.within(lsn=(lsn, lsn)))["o"][0].as_py()
    ordinal = first + MOST_CHANGES
    return Bound(lsn, LAST_ORDINAL if greatest is None or greatest <= ordinal else ordinal)


def _read_prepared(lake: Lake, number: int) -> Next | None:
    """Read the block that a killed run prepared; None if it was sealed, or there is none."""

    def read(content: Mapping[str, Any]) -> Next:
        upto = Bound(*map(int, content["upto"]))
        return Next(int(content["block"]), bytes.fromhex(content["key"]), upto, int(content["time"]))

    prepared = read_record(lake.next_block, read, "Delete it; nothing names its block yet.")
    return prepared if prepared is not None and prepared.number == number else None
