"""Tests of the Parquet file of a copied range: dictionaries, statistics, period columns."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName
from auditlake.snapshot.copy import HistoryFile
from auditlake.snapshot.ctid_ranges import SnapshotMark

_NAME = TableName("public", "t")
_INT8, _TEXT, _NUMERIC_10_2 = 20, 25, (1700, 655366)
_COLUMNS = (
    Column("id", _INT8, -1, key=True),
    Column("code", _TEXT, -1, key=True),
    Column("note", _TEXT, -1, key=False),
    Column("kind", _TEXT, -1, key=False),
    Column("price", *_NUMERIC_10_2, key=False),
)
_RAW = pa.map_(pa.string(), pa.string())


def _write(folder: Path, *lengths: int) -> HistoryFile:
    file = HistoryFile(folder, _COLUMNS, SnapshotMark(Lsn(7), 1_000_000))
    first = 0
    for length in lengths:
        numbers = range(first, first + length)
        typed = [
            pa.array(numbers, pa.int64()),
            pa.array([f"c{n}" for n in numbers]),
            pa.array([f"note {n}" for n in numbers]),
            pa.array([f"kind {n % 3}" for n in numbers]),
            pa.array([Decimal(n) for n in numbers], pa.decimal128(10, 2)),
        ]
        file.write(typed, pa.nulls(length, pa.int32()), pa.nulls(length, _RAW))
        first += length
    file.close()
    return file


def test_repeating_columns_get_dictionaries_and_searched_ones_statistics(tmp_path: Path) -> None:
    """Keys, integers, dates and times have statistics; other columns pay for none."""
    copied = _write(tmp_path, 9000, 20).copied(_NAME)
    group = pq.ParquetFile(tmp_path / copied.path).metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    with_dictionary = {name for name, column in columns.items() if column.has_dictionary_page}
    assert with_dictionary >= {"kind", "_from_lsn", "_op"}
    assert not with_dictionary & {"id", "code", "note", "price"}
    with_stats = {name for name, column in columns.items() if column.is_stats_set}
    assert with_stats >= {"id", "code", "_from_lsn", "_from_time"}
    assert not with_stats & {"note", "kind", "price"}


def test_every_row_has_the_period_of_the_snapshot(tmp_path: Path) -> None:
    """Batches may grow and shrink; the file's statistics cover all of them."""
    copied = _write(tmp_path, 5, 9, 0, 3).copied(_NAME)
    rows = pq.read_table(tmp_path / copied.path, partitioning=None).to_pylist()
    assert [row["id"] for row in rows] == list(range(17))
    began = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert {(row["_from_lsn"], row["_from_time"], row["_op"], row["_to_lsn"]) for row in rows} == {
        (7, began, "snapshot", None)
    }
    stats = json.loads(copied.stats)
    assert (stats["numRecords"], stats["minValues"]["id"], stats["maxValues"]["id"]) == (17, 0, 16)


def test_an_empty_range_creates_no_file(tmp_path: Path) -> None:
    """Not even a folder is created."""
    copied = _write(tmp_path, 0).copied(_NAME)
    assert (copied.rows, copied.size_bytes) == (0, 0)
    assert not list(tmp_path.iterdir())
