"""Append-only Delta tables with their position in the same commit: what capture writes.

`AppendLog` knows the version of its last commit and writes the next one. It is refused if anybody else committed in
between, which is the fence against a second writer. Nothing else keeps the version of an application transaction from
going backwards, so the position is compared here, before every append.

Small commits leave small files, and each of them a file in the log. The log is checkpointed every hundred commits.
`tidy` joins files that are small, and deletes what no reader can need any more: readers hold on to a version for the
length of a question, far less than an hour. Nobody else may do it while the table is appended to, because every commit
but our own looks like a second writer.

Authority: Delta's PROTOCOL.md, "Transaction Identifiers"
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from auditlake.errors import InvariantBroken, LakeConflict, LakeUnusable
from auditlake.lake.commits import moved, put_commit, see_plain, write_file

# Fewer small files than this are cheap to read and to list, and joining this many takes a fraction of a second.
_TIDY_EVERY = 200
# A joined file stays as it is from this size on, so that joining never rewrites more than this.
_JOINED_BYTES = 16 << 20
_CHECKPOINT_EVERY = 100
_VACUUM_INTERVAL_S = 1800.0
_KEPT_FOR = "interval 1 hours"
_CONFIGURATION = {"delta.logRetentionDuration": _KEPT_FOR, "delta.deletedFileRetentionDuration": _KEPT_FOR}


def open_delta(path: Path) -> DeltaTable | None:
    """Open a Delta table; None where there is none."""
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def select(table: DeltaTable, name: str, sql: str) -> pa.Table:
    """Ask one table, which `sql` calls `name`, without a JVM."""
    return pa.table(QueryBuilder().register(name, table).execute(sql).read_all())


class AppendLog:
    """A Delta table that this process alone appends to."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        try:
            self._table = open_delta(path) or self._create(schema)
        except OSError as exc:
            raise LakeUnusable(f"{path} cannot be opened: {exc}", "Mend the folder and run it again.") from exc
        see_plain(path, self._table)
        self._version = self._table.version()
        self._positions: dict[str, int | None] = {}
        self._appends = 0
        self._vacuumed_at = time.monotonic()

    def _create(self, schema: pa.Schema) -> DeltaTable:
        self._path.mkdir(parents=True, exist_ok=True)
        return DeltaTable.create(self._path, schema=schema, configuration=_CONFIGURATION)

    @property
    def table(self) -> DeltaTable:
        """The table as of this process's last commit."""
        if self._table.version() != self._version:
            self._table.update_incremental()
        return self._table

    def position(self, app: str) -> int | None:
        """Version of an application transaction, None if it was never committed."""
        if app not in self._positions:
            # Kept, because deltalake goes through the log for every answer, and only we move it.
            self._positions[app] = self.table.transaction_version(app)
        return self._positions[app]

    def append(self, rows: pa.RecordBatch | None, positions: Mapping[str, int]) -> None:
        """Append rows and move positions in one commit; without rows only the positions move.

        Raises LakeConflict where another process committed meanwhile, LakeUnusable where the folder cannot be written.
        """
        for app, version in positions.items():
            recorded = self.position(app)
            if recorded is not None and version < recorded:
                raise InvariantBroken(f"{app} of {self._path} would go back from {recorded} to {version}")
        self._commit(rows, positions)

    def put_back(self, app: str, version: int) -> None:
        """Move a position back, in a commit of its own.

        Raises as `append`.
        """
        self._commit(None, {app: version})

    def _commit(self, rows: pa.RecordBatch | None, positions: Mapping[str, int]) -> None:
        some = rows is not None and rows.num_rows > 0
        with self._translated_errors():
            added = [write_file(self._path, rows)] if some else []
            put_commit(self._path, self._version + 1, "WRITE", [*added, *moved(positions)])
        self._version += 1
        self._appends += some
        self._positions.update(positions)
        if self._version % _CHECKPOINT_EVERY == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        with self._translated_errors():
            self.table.create_checkpoint()
            self.table.cleanup_metadata()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (CommitFailedError, FileExistsError) as exc:
            raise self._overtaken() from exc
        except (DeltaError, OSError) as exc:
            raise LakeUnusable(f"{self._path} cannot be written: {exc}", "Mend the folder and run it again.") from exc

    def _overtaken(self) -> LakeConflict:
        return LakeConflict(
            f"another process committed to {self._path}", "Only one capture may run on a lake; stop the other."
        )

    @property
    def untidy(self) -> bool:
        """Whether enough small files have gathered that `tidy` is worth its time."""
        return self._appends >= _TIDY_EVERY

    def tidy(self) -> None:
        """Join small files, and now and then delete those that were joined long ago.

        Raises LakeConflict and LakeUnusable as `append` does.
        """
        with self._translated_errors():
            table = self.table
            joined = table.optimize.compact(target_size=_JOINED_BYTES)
            # Joining does not conflict with an append, so Delta lets it catch up with another writer's commits.
            if table.version() != self._version + (joined["numFilesRemoved"] > 0):
                raise self._overtaken()
            self._appends = 0
            if time.monotonic() - self._vacuumed_at > _VACUUM_INTERVAL_S:
                table.vacuum(dry_run=False)
                self._vacuumed_at = time.monotonic()
            self._version = table.version()
