"""Verify a lake against digests: recompute the tree from the ledger, and the ledger from the lake's rows. No JVM.

1. The ledger against itself and the digests. The entries of each block must give the tree that the block names, each
   block must continue the one before, and the tree of a digest's size must have the digest's root. Then it is the tree
   that was signed. If not, the blocks between the last digest that fits and the first one that does not are reported.
2. The lake against the ledger: every sealed row is hashed again and compared with its entry. A row that was changed,
   removed or inserted is named, by commit, table and file.

Blocks after the last digest are compared, too, but prove nothing: whoever can write the lake can write them. Rows that
are not sealed yet are not compared. Of a history, only the rows of copies are sealed; all other versions follow from
these and the changes, and `verify.history_rules` folds them again.

Rows that have expired are counted. Their entries stay, and the record of a run of retention must have the horizon.

Findings name tables, commits and keys, never other values.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.delta.append_table import open_delta
from auditlake.delta.data_files import DataFile, check_files
from auditlake.delta.log_reader import file_path
from auditlake.delta.sql import TableFiles, read_newest, select
from auditlake.errors import AuditlakeError, LakeConflict, LakeUnusable, NotAnswerable
from auditlake.lake.erasures import ERASED_KEY, ERASED_OP, read_erasures
from auditlake.lake.expiries import CHANGES_NAME, TRANSACTIONS_NAME, expired_of, expired_upto, read_runs
from auditlake.lake.histories import list_histories
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, holder_lives
from auditlake.ledger.blocks import (
    Block,
    Bound,
    block_entry,
    hashes_in,
    origins_of,
    page_leaves,
    read_blocks,
    read_entries,
)
from auditlake.ledger.canonical import IN_DUCKDB, OF_COPIES, Identity, Kind, NotCanonical
from auditlake.ledger.copies import (
    CopiedRows,
    committed_columns,
    copied_rows,
    copies_of,
    copy_entry,
    secrets_in,
    text_column,
)
from auditlake.ledger.entries import CHANGES, TRANSACTIONS, Entry, Stored, small_entries, sql_has_form, sql_of
from auditlake.ledger.labels import wrong_labels
from auditlake.ledger.merkle import Frontier, root_of
from auditlake.ledger.seal import NAME, changes_in, commits_in
from auditlake.ledger.signed_note import Checkpoint
from auditlake.lsn import Lsn
from auditlake.store.files import parquet
from auditlake.store.place import Place

_AT_ONCE = 1_000_000
"""Entries that are compared by one statement."""
_TABLE_OF = {
    Kind.RELATION: "relations",
    Kind.ADDED: "added",
    Kind.GAP: "gaps",
    Kind.HOLD: "holds",
    Kind.ERASURE: "erasures",
    Kind.EXPIRY: "expiries",
}
"""The record, by kind of entry, that has the rows of small kinds."""
LEDGER = "ledger"
_RESTORE = "Restore the lake from a copy that these digests prove, and find out who can write to it."


@dataclass(frozen=True, slots=True)
class VerifiedDigest:
    """A digest whose signature was verified, and its place."""

    origin: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A row that is not as it was sealed, or a part of the ledger that is not what a digest names.

    `kind` is what was found, `table` the table concerned, `lsn` the commit, `ordinal` the change in it, `key` the row's
    key by column, `file` the data file that has the row now.
    """

    kind: str
    table: str
    lsn: Lsn | None = None
    ordinal: int | None = None
    key: tuple[tuple[str, str | None], ...] = ()
    file: str | None = None
    detail: str | None = None

    def order(self) -> tuple[int, int, str]:
        """Return the place in the order of commits; a mismatch without an LSN comes first."""
        return (-1 if self.lsn is None else self.lsn, -1 if self.ordinal is None else self.ordinal, self.table)

    def place(self, *, keys: bool = True) -> str:
        """Return its place in words."""
        parts = [self.table]
        parts += [f"commit {self.lsn}"] if self.lsn is not None else []
        parts += [f"change {self.ordinal}"] if self.ordinal is not None else []
        if keys:
            parts += [f"{name}={'NULL' if value is None else value!r}" for name, value in self.key]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Proof:
    """Result: `proved` is the last commit that a digest proves to be as it was, None without one.

    `sealed` is the last sealed commit, `by` the digest that proves the most, `sealed_us` when its tree was sealed.
    """

    proved: Lsn | None
    sealed: Lsn
    by: str | None
    sealed_us: int | None
    entries: int
    mismatches: tuple[Mismatch, ...] = ()
    more: bool = False
    notes: tuple[str, ...] = field(default=())

    def failure(self) -> AuditlakeError | None:
        """Return the error for a lake that is not what its digests name; None if it is."""
        if self.mismatches:
            first = self.mismatches[0]
            where = f" (file {first.file})" if first.file else ""
            return LakeUnusable(
                f"the lake was changed; first: {first.kind}: {first.place(keys=False)}{where}", _RESTORE
            )
        return None


