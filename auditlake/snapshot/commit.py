"""Make a copied table part of the lake: all of its files and its position, in one Delta commit.

Before it the table has no position and does not exist for readers; a folder that a killed copy left behind is thrown
away when the table is begun again. There is no moment at which half a table can be read.
"""

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from auditlake.errors import LakeUnusable
from auditlake.failpoints import After, reach
from auditlake.lake.history import OPEN_PART, create_history, open_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.relation import Column, TableName
from auditlake.snapshot.task import CopiedFile, SnapshotMark


def begin_table(lake: Lake, name: TableName, columns: tuple[Column, ...]) -> DeltaTable:
    """Create the empty history table, in place of what an earlier copy left unfinished.

    Raises LakeUnusable.
    """
    if open_history(lake, name) is not None:
        raise LakeUnusable(f"{name} has a history already", "Run it again: another bootstrap was faster.")
    with _written(str(name)):
        if lake.history(name).exists():
            shutil.rmtree(lake.history(name))
        table = create_history(lake, name, columns)
    reach(After.HISTORY_CREATED)
    return table


def commit_table(table: DeltaTable, files: Iterable[CopiedFile], mark: SnapshotMark) -> None:
    """Put the files into the table and set position and horizon to the snapshot LSN.

    Raises LakeUnusable.
    """
    reach(After.FILES_COPIED)
    now_ms = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size_bytes, {"_part": OPEN_PART}, now_ms, data_change=True, stats=file.stats)
        for file in files
        if file.rows
    ]
    positions = {HISTORY_APP: mark.lsn, SNAPSHOT_APP: mark.lsn, SNAPSHOT_TIME_APP: mark.time_us}
    properties = CommitProperties(app_transactions=[Transaction(app, version) for app, version in positions.items()])
    with _written(table.metadata().name):
        table.create_write_transaction(actions, "append", table.schema(), ["_part"], commit_properties=properties)
    reach(After.TABLE_COPIED)


@contextmanager
def _written(name: str) -> Iterator[None]:
    """Name the table that could not be written."""
    try:
        yield
    except (OSError, DeltaError) as exc:
        # An error of deltalake's is no OSError with a number; its text names files and no row.
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else " ".join(str(exc).split())
        raise LakeUnusable(
            f"table {name} could not be written: {reason}",
            "Mend the folder, then run auditlake bootstrap again: it goes on from here.",
        ) from exc
