"""A checkpoint of a history, and the log that it makes superfluous."""

from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction

from auditlake.lake.history import create_history, open_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lake.upkeep import checkpoint
from auditlake.relation import Column, TableName

NAME = TableName("public", "orders")


def test_a_checkpoint_keeps_what_is_young(tmp_path: Path) -> None:
    """Position and horizon are read from it, and the log of the last hours stays for those who look at a version."""
    lake = Lake(tmp_path)
    table = create_history(lake, NAME, (Column("id", 23, -1, key=True),))
    for lsn in (100, 110, 120):
        marks = [Transaction(HISTORY_APP, lsn), Transaction(SNAPSHOT_APP, 100)]
        properties = CommitProperties(app_transactions=marks)
        table.create_write_transaction([], "append", table.schema(), ["_part"], commit_properties=properties)
        table.update_incremental()
    before = open_history(lake, NAME)
    assert before is not None
    log = before.path / "_delta_log"
    of_kept = log / f"{0:020}.crc"
    of_kept.touch()

    checkpoint(before)
    assert list(log.glob("*.checkpoint.parquet"))
    assert of_kept.exists()
    assert open_history(lake, NAME) == before
    assert DeltaTable(before.path, version=2).transaction_version(HISTORY_APP) == 110