def verify_digests(lake: Lake, digests: Sequence[VerifiedDigest], limit: int) -> Proof:
    """Compare a lake with digests, up to `limit` mismatches.

    Raises NotAnswerable without a ledger, LakeUnusable; LakeConflict if what differs may have been removed meanwhile.
    """
    before = _removals(lake)
    try:
        proof = _verified(lake, digests, limit)
    except OSError as exc:
        _require_undisturbed(lake, before, exc)
        raise
    if proof.mismatches:
        _require_undisturbed(lake, before)
    return proof


def _removals(lake: Lake) -> tuple[object, ...] | None:
    """Return the erasures and retentions so far; None if one runs."""
    records = *read_erasures(lake), *read_runs(lake)
    # Asked afterwards: a retention records its beginning alone.
    return None if holder_lives(lake, Stage.ERASE) else records


def _require_undisturbed(lake: Lake, before: tuple[object, ...] | None, cause: OSError | None = None) -> None:
    """Require that no erasure or retention ran since `before`, or runs: rows were read before and after it."""
    if before is None or _removals(lake) != before:
        raise LakeConflict(
            f"an erasure or retention was at work on {lake.root} during the comparison", "Run this again after it."
        ) from cause


def _verified(lake: Lake, digests: Sequence[VerifiedDigest], limit: int) -> Proof:
    blocks = read_blocks(lake)
    if not blocks:
        raise NotAnswerable("nothing in this lake is sealed, so no digest proves it", "auditlake digest seals it.")
    damaged = [*_damaged_files(lake)]
    checked = _check_tree(lake, blocks)
    found = [*damaged, *checked.mismatches]
    proving: VerifiedDigest | None = None
    for each in sorted(digests, key=lambda digest: digest.checkpoint.size):
        if (mismatch := _against(each, blocks, checked, proving)) is not None:
            found.append(mismatch)
            break
        proving = each
    rows = _Rows(lake, blocks, limit, frozenset(each.table for each in damaged))
    found += rows.mismatches()
    found.sort(key=Mismatch.order)
    last = _last_block(blocks, proving)
    return Proof(
        None if last is None else last.upto.commit,
        blocks[-1].upto.commit,
        None if proving is None else proving.origin,
        None if last is None else last.time_us,
        sum(block.entries for block in blocks),
        tuple(found[:limit]),
        len(found) > limit,
        tuple(rows.notes),
    )


def _last_block(blocks: Sequence[Block], proving: VerifiedDigest | None) -> Block | None:
    """Return the last block that is whole in the tree of a digest."""
    size = 0 if proving is None else proving.checkpoint.size
    return next((block for block in reversed(blocks) if block.tree.size <= size), None)


@dataclass(frozen=True, slots=True)
class _Tree:
    leaves: list[bytes]
    mismatches: list[Mismatch]


