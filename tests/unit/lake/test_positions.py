"""Positions from the last entries of the log are those that deltalake tells."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from auditlake.lake import positions as stage
from auditlake.lake.changes import CaptureLog, CommitEnd
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, CURRENT_APP, Lake
from auditlake.lake.positions import Positions, read_positions
from auditlake.lsn import Lsn
from auditlake.pgoutput.schema import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake that capture has written to: all positions, then only some of them."""
    lake = Lake(tmp_path)
    log = CaptureLog(lake)
    log.start_at(Lsn(0x100))
    changes, transactions = (
        pa.RecordBatch.from_pylist([], schema=schema) for schema in (CHANGES_SCHEMA, TRANSACTIONS_SCHEMA)
    )
    log.append(changes, transactions, CommitEnd(Lsn(0x200), Lsn(0x210)))
    log.note_idle(Lsn(0x300), 7)
    return lake


def told_by_deltalake(lake: Lake) -> Positions:
    """The positions as another reader of the table finds them."""
    table = DeltaTable(lake.changes)
    watermark, acknowledged, current = (
        table.transaction_version(app) or 0 for app in (CHANGES_APP, ACKNOWLEDGED_APP, CURRENT_APP)
    )
    return Positions(table.version(), Lsn(watermark), Lsn(acknowledged), current)


def test_a_later_entry_holds(lake: Lake) -> None:
    """An entry that moves only some positions leaves the others where the one before put them."""
    assert read_positions(lake) == told_by_deltalake(lake)
    assert read_positions(lake) == Positions(3, Lsn(0x200), Lsn(0x300), 7)


def test_behind_a_checkpoint(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last entries do not tell all, the table itself does."""
    DeltaTable(lake.changes).create_checkpoint()
    for version in (0, 1, 2):
        (lake.changes / "_delta_log" / f"{version:020}.json").unlink()
    assert read_positions(lake) == told_by_deltalake(lake)
    monkeypatch.setattr(stage, "_ENTRIES_AT_MOST", 0)
    assert read_positions(lake) == told_by_deltalake(lake)


def test_no_capture_yet(tmp_path: Path) -> None:
    """No table, and a table without a position, are no lake to start from."""
    assert read_positions(Lake(tmp_path)) is None
    CaptureLog(Lake(tmp_path))
    assert read_positions(Lake(tmp_path)) is None
