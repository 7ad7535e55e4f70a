"""Checkpoints: written, and replaced by an older one if unreadable; expired entries deleted before an older one."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from auditlake.delta.append_table import AppendLog, open_delta
from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.log_reader import live_files
from auditlake.lake.history import create_history, open_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.relation import Column, TableName
from tests.read_lake import history_of

NAME = TableName("public", "orders")


def test_a_checkpoint_keeps_positions_and_recent_entries(tmp_path: Path) -> None:
    """Position and horizon are read from it, and versions of the last hours stay readable."""
    lake = Lake(tmp_path)
    table = create_history(lake, NAME, (Column("id", 23, -1, key=True),), 1)
    for lsn in (100, 110, 120):
        marks = [Transaction(HISTORY_APP, lsn), Transaction(SNAPSHOT_APP, 100)]
        properties = CommitProperties(app_transactions=marks)
        table.create_write_transaction([], "append", table.schema(), ["_part"], commit_properties=properties)
        table.update_incremental()
    before = history_of(lake, NAME)
    log = before.path / "_delta_log"
    of_kept = log / f"{0:020}.crc"
    of_kept.touch()

    checkpoint(before.path)
    assert list(log.glob("*.checkpoint.parquet"))
    assert of_kept.exists()
    assert open_history(lake, NAME) == before
    assert DeltaTable(before.path, version=2).transaction_version(HISTORY_APP) == 110


SCHEMA = pa.schema([("number", pa.int64())])


def log_with_checkpoints(path: Path, *, old: bool) -> Path:
    """Write a table with commits 1 to 9, and checkpoints of versions 3, 6 and 9; `old`: written a day ago."""
    table = AppendLog(path, SCHEMA)
    log = path / "_delta_log"
    for number in range(1, 10):
        table.append(pa.RecordBatch.from_pylist([{"number": number}], schema=SCHEMA), {"app": number})
        if old:
            for entry in log.iterdir():
                os.utime(entry, (time.time() - 86_400,) * 2)
        if number % 3 == 0:
            checkpoint(path)
    return log


def versions(log: Path, kind: str) -> list[int]:
    """List the versions that have a file of this kind."""
    return sorted(int(file.name[:20]) for file in log.glob(f"*.{kind}"))


def test_expired_entries_are_deleted_but_an_older_checkpoint_stays(tmp_path: Path) -> None:
    """A reader can fall back to the second newest checkpoint and all entries since it."""
    unfinished = tmp_path / "_delta_log" / ".1.unfinished"
    unfinished.parent.mkdir()
    unfinished.touch()
    log = log_with_checkpoints(tmp_path, old=True)
    assert versions(log, "checkpoint.parquet") == [6, 9]
    assert versions(log, "json") == [6, 7, 8, 9]
    assert not unfinished.exists()


def test_entries_of_the_last_hours_stay(tmp_path: Path) -> None:
    """Their versions stay readable."""
    log = log_with_checkpoints(tmp_path, old=False)
    assert versions(log, "checkpoint.parquet") == [3, 6, 9]
    assert versions(log, "json") == list(range(10))


@pytest.mark.parametrize("kept_bytes", [0, 100])
def test_an_unreadable_checkpoint_is_replaced_by_an_older_one(tmp_path: Path, kept_bytes: int) -> None:
    """Every reader finds the same files and positions, and the writer continues."""
    log = log_with_checkpoints(tmp_path, old=True)
    newest = log / f"{9:020}.checkpoint.parquet"
    newest.write_bytes(newest.read_bytes()[:kept_bytes])
    assert len(live_files(tmp_path, 9)) == 9
    table = open_delta(tmp_path)
    assert table is not None
    assert (table.version(), table.transaction_version("app"), len(table.file_uris())) == (9, 9, 9)
    AppendLog(tmp_path, SCHEMA).append(None, {"app": 10})
    assert DeltaTable(tmp_path).transaction_version("app") == 10


def test_a_log_without_any_readable_checkpoint_is_read_from_its_entries(tmp_path: Path) -> None:
    """`_last_checkpoint` names a file that does not exist."""
    table = AppendLog(tmp_path, SCHEMA)
    table.append(None, {"app": 1})
    checkpoint(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020}.checkpoint.parquet").unlink()
    found = open_delta(tmp_path)
    assert found is not None
    assert found.transaction_version("app") == 1