def _check_tree(lake: Lake, blocks: Sequence[Block]) -> _Tree:
    """Compute the tree from the entries, and compare it with what each block has."""
    leaves: list[bytes] = []
    found: list[Mismatch] = []
    before, entries, upto = Frontier(), 0, Bound(0, blocks[0].after.ordinal)
    for number, (block, rows) in enumerate(_with_entries(lake, blocks)):
        own = page_leaves(hashes_in(rows))
        after = before.with_leaves(own)
        leaves += own
        problem = _problem(block, number, before, after)
        if problem is None and block.leaves != b"".join(own):
            problem = "has other leaves than its entries make"
        if problem is None and (block.first_entry, block.after) != (entries, upto):
            problem = "does not continue the block before"
        if problem is None and rows["number"].to_pylist() != list(range(entries, entries + block.entries)):
            problem = "lacks entries, or has others"
        if problem is None and not _is(block_entry(block, before), block, rows.slice(0, 1).to_pylist()):
            problem = "its bounds, its time or its key are not those that were sealed"
        if problem is not None and not found:
            found.append(
                Mismatch("changed ledger", LEDGER, block.after.commit, detail=f"block {block.number} {problem}")
            )
        before, entries, upto = after, entries + block.entries, block.upto
    return _Tree(leaves, found)


def _problem(block: Block, number: int, before: Frontier, after: Frontier) -> str | None:
    if block.number != number:
        return f"is in the place of block {number}"
    if block.tree.size != after.size or block.size_before != before.size:
        return f"has a tree of {block.tree.size} leaves, its entries make {after.size}"
    if block.tree.root != after.root or block.tree.subtrees != after.subtrees:
        return "has another tree than its entries make"
    return None


def _with_entries(lake: Lake, blocks: Sequence[Block]) -> Iterator[tuple[Block, pa.Table]]:
    """Yield each block with number and hash of its entries, read in parts."""
    for part in _parts(blocks):
        condition = f"block between {part[0].number:d} and {part[-1].number:d}"
        rows = read_entries(lake, condition, ("number", "block", "hash", "secret"))
        for block in part:
            yield block, rows.filter(pc.equal(rows["block"], block.number))


