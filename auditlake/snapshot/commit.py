"""Commit a copied table: all of its files and its position in one durable Delta commit.

Until that commit the table has no position and does not exist for readers, so half a table is never read. A folder
that a killed copy left behind is deleted when the table's copy begins again. In an object store it is emptied by a
commit instead: a process that was paused must not delete what its successor has committed (`lake/lease`).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from auditlake.delta.log_writer import added_file, moved, put_commit
from auditlake.delta.table import place_of
from auditlake.errors import LakeUnusable
from auditlake.failpoints import After, reach
from auditlake.lake.column_names import as_stored
from auditlake.lake.history import OPEN_PART, RESERVED, open_history, recreate_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.relation import Column, TableName
from auditlake.snapshot.ctid_ranges import CopiedFile, SnapshotMark
from auditlake.source.replicated_tables import FollowedTable
from auditlake.store.file_sync import sync
from auditlake.store.place import Place

_AGAIN = "Run auditlake bootstrap again: it continues from here."


def begin_table(lake: Lake, name: TableName, columns: tuple[Column, ...], oid: int | None = None) -> DeltaTable:
    """Create the empty history table, replacing the remains of an unfinished copy.

    Raises LakeUnusable.
    """
    if open_history(lake, name) is not None:
        raise LakeUnusable(f"{name} has a history already", "Another bootstrap was faster: run it again.")
    with _written(str(name)):
        table = recreate_history(lake, name, columns, oid)
    reach(After.HISTORY_CREATED)
    return table


def commit_table(table: DeltaTable, files: Iterable[CopiedFile], mark: SnapshotMark) -> None:
    """Add the files to the table, and set position and horizon to the snapshot LSN.

    Raises LakeUnusable.
    """
    reach(After.FILES_COPIED)
    path, name = place_of(table), table.metadata().name
    added = [added_file(file.path, {"_part": OPEN_PART}, file.size_bytes, file.stats) for file in files if file.rows]
    positions = {HISTORY_APP: mark.lsn, SNAPSHOT_APP: mark.lsn, SNAPSHOT_TIME_APP: mark.time_us}
    with _written(name):
        if added and isinstance(path, Path):
            sync(path / f"_part={OPEN_PART}", path)
        try:
            put_commit(path, table.version() + 1, "WRITE", [*added, *moved(positions)])
        except FileExistsError:
            raise LakeUnusable(f"another process committed to the history of {name}", _AGAIN) from None
    reach(After.TABLE_COPIED)


class NewHistories:
    """Destination of a copy: each table becomes a history."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._begun: dict[TableName, DeltaTable] = {}

    def folder(self, name: TableName) -> Place:
        """Return the folder of the history."""
        return self._lake.history(name)

    def columns(self, table: FollowedTable) -> tuple[Column, ...]:
        """Return the published columns."""
        return as_stored(table.relation.columns, RESERVED)

    def begin(self, name: TableName, columns: tuple[Column, ...], oid: int) -> None:
        """Create the empty history."""
        self._begun[name] = begin_table(self._lake, name, columns, oid)

    def commit(self, name: TableName, files: Sequence[CopiedFile], mark: SnapshotMark) -> None:
        """Add the files to the history, with position and horizon."""
        commit_table(self._begun[name], files, mark)


@contextmanager
def _written(name: str) -> Iterator[None]:
    """Turn failed writes into LakeUnusable, naming the table."""
    try:
        yield
    except (OSError, DeltaError) as exc:
        # deltalake's errors carry no errno; their text names files, never values of rows.
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else " ".join(str(exc).split())
        raise LakeUnusable(
            f"table {name} could not be written: {reason}",
            f"Fix the folder. {_AGAIN}",
        ) from exc
