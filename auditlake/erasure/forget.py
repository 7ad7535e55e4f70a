"""Erase a row, or columns of it, from the files of a lake: gone when the command ends, not after a retention.

Order of effects, under the locks of everything that rewrites files, and with the gate to apply closed:

1. Check everything (`erasure.scope`). Record the intent, durable: tokens, columns, why; no key and no value.
2. In a lake with a ledger: the secrets of the entries that commit to the values (`erasure.in_ledger`).
3. `transactions`: contexts of the commits concerned, in which a value is looked for. First, because the values are
   read from 4 and 5.
4. `changes`.
5. The history of the table; then its log, which may have bounds of texts: a checkpoint, and nothing before it.
6. The files of the table that a killed `resync` left.
7. In a bucket that keeps versions: the older ones of all these objects, if the user has allowed it; else it is refused.
8. Record the end.

Each table is rewritten, committed, and then rid of every file that its new version does not name (`delta.erasing`). A
kill at any point leaves a lake that can be read and followed, and an intent without an end: `resume` does all of it
again. `capture` goes on, and appends after the commit of an erasure. On a disk apply waits; in a bucket it must not
run.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.lake_reader import Reader, in_lsns
from auditlake.delta.erasing import ErasureTask, all_rows, erase, forget_log
from auditlake.delta.log_reader import Add, file_path
from auditlake.delta.row_groups import read_batches
from auditlake.erasure.contexts import Contexts
from auditlake.erasure.holding import require_not_held
from auditlake.erasure.in_ledger import destroy_secrets, numbers_of_copies
from auditlake.erasure.matching import InChanges, InHistory, InTransactions, Matcher, physical_key
from auditlake.erasure.scope import Wanted, find_scope, found_by, places_of
from auditlake.errors import ConfigError, LakeUnusable, Unsupported
from auditlake.failpoints import After, reach
from auditlake.lake.erasure_gate import closed
from auditlake.lake.erasures import Erasure, record_end, record_intent, unfinished
from auditlake.lake.history import HistoryTable, bounded_columns
from auditlake.lake.key_tokens import make_secret, new_secret, read_secret
from auditlake.lake.layout import ERASED_APP, HISTORY_APP, Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.stage_lock import Stage, hold, lock_of
from auditlake.ledger.blocks import has_ledger, read_entries
from auditlake.ledger.canonical import Kind
from auditlake.ledger.copies import text_column
from auditlake.ledger.entries import CHANGES, TRANSACTIONS, Entry, entry_of, with_us
from auditlake.ledger.seal import Sealer
from auditlake.lsn import Lsn
from auditlake.messages import as_known
from auditlake.relation import TableName
from auditlake.store.failures import AGAIN
from auditlake.store.files import remove_folder
from auditlake.store.object_versions import Noncurrent, delete_noncurrent, keeps_versions, list_noncurrent
from auditlake.store.place import Place

_OF_ROW = ["lsn", "ordinal", "relation", "old", "new", "unchanged"]
_RESUME = "run auditlake forget --resume"
_STAGES = (Stage.ERASE, Stage.MAINTAIN, Stage.RESYNC, Stage.SEAL)


def forget(
    lake: Lake, wanted: Wanted, now: datetime, *, dry_run: bool = False, delete_versions: bool = False
) -> Erasure:
    """Erase the wanted row or values; with `dry_run` only return the record that this would make.

    `delete_versions`: in a bucket that keeps older versions of objects, delete those of the tables concerned.

    Raises as `scope.find_scope`; ConfigError if another erasure is unfinished, LakeConflict if processes are at work.
    """
    require_manifest(lake)
    if dry_run:
        return find_scope(lake, wanted, now, read_secret(lake) or new_secret())  # without one there is no hold of a row
    with _alone(lake, delete_versions=delete_versions):
        require_finished(lake)
        if has_ledger(lake):
            Sealer(lake).seal("forget")
        scope = find_scope(lake, wanted, now, make_secret(lake))
        numbers = _Run.of(lake, scope).numbers() if has_ledger(lake) else []
        erasure = record_intent(lake, replace(scope, entries=tuple(sorted(numbers))))
        reach(After.ERASURE_BEGUN)
        _finish(lake, erasure)
    return erasure


def _finish(lake: Lake, erasure: Erasure) -> None:
    with _resumable():
        _Run.of(lake, erasure).erase()
        _delete_older(lake, erasure.name)
        record_end(lake, erasure)
    reach(After.ERASURE_ENDED)
    if has_ledger(lake):
        Sealer(lake).seal("forget")


def resume(lake: Lake, *, delete_versions: bool = False) -> list[Erasure]:
    """Finish killed erasures, and return them; raises LakeConflict, ConfigError if held since, else as `forget`."""
    require_manifest(lake)
    with _alone(lake, delete_versions=delete_versions):
        found = unfinished(lake)
        for each in found:
            _finish(lake, each)
    return found


def require_finished(lake: Lake) -> None:
    """Require that no erasure is unfinished; raises ConfigError."""
    if found := unfinished(lake):
        raise ConfigError(
            f"an erasure is unfinished: {found[0].what}, begun by {found[0].by}: {found[0].reason}",
            f"{_RESUME.capitalize()}.",
        )


@contextmanager
def _resumable() -> Iterator[None]:
    """Let the hint of a failure name the command that continues: the one that failed would be refused."""
    try:
        yield
    except Exception as exc:
        if (known := as_known(exc)) is None or known.hint is None:
            raise
        known.hint = known.hint.replace(AGAIN, _RESUME)
        if known is exc:
            raise
        raise known from exc


@contextmanager
def _alone(lake: Lake, *, delete_versions: bool) -> Iterator[None]:
    with hold(lake, "forget", *_STAGES), closed(lake):
        _require_deletion(lake, may_delete=delete_versions)
        yield


@dataclass(frozen=True, slots=True)
class _Run:
    lake: Lake
    erasure: Erasure
    table: HistoryTable
    own_names: Mapping[str, str]
    history: InHistory
    changes: InChanges

    @classmethod
    def of(cls, lake: Lake, erasure: Erasure) -> "_Run":
        """Open the table of an erasure; the lake must have it, and the secret of its tokens."""
        secret, reader = read_secret(lake), Reader(lake, datetime.now(UTC))
        tables = reader.known.as_read or {}
        if secret is None or erasure.name not in tables:
            missing = lake.token_key if secret is None else f"the history of {erasure.name}"
            raise LakeUnusable(f"{missing} is missing, so {erasure.what} cannot be erased", "Restore it.")
        inner = found_by(reader.keyed_at(reader.known.tables[erasure.name], Lsn(erasure.upto_lsn)), erasure.where)
        require_not_held(lake, inner, erasure.tokens)
        matcher = Matcher(erasure, secret)
        table = tables[erasure.name]
        places = places_of(reader, inner, erasure)
        history = InHistory(physical_key(table, inner), matcher)
        return cls(lake, erasure, table, reader.own_names(table), history, InChanges(places, matcher, Contexts()))

    def erase(self) -> None:
        """Erase from every place, in the documented order."""
        changes, transactions = self._with_contexts()
        if self.erasure.entries:
            destroy_secrets(self.lake, frozenset(self.erasure.entries), self._entries(changes, transactions))
            reach(After.SECRETS_DESTROYED)
        number = {ERASED_APP: self.erasure.number}
        found = _any(self.lake.transactions, ["lsn", "context"], transactions)
        erase(self.lake.transactions, ErasureTask(found, transactions.change, moved=number))
        found = _any(
            self.lake.changes, ["lsn", "op", "relation", "old", "new", "unchanged", "prefix", "content"], changes
        )
        erase(self.lake.changes, ErasureTask(found, changes.change, moved=number))
        found, bounded = _any(self.table.path, self.history.needed, self.history), bounded_columns(self.table)
        erase(self.table.path, ErasureTask(found, self.history.change, bounded, (HISTORY_APP,), number))
        forget_log(self.table.path)
        left = self.lake.copied_again(self.table.name)
        if left.is_dir():
            remove_folder(left)

    def numbers(self) -> list[int]:
        """Return the numbers of the ledger's entries that commit to erased values."""
        changes, transactions = self._with_contexts()
        entries = self._entries(changes, transactions)
        kinds = f"kind in ('{Kind.CHANGE}', '{Kind.TRANSACTION}')"
        rows = read_entries(self.lake, f"{kinds} and {in_lsns(sorted({lsn for _, lsn, _ in entries}))}")
        found = [row["number"] for row in rows.to_pylist() if (row["kind"], row["lsn"], row["ordinal"]) in entries]
        return [*found, *numbers_of_copies(self.lake, self.table, self.history.of_key, self.history.erased)]

    def _entries(self, changes: InChanges, transactions: InTransactions) -> dict[tuple[str, int, int], Entry]:
        """Return the entries, as they are still, of the changes and transactions that lose something."""
        found: dict[tuple[str, int, int], Entry] = {}
        for kind, place, rows in (
            (CHANGES, self.lake.changes, changes),
            (TRANSACTIONS, self.lake.transactions, transactions),
        ):
            for batch in all_rows(place):
                concerned = batch.filter(pa.array(rows.mask(batch)))
                pairs = zip(concerned.to_pylist(), rows.change(concerned).to_pylist(), strict=True)
                differ = pa.array([before != after for before, after in pairs], pa.bool_())
                for row in with_us(concerned.filter(differ)).to_pylist():
                    entry = entry_of(kind, row)
                    found[entry.identity.kind, entry.identity.lsn or 0, entry.identity.ordinal or 0] = entry
        return found

    def _with_contexts(self) -> tuple[InChanges, InTransactions]:
        changes = replace(self.changes, present=self._present())
        contexts = self._contexts(changes)
        return replace(changes, contexts=contexts), InTransactions(contexts)

    def _present(self) -> dict[tuple[int, str], frozenset[str]]:
        """Return the texts that PostgreSQL has in each erased column, by the LSN of the commit that they came with."""
        keys, lsns = self.history.of_key, [lsn for lsn, _ in self.erasure.kept]
        columns = [
            each for each in self.table.columns if each.stored in self.erasure.stored and each.stored not in keys
        ]
        found = dict[tuple[int, str], frozenset[str]]()
        for rows in all_rows(self.table.path) if columns and lsns else ():
            stays = pa.array(self.history.mask(rows) & ~self.history.erased(rows))
            here = rows.filter(pc.and_(stays, pc.is_in(rows["_from_lsn"], pa.array(lsns, pa.int64()))))
            for column in (each for each in columns if each.stored in rows.column_names):
                name, texts = self.own_names[column.stored], text_column(here, column).to_pylist()
                for lsn, text in zip(here["_from_lsn"].to_pylist(), texts, strict=True):
                    found[lsn, name] = found.get((lsn, name), frozenset()) | {text}
        return found

    def _contexts(self, changes: InChanges) -> Contexts:
        """Collect the values that are still there, and the commits that had them."""
        lsns, values = set[int](), set[str]()
        for rows in all_rows(self.lake.changes):
            mask = pa.array(changes.of_row(rows))
            for row in rows.filter(mask).select(_OF_ROW).to_pylist():
                lsns.add(row["lsn"])
                values |= changes.erased_texts(row)
        for rows in all_rows(self.table.path):
            found = rows.filter(pa.array(self.history.mask(rows)))
            lsns |= {each for name in ("_from_lsn", "_to_lsn") for each in found[name].to_pylist() if each is not None}
            values |= self.history.lost(found, self.table.columns)
        return Contexts.of(lsns, values)


