"""Append-only Delta tables of one writer, with positions in the same commit: the tables of capture.

`AppendLog` remembers the version of its last commit and writes the next one. If another process committed in between,
the commit is refused: this fences off a second writer. Delta lets the version of an application transaction go
backwards, so positions are compared here, before every append.

Only an erasure may commit beside it (`delta.erasing`): it removes values of rows that were there before, and the
files of others that are in no commit. Then the next commit is planned again, with a new file; the first one is deleted,
because it may have the values. If the process is killed before that, the next one does it (`discard_uncommitted`).

Small commits leave small data files and one log entry each. The log is checkpointed every hundred commits. In an object
store a thread of its own does it, because a checkpoint reads every entry (398 requests, 32 s at 30 ms a request;
2026-11, `bench/store_requests.py`), and commits must not wait for it. `tidy` joins small files, and deletes files that
no version has had for `checkpoints.KEPT_FOR_S`: a catch-up or a query may read the files of its version that long. Only
the writer may call it: any other commit counts as a second writer.

Authority: Delta's PROTOCOL.md, "Transaction Identifiers"
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.delta.checkpoints import KEPT_FOR, KEPT_FOR_S, checkpoint, set_aside_unreadable
from auditlake.delta.data_files import join_intact, require_same_bytes, write_file
from auditlake.delta.erasing import delete_uncommitted, is_erasure, list_data_files
from auditlake.delta.log_entry import entry_name
from auditlake.delta.log_reader import Add, file_path, list_newest, live_files, statistics, unreadable_log
from auditlake.delta.log_writer import (
    Action,
    Creation,
    create_table,
    moved,
    put_entry,
    removed,
    require_plain,
    without_change,
)
from auditlake.delta.row_groups import held_bytes
from auditlake.delta.sql import Bound, TableFiles, read_log_at, select
from auditlake.delta.table import open_table
from auditlake.errors import InvariantBroken, LakeConflict, LakeUnusable
from auditlake.store.failures import remedy_of
from auditlake.store.files import parquet, remove_durably
from auditlake.store.place import Place, by_requests

if TYPE_CHECKING:  # as in `delta.table`
    from deltalake import DeltaTable

# Fewer small files are cheap to read and to list, and joining this many takes a fraction of a second.
_TIDY_EVERY = 200
# Limits of a joined file, on the disk and before compression (the cost of joining). A larger file is never rewritten.
_JOINED_BYTES = 16 << 20
_JOINED_HELD_BYTES = 96 << 20
_CHECKPOINT_EVERY = 100
NOT_JOINED = "a file is not joined with others"
_VACUUM_INTERVAL_S = 1800.0
# Readers need a version's entries only to open it. At many commits a second, more entries would be slow to list.
_ENTRIES_KEPT_FOR_S = 3600.0
_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": KEPT_FOR,
}


def open_delta(path: Place, *, again: bool = True) -> "DeltaTable | None":
    """Open a Delta table; None if it does not exist. A checkpoint that cannot be read is set aside.

    It is tried `again` after an error: a copy that starts again deletes the folder of its history.

    Raises LakeUnusable.
    """
    from deltalake.exceptions import DeltaError, TableNotFoundError  # noqa: PLC0415 - as in `delta.table`

    try:
        return open_table(path)
    except TableNotFoundError:
        return None
    except LakeUnusable:
        if again:
            return open_delta(path, again=False)
        raise
    except DeltaError as exc:
        if set_aside_unreadable(path):
            return open_delta(path)
        if again:
            return open_delta(path, again=False)
        raise unreadable_log(path, exc) from exc


Plan = Callable[[], Iterator[Action]]
"""Yields the actions of a commit, each once its file is written; none for no commit."""


class AppendLog:
    """A Delta table that this process alone appends to."""

    def __init__(self, path: Place, schema: pa.Schema) -> None:
        self._path = path
        try:
            self._table = open_delta(path) or self._create(schema)
        except OSError as exc:
            raise LakeUnusable(f"{path} cannot be opened: {exc}", remedy_of(exc)) from exc
        require_plain(path, self._table)
        self._version = self._table.version()
        self._checkpointer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._checkpoint: Future[None] | None = None
        self._positions: dict[str, int | None] = {}
        self._appends = 0
        self._vacuumed_at = time.monotonic()

    def _create(self, schema: pa.Schema) -> "DeltaTable":
        from deltalake import Schema  # noqa: PLC0415 - as in `delta.table`

        fields = Schema.from_arrow(schema)
        with suppress(FileExistsError):  # another process has created it
            create_table(self._path, Creation(None, fields, (), _CONFIGURATION, deletion_vectors=False))
        return open_table(self._path)

    @property
    def table(self) -> "DeltaTable":
        """The table as of this process's last commit."""
        if self._table.version() != self._version:
            self._table.update_incremental()
        return self._table

    @property
    def files(self) -> TableFiles:
        """The files of this process's last commit."""
        return read_log_at(self._path, self._version)

    def select(self, sql: str, **bounds: Bound) -> pa.Table:
        """Run SQL over the rows, as `log`, of the files that may have values within these bounds, as `sql.select` does.

        An erasure may have deleted files of this process's last commit: then over those of the erasure.
        """
        while True:
            try:
                return select(sql, log=self.files.within(**bounds))
            except OSError:
                if not self._pass_erasures():
                    raise

    def position(self, app: str) -> int | None:
        """Return the version of an application transaction; None if it was never committed."""
        if app not in self._positions:
            # Cached: deltalake reads the log for every answer, and only this process changes it.
            self._positions[app] = self.table.transaction_version(app)
        return self._positions[app]

    @property
    def version(self) -> int:
        """The version of this process's last commit, or that which it found."""
        return self._version

    def append(
        self, rows: pa.RecordBatch | None, positions: Mapping[str, int], requires: Mapping[str, int] | None = None
    ) -> None:
        """Append rows and set positions in one commit; without rows only the positions.

        `requires` is recorded with the commit: what other tables had before.

        Raises LakeConflict if another process committed meanwhile, LakeUnusable if the folder cannot be written.
        """
        for app, version in positions.items():
            recorded = self.position(app)
            if recorded is not None and version < recorded:
                raise InvariantBroken(f"{app} of {self._path} would go back from {recorded} to {version}")
        self._commit(rows, positions, requires)

    def put_back(self, app: str, version: int) -> None:
        """Set a position back, in a commit of its own; raises as `append`."""
        self._commit(None, {app: version})

    def discard_uncommitted(self, erased: str) -> None:
        """If something was erased, which sets this position, delete files that a killed process left in no commit.

        They may have values that were erased after that process had read them. A commit of the same position comes
        first, so that no later commit names one of them: an erasure that was planned before is planned again. Raises as
        `append`.
        """
        listed: list[str] = []

        def unmoved() -> Iterator[Action]:
            number = self.table.transaction_version(erased)  # as of now: an erasure may have moved it since
            if number is not None:
                listed[:] = list_data_files(self._path)
                yield from moved({erased: number})

        if self._put("WRITE", unmoved):
            with self._translated_errors():
                delete_uncommitted(self._path, listed)

    def discard_above(self, column: str, limit: int) -> None:
        """Delete the rows whose value in an integer column is above a limit; raises as `append`."""

        def without() -> Iterator[Action]:
            for add in live_files(self._path, self._version):
                if _may_exceed(add, column, limit):
                    yield from self._without(add, column, limit)

        self._put("DELETE", without)

    def _without(self, add: Add, column: str, limit: int) -> list[Action]:
        require_same_bytes(self._path, [add])
        rows = pq.read_table(parquet(file_path(self._path, add)))
        kept = rows.filter(pc.less_equal(rows[column], limit)).combine_chunks().to_batches()
        return [removed(add), *(write_file(self._path, batch) for batch in kept if batch.num_rows)]

    def _commit(
        self, rows: pa.RecordBatch | None, positions: Mapping[str, int], requires: Mapping[str, int] | None = None
    ) -> None:
        batch = rows if rows is not None and rows.num_rows else None

        def appended() -> Iterator[Action]:
            if batch is not None:
                yield write_file(self._path, batch)
            yield from moved(positions)

        self._put("WRITE", appended, requires)
        self._appends += batch is not None
        self._positions.update(positions)

    def _put(self, operation: str, plan: Plan, requires: Mapping[str, int] | None = None) -> bool:
        """Commit what `plan` yields; return False, without a commit, if that is nothing.

        An erasure may have committed since, and deleted files that were read or written: then the commit is planned
        again, and files written from erased rows are deleted.
        """
        with self._translated_errors():
            while True:
                actions: list[Action] = []
                try:
                    self._require_checkpointed()
                    for action in plan():
                        actions.append(action)  # noqa: PERF402 - those before an error count, too
                    if not actions:
                        return False
                    put_entry(self._path, self._version + 1, operation, actions, requires)
                except OSError:  # also FileExistsError, and a file that is gone
                    if not self._pass_erasures():
                        raise
                    remove_durably([file_path(self._path, action["add"]) for action in actions if "add" in action])
                else:
                    break
            self._version += 1
            if self._version % _CHECKPOINT_EVERY == 0:
                self._start_checkpoint()
            return True

    def _pass_erasures(self) -> bool:
        """Go on after the commits of erasures that follow this process's last one; return whether there are any."""
        before = self._version
        while is_erasure(self._path, self._version + 1):
            self._version += 1
        return self._version > before

    def _require_checkpointed(self) -> None:
        """Raise the error of the last checkpoint, if it ended with one."""
        if self._checkpoint is not None and self._checkpoint.done():
            ended, self._checkpoint = self._checkpoint, None
            ended.result()

    def _start_checkpoint(self) -> None:
        """Write a checkpoint of the last commit; in an object store start it, unless one is under way."""
        if not by_requests(self._path):
            checkpoint(self._path, _ENTRIES_KEPT_FOR_S)
        elif self._checkpoint is None:
            self._checkpoint = self._checkpointer.submit(checkpoint, self._path, _ENTRIES_KEPT_FOR_S)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - as in `delta.table`

        try:
            yield
        except FileExistsError as exc:
            raise self._overtaken() from exc
        except (DeltaError, OSError) as exc:
            raise LakeUnusable(f"{self._path} cannot be written: {exc}", remedy_of(exc)) from exc

    def _overtaken(self) -> LakeConflict | LakeUnusable:
        if list_newest(self._path).newest < self._version:
            return LakeUnusable(
                f"{self._path} lacks version {self._version}, which this process has written or read: an older copy"
                " was put in its place",
                "Stop all processes before a lake is replaced; start them again now.",
            )
        return LakeConflict(
            f"another process committed to {self._path}", "Only one capture may run on a lake; stop the other."
        )

    @property
    def untidy(self) -> bool:
        """Return whether there are enough small files for `tidy` to pay off."""
        return self._appends >= _TIDY_EVERY

    def tidy(self) -> list[LakeUnusable]:
        """Join small files, now and then delete expired ones; return those that are damaged, which stay as they are.

        Raises LakeConflict, LakeUnusable as `append`.
        """
        found: list[LakeUnusable] = []

        def joined() -> Iterator[Action]:
            found.clear()
            for group in _joinable(self._path, live_files(self._path, self._version)):
                actions, damaged = join_intact(self._path, group)
                found.extend(damaged)
                yield from map(without_change, actions)

        if not self._put("OPTIMIZE", joined) and not self._pass_erasures() and self._follows():
            raise self._overtaken()
        self._appends = 0
        if time.monotonic() - self._vacuumed_at > _VACUUM_INTERVAL_S:
            self._delete_expired()
            self._vacuumed_at = time.monotonic()
        return found

    def _follows(self) -> bool:
        """Return whether another process committed after this one."""
        return bool((self._path / "_delta_log" / entry_name(self._version + 1)).exists())

    def _delete_expired(self) -> None:
        """Delete files that no version has had for the retention, without a commit."""
        with self._translated_errors():
            for name in self.table.vacuum(retention_hours=int(KEPT_FOR_S // 3600), full=True):
                (self._path / name).unlink(missing_ok=True)


def _may_exceed(add: Add, column: str, limit: int) -> bool:
    greatest = statistics(add).get("maxValues", {}).get(column)
    return not isinstance(greatest, int) or greatest > limit  # otherwise it is damaged, and the rows show it


def _held_bytes(path: Place, add: Add) -> int:
    """Return the size of a file's rows in memory; 0 if its footer is damaged: then its bytes show it."""
    try:
        return held_bytes([file_path(path, add)])
    except (pa.ArrowException, OSError) as exc:
        if isinstance(exc, OSError) and exc.errno is not None:
            raise
        return 0


def _joinable(path: Place, adds: Sequence[Add]) -> list[list[Add]]:
    """Group the small files to join, in the order of their commits, up to the size of a joined file."""
    groups: list[list[Add]] = [[]]
    size_bytes = held = 0
    for add in sorted(adds, key=lambda add: int(add["modificationTime"])):
        if add["size"] >= _JOINED_BYTES or (takes := _held_bytes(path, add)) >= _JOINED_HELD_BYTES:
            continue
        if size_bytes + add["size"] > _JOINED_BYTES or held + takes > _JOINED_HELD_BYTES:
            groups.append([])
            size_bytes = held = 0
        groups[-1].append(add)
        size_bytes += add["size"]
        held += takes
    return [group for group in groups if len(group) > 1]