def _parts(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Cut blocks into parts of about a million entries."""
    part: list[Block] = []
    for block in blocks:
        part.append(block)
        if sum(each.entries for each in part) >= _AT_ONCE:
            yield part
            part = []
    if part:
        yield part


def _against(
    digest: VerifiedDigest, blocks: Sequence[Block], tree: _Tree, proving: VerifiedDigest | None
) -> Mismatch | None:
    """Compare the tree with a digest; `proving` is the largest one that fits."""
    named = digest.checkpoint
    origins = origins_of(blocks)
    sizes = origins.get(named.origin)
    if sizes is None:
        detail = f"{digest.origin} is of {named.origin}, this lake is {', '.join(origins)}"
        return Mismatch("digest of another lake", LEDGER, detail=detail)
    first, last = sizes
    if named.size > last:
        ended = "parted" if last < blocks[-1].tree.size else "ends"
        detail = f"{digest.origin} names {named.size} leaves, this lake {ended} after {last}"
        at = next(block.upto.commit for block in blocks if block.tree.size == last)
        return Mismatch("lost ledger: an older copy, or one that went on otherwise", LEDGER, at, detail=detail)
    if named.size < first or root_of(tree.leaves[: named.size]) != named.root:
        since = 0 if proving is None else proving.checkpoint.size
        within = [block for block in blocks if since < block.tree.size and block.size_before < named.size]
        since_commit = within[0].after.commit if within else None
        numbers = f"{within[0].number} to {within[-1].number}" if within else "none"
        detail = f"{digest.origin} names another tree: blocks {numbers} are not those that were sealed"
        return Mismatch("changed ledger", LEDGER, since_commit, detail=detail)
    return None


def _damaged_files(lake: Lake) -> Iterator[Mismatch]:
    """Yield files of the lake's own tables that are missing, or not those that the log names."""
    for place in (*lake.own_tables, *lake.ledger_tables):
        table = open_delta(place)
        for each in () if table is None else check_files(place, table.version()):
            name = f"{LEDGER}/{place.name}" if place in lake.ledger_tables else place.name
            yield Mismatch(each.kind, name, file=each.file, detail=each.detail)


class _Rows:
    """Compares the rows of a lake with the entries of its ledger."""

    def __init__(self, lake: Lake, blocks: Sequence[Block], limit: int, damaged: Collection[str]) -> None:
        """Compare all but the rows of the `damaged` tables of the lake, which lack files."""
        self._lake = lake
        self._blocks = blocks
        self._by_number = {block.number: block for block in blocks}
        self._erased = frozenset(number for each in read_erasures(lake) for number in each.entries)
        self._limit = limit
        self._damaged = damaged
        self._runs = read_runs(lake)
        self.notes = [f"the rows of {name} are not compared: files of it are damaged" for name in sorted(damaged)]

    def mismatches(self) -> Iterator[Mismatch]:
        """Yield the differences from the sealed rows."""
        for part in _parts(self._blocks):
            yield from self._streamed(part)
            yield from self._labelled(part)
        yield from self._unordered()
        yield from self._expired()
        yield from self._destroyed()
        yield from self._small()
        yield from self._copies()

    def _streamed(self, part: Sequence[Block]) -> Iterator[Mismatch]:
        after, upto = part[0].after, part[-1].upto
        of_block = f"e.block between {part[0].number:d} and {part[-1].number:d}"
        if after == upto:
            return
        for rows, place, condition in (
            (TRANSACTIONS, self._lake.transactions, commits_in(after, upto)),
            (CHANGES, self._lake.changes, changes_in(after, upto)),
        ):
            if place.name in self._damaged:
                continue
            try:
                table = read_newest(place)
                if table is None:
                    yield Mismatch("missing table", place.name)
                    continue
                yield from self._joined(rows.kind, table.within(lsn=(after.lsn, upto.lsn)), condition, of_block)
            except (OSError, pa.ArrowException) as exc:
                yield Mismatch("unreadable file", place.name, detail=type(exc).__name__)

    def _unordered(self) -> Iterator[Mismatch]:
        """Yield the tables with rows that have no place in the order of commits, so that no block has them."""
        for place, condition in (
            (self._lake.transactions, "lsn is null or lsn <= 0"),
            (self._lake.changes, "lsn is null or lsn <= 0 or ordinal is null"),
        ):
            table = None if place.name in self._damaged else read_newest(place)
            if table is not None and select(f"select 1 from t where {condition} limit 1", t=table).num_rows:
                yield Mismatch("inserted row", place.name, detail="it has no LSN, or no ordinal")

    def _labelled(self, part: Sequence[Block]) -> Iterator[Mismatch]:
        """Yield the entries that no row is compared with, because of their labels."""
        for each in wrong_labels(self._lake, part, self._limit + 1):
            detail = f"the label of entry {each.number} is not one that an entry of block {each.block} has"
            yield Mismatch("changed ledger", LEDGER, self._by_number[each.block].after.commit, detail=detail)

    def _expired(self) -> Iterator[Mismatch]:
        """Yield each horizon of the log that no record of retention has; count the rows that have expired."""
        for name, kind in ((TRANSACTIONS_NAME, Kind.TRANSACTION), (CHANGES_NAME, Kind.CHANGE)):
            table = None if name.table in self._damaged else read_newest(self._lake.root / name.table)
            if table is None or not (horizon := expired_upto(table)):
                continue
            removed = expired_of(self._runs, name)
            sealed = len(read_entries(self._lake, f"kind = '{kind}' and lsn <= {horizon:d}", ("number",)))
            counted = f"select count(*) as rows from t where lsn <= {horizon:d}"
            left = select(counted, t=table.within(lsn=(None, horizon)))["rows"][0].as_py()
            self.notes.append(f"{sealed - left:,} {name.table} up to {horizon} have expired")
            if horizon not in removed:
                yield Mismatch("moved horizon", name.table, horizon, detail="no record of retention has it")
            elif sealed - left > sum(removed.values()):
                detail = f"{sealed - left:,} up to there are missing, {sum(removed.values()):,} have expired"
                yield Mismatch("removed rows", name.table, horizon, detail=detail)

    def _joined(self, kind: Kind, table: TableFiles, condition: str, of_block: str) -> Iterator[Mismatch]:
        place, listed = table.place, table.files
        of_ledger = {each.name: read_newest(each) for each in self._lake.ledger_tables}
        for sql in (_compared(kind, condition, of_block, expired_upto(table)), _repeated(kind, condition)):
            found = select(f"{sql} limit {self._limit + 1}", t=table, **of_ledger)
            for row in found.to_pylist():
                ordinal = row["ordinal"] if kind is Kind.CHANGE else None
                name = row["name"] if kind is Kind.CHANGE else "transactions"
                what = "change" if kind is Kind.CHANGE else "transaction"
                file = None if row["found"] == "removed" else _file_of(place, listed, row["lsn"], ordinal)
                yield Mismatch(f"{row['found']} {what}", name or place.name, Lsn(row["lsn"] or 0), ordinal, file=file)

    def _destroyed(self) -> Iterator[Mismatch]:
        """Yield the entries whose secrets were destroyed, although no erasure records it: any row would fit."""
        without_key = ", ".join(f"{block.number:d}" for block in self._blocks if block.key is None)
        if not without_key:
            return
        kinds = ", ".join(f"'{kind}'" for kind in OF_COPIES)
        condition = f"secret is null and block in ({without_key}) and kind not in ({kinds})"
        for row in read_entries(self._lake, condition, ("number", "kind", "lsn", "block")).to_pylist():
            if row["number"] not in self._erased:
                detail = f"entry {row['number']} of block {row['block']} has no secret, and no erasure names it"
                yield Mismatch("destroyed secret", LEDGER, Lsn(row["lsn"] or 0), detail=detail)
        self.notes.append(f"{len(self._erased):,} entries commit to values that were erased")

    def _small(self) -> Iterator[Mismatch]:
        present: dict[Identity, list[Entry]] = {}
        for each in small_entries(self._lake):
            present.setdefault(each.identity, []).append(each)
        kinds = ", ".join(f"'{kind}'" for kind in _TABLE_OF)
        sealed: set[Identity] = set()
        for row in read_entries(self._lake, f"kind in ({kinds})").to_pylist():
            identity = Identity(Kind(row["kind"]), row["lsn"], row["ordinal"], row["name"])
            sealed.add(identity)
            entries, block = present.get(identity, []), self._by_number.get(row["block"])
            lsn, table = Lsn(row["lsn"] or 0), _TABLE_OF[identity.kind]
            if not entries:
                yield Mismatch("removed row", table, lsn, detail=row["name"])
            elif block is None or not all(_is(entry, block, [row]) for entry in entries):
                yield Mismatch("changed row", table, lsn, detail=row["name"])
        if unsealed := present.keys() - sealed:
            tables = sorted({_TABLE_OF[each.kind] for each in unsealed})
            self.notes.append(f"{len(unsealed)} rows of {', '.join(tables)} are not sealed yet")

    def _copies(self) -> Iterator[Mismatch]:
        tables = {str(table.name): table for table in list_histories(self._lake)}
        yield from self._moved(tables.values())
        sealed: dict[str, set[Lsn]] = {}
        for row in read_entries(self._lake, f"kind = '{Kind.COPY}'").to_pylist():
            name, lsn = row["name"], Lsn(row["lsn"] or 0)
            sealed.setdefault(name, set()).add(lsn)
            block = self._by_number.get(row["block"])
            if name not in tables or block is None:
                yield Mismatch("removed table", name, lsn)
                continue
            yield from self._copy(tables[name], lsn, block, row)
        yield from self._unsealed_copies(tables, sealed)

    def _moved(self, tables: Iterable[HistoryTable]) -> Iterator[Mismatch]:
        """Yield the tables whose horizon no record of retention has."""
        for table in tables:
            if table.has_expired and table.horizon not in expired_of(self._runs, table.name):
                yield Mismatch("moved horizon", str(table.name), table.horizon, detail="no record of retention has it")

    def _unsealed_copies(
        self, tables: Mapping[str, HistoryTable], sealed: Mapping[str, set[Lsn]]
    ) -> Iterator[Mismatch]:
        for name, table in tables.items():
            known = sealed.get(name, set())
            for lsn in copies_of(table, Lsn(0)):
                if lsn in known:
                    continue
                if known and lsn < max(known):
                    yield Mismatch("inserted rows", name, lsn, detail="no snapshot was taken there")
                else:
                    self.notes.append(f"the snapshot of {name} at {lsn} is not sealed yet")

    def _copy(self, table: HistoryTable, lsn: Lsn, block: Block, own: Mapping[str, Any]) -> Iterator[Mismatch]:
        condition = f"block = {block.number:d} and lsn = {lsn:d}"
        rows = read_entries(self._lake, f"{condition} and kind in ('{Kind.ROW}', '{Kind.ENDED}')")
        rows = rows.filter(pc.equal(rows["name"], str(table.name)))
        counts = [pc.sum(pc.equal(rows["kind"], kind)).as_py() or 0 for kind in _OF_COPY]
        destroyed = sum(number in self._erased for number in rows["number"].to_pylist())
        left = rows if block.key is not None else rows.filter(rows["secret"].is_valid())
        without_secret = len(rows) - len(left) - destroyed if block.key is None else 0
        expected = {kind: Counter(left.filter(pc.equal(left["kind"], kind))["hash"].to_pylist()) for kind in _OF_COPY}
        found: list[Mismatch] = []
        try:
            for part in copied_rows(table, lsn, secrets_in(block, rows)):
                found += _unexpected(table, lsn, part, expected[part.kind])
        except NotCanonical:
            found.append(Mismatch("changed row", str(table.name), lsn, detail="a value has the byte 0"))
        except (OSError, pa.ArrowException) as exc:
            found.append(Mismatch("unreadable file", str(table.name), lsn, detail=type(exc).__name__))
        found = _without_erased(found, destroyed)
        lost = sum(each.total() for each in expected.values()) + without_secret
        expired = sum(expired_of(self._runs, table.name).values()) if lsn < table.horizon else 0
        if len(found) < lost <= len(found) + expired:
            missing = f"{lost - len(found):,} rows of the snapshot of {table.name} at {lsn}"
            self.notes.append(f"{missing} have expired: its horizon is {table.horizon}")
        elif lost > len(found):
            detail = f"{lost - len(found):,} rows of this snapshot are missing"
            found.append(Mismatch("removed rows", str(table.name), lsn, detail=detail))
        if not found and not _is(copy_entry(table, lsn, *counts), block, [own]):
            found.append(Mismatch("changed columns", str(table.name), lsn, detail="names of columns, or of the table"))
        yield from found


_OF_COPY = (Kind.ROW, Kind.ENDED)


def _is(entry: Entry, block: Block, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an entry is the one of a row of the ledger, given as a list of at most one."""
    try:
        secrets = [block.secret(entry, row["secret"]) for row in rows]
        return [row["hash"] for row in rows] == [entry.hash(each) for each in secrets if each is not None] != []
    except NotCanonical:
        return False


def _unexpected(table: HistoryTable, lsn: Lsn, part: CopiedRows, expected: Counter[bytes]) -> Iterator[Mismatch]:
    """Yield the rows that were not sealed; removes those that were from `expected`."""
    for place, each in enumerate(part.hashes):
        if expected[each]:
            expected[each] -= 1
            continue
        row = part.rows.slice(place, 1)
        key = tuple(
            (column.name, text_column(row, column)[0].as_py()) for column in committed_columns(table, lsn) if column.key
        )
        kind = _ERASED if ERASED_KEY in dict(row["_raw"][0].as_py() or ()) else "changed or inserted row"
        yield Mismatch(kind, str(table.name), lsn, key=key, file=part.file)


def _without_erased(found: Iterable[Mismatch], destroyed: int) -> list[Mismatch]:
    """Return the mismatches without rows that have erased values, at most `destroyed` of these."""
    kept: list[Mismatch] = []
    for each in found:
        if each.kind == _ERASED and destroyed:
            destroyed -= 1
        else:
            kept.append(each)
    return kept


_ERASED = "row marked as erased"


def _compared(kind: Kind, condition: str, of_block: str, expired: Lsn) -> str:
    """Return SQL for the rows that are not what their entries commit to, in the order of commits.

    Rows up to `expired` need not be there.
    """
    of_change = kind is Kind.CHANGE
    stored = Stored("e.secret", "e.commitment")
    key = "coalesce(e.key, '') || chr(0) || ';'"
    rows = CHANGES if of_change else TRANSACTIONS
    hashed, is_canonical = sql_of(rows, key, IN_DUCKDB, "c", stored), sql_has_form(rows, "c")
    same = "c.lsn = e.lsn" + (" and c.ordinal = e.ordinal" if of_change else "")
    # A commitment stands for values only where their secret is gone: `_destroyed` has looked for such entries.
    is_gone = "b.key is null and e.secret is null"
    commitment = f"case when {is_gone} then lower(hex(e.commitment)) end"
    entries = "select e.lsn, e.ordinal, e.name, e.hash, lower(hex(b.key)) as key"
    entries += f", {commitment} as commitment, lower(hex(e.secret)) as secret"
    entries += f" from entries e join blocks b on e.block = b.block where e.kind = '{kind}' and {of_block}"
    ordinal = "coalesce(cast(c.ordinal as bigint), e.ordinal)" if of_change else "0"
    name = NAME.format("c.") if of_change else "''"
    shown = f"coalesce(c.lsn, e.lsn) as lsn, {ordinal} as ordinal, case when c.lsn is null then e.name else {name} end"
    verdict = "case when c.lsn is null then 'removed' when e.lsn is null then 'inserted' else 'changed' end"
    differs = f"coalesce({hashed} <> e.hash or not {is_canonical}, true)"
    if of_change:  # a row that was removed: only that something was there
        differs += f" and not (c.op = '{ERASED_OP}' and e.commitment is not null)"
    return (
        f"select {shown} as name, {verdict} as found from (select * from t where {condition}) c"
        f" full outer join ({entries}) e"
        f" on {same} where case when c.lsn is null then e.lsn > {expired:d} else e.lsn is null or {differs} end"
        " order by 1, 2"
    )


def _repeated(kind: Kind, condition: str) -> str:
    """Return SQL for rows that are there more than once."""
    ordinal, name = ("ordinal", f"min({NAME.format('')})") if kind is Kind.CHANGE else ("0", "''")
    grouped = "lsn, ordinal" if kind is Kind.CHANGE else "lsn"
    return (
        f"select lsn, {ordinal} as ordinal, {name} as name, 'repeated' as found from t where {condition}"
        f" group by {grouped} having count(*) > 1 order by 1, 2"
    )


def _file_of(place: Place, files: Iterable[DataFile], lsn: int, ordinal: int | None) -> str | None:
    """Return the name of the data file that has a row."""
    for file in files:
        bounds = file.bounds("lsn")
        if bounds is not None and not bounds[0] <= lsn <= bounds[1]:
            continue
        columns = ["lsn"] if ordinal is None else ["lsn", "ordinal"]
        rows = pq.ParquetFile(parquet(file_path(place, file.add))).read(columns)
        here = pc.equal(rows["lsn"], lsn)
        if ordinal is not None:
            here = pc.and_(here, pc.equal(rows["ordinal"], ordinal))
        if pc.any(here).as_py():
            return file.name
    return None
