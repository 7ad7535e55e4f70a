"""Tests of the positions: the last log entries have the same ones as the table opened by deltalake."""

from pathlib import Path

import pyarrow as pa
import pytest

from auditlake.capture.change_log import CaptureLog, CommitEnd
from auditlake.delta import log_reader
from auditlake.delta.table import open_table
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, CURRENT_APP, Lake
from auditlake.lake.positions import Positions, read_positions
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA
from tests.s3_server import chosen_lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Write a lake as capture does: one entry with all positions, then one with only some of them."""
    lake = chosen_lake(tmp_path)
    log = CaptureLog(lake)
    log.start_at(Lsn(0x100))
    changes, transactions = (
        pa.RecordBatch.from_pylist([], schema=schema) for schema in (CHANGES_SCHEMA, TRANSACTIONS_SCHEMA)
    )
    log.append(changes, transactions, CommitEnd(Lsn(0x200), Lsn(0x210)))
    log.record_idle(Lsn(0x300), 7)
    return lake


def read_by_deltalake(lake: Lake) -> Positions:
    """Read the positions with deltalake."""
    table = open_table(lake.changes)
    watermark, acknowledged, current = (
        table.transaction_version(app) or 0 for app in (CHANGES_APP, ACKNOWLEDGED_APP, CURRENT_APP)
    )
    return Positions(table.version(), Lsn(watermark), Lsn(acknowledged), current)


def test_a_later_entry_overrides_an_earlier_one(lake: Lake) -> None:
    """An entry with only some positions leaves the others unchanged."""
    assert read_positions(lake) == read_by_deltalake(lake)
    assert read_positions(lake) == Positions(3, Lsn(0x200), Lsn(0x300), 7)


def test_positions_missing_from_the_last_entries_are_read_from_the_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries may have been deleted after a checkpoint, or be too old to be read."""
    open_table(lake.changes).create_checkpoint()
    for version in (0, 1, 2):
        (lake.changes / "_delta_log" / f"{version:020}.json").unlink()
    assert read_positions(lake) == read_by_deltalake(lake)
    monkeypatch.setattr(log_reader, "_TAIL_ENTRIES", 0)
    assert read_positions(lake) == read_by_deltalake(lake)


def test_there_are_no_positions_before_the_first_capture(tmp_path: Path) -> None:
    """Without a table, and with a table without positions, the result is None."""
    assert read_positions(chosen_lake(tmp_path)) is None
    CaptureLog(chosen_lake(tmp_path))
    assert read_positions(chosen_lake(tmp_path)) is None
