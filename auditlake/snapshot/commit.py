"""Make a copied table part of the lake: all of its files and its position, in one Delta commit.

Before it the table has no position and does not exist for readers; a folder that a killed copy left behind is thrown
away when the table is begun again. There is no moment at which half a table can be read.
"""

import shutil
import time
from collections.abc import Iterable

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from auditlake.errors import LakeUnusable
from auditlake.failpoints import After, reach
from auditlake.lake.history import OPEN_PART, create_history, open_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.relation import Column, TableName
from auditlake.snapshot.copy import CopiedFile, SnapshotMark


def begin_table(lake: Lake, name: TableName, columns: tuple[Column, ...]) -> DeltaTable:
    """Create the empty history table, in place of what an earlier copy left unfinished."""
    if open_history(lake, name) is not None:
        raise LakeUnusable(f"{name} has a history already", "Run it again: another bootstrap was faster.")
    try:
        shutil.rmtree(lake.history(name), ignore_errors=False)
    except FileNotFoundError:
        pass
    except OSError as exc:
        raise LakeUnusable(f"{lake.history(name)} cannot be cleared: {exc.strerror}", "Mend the folder.") from exc
    return create_history(lake, name, columns)


def commit_table(table: DeltaTable, files: Iterable[CopiedFile], mark: SnapshotMark) -> None:
    """Put the files into the table and set position and horizon to the snapshot LSN."""
    now_ms = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size_bytes, {"_part": OPEN_PART}, now_ms, data_change=True, stats=file.stats)
        for file in files
        if file.rows
    ]
    positions = {HISTORY_APP: mark.lsn, SNAPSHOT_APP: mark.lsn, SNAPSHOT_TIME_APP: mark.time_us}
    properties = CommitProperties(app_transactions=[Transaction(app, version) for app, version in positions.items()])
    table.create_write_transaction(actions, "append", table.schema(), ["_part"], commit_properties=properties)
    reach(After.TABLE_COPIED)