def _any(table: Place, columns: list[str], rows: InHistory | InChanges | InTransactions) -> Callable[[Add], bool]:
    """Return whether a file of a table has rows that are concerned, read in these columns."""

    def concerns(add: Add) -> bool:
        return any(rows.mask(pa.table(batch)).any() for batch in read_batches(file_path(table, add), columns))

    return concerns


def _require_deletion(lake: Lake, *, may_delete: bool) -> None:
    """Require that older versions may be deleted, if the lake's bucket keeps them; the lock of ERASE is held.

    Raises Unsupported.
    """
    if _are_kept(lake) and not may_delete:
        raise Unsupported(
            f"the bucket of {lake.root} keeps older versions of what is deleted",
            "Add --delete-versions to delete those of the tables concerned for good; --dry-run counts them.",
        )


def list_older(lake: Lake, table: TableName) -> list[Noncurrent]:
    """List the versions that an erasure would delete now, none on a disk; raises ConfigError, LakeUnusable."""
    folders = (lake.transactions, lake.changes, lake.history(table), lake.ledger, lake.copied_again(table))
    return list_noncurrent(folders)


def _delete_older(lake: Lake, table: TableName) -> None:
    """Delete the older versions, if the lake's bucket keeps them; the lock of ERASE is held. Raises as `list_older`."""
    if _are_kept(lake):
        delete_noncurrent(lake.root, list_older(lake, table))
        reach(After.VERSIONS_DELETED)


def _are_kept(lake: Lake) -> bool:
    """Return whether the bucket keeps versions, or did when the lake was made; then versioning may be suspended."""
    return keeps_versions(lock_of(lake, Stage.ERASE), lake.manifest)
