"""Commits that are written without deltalake are what it and every other reader expects of one."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from auditlake.errors import LakeUnusable
from auditlake.lake.commits import put_commit
from auditlake.lake.log import AppendLog

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("place", pa.int32()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
        ("values", pa.list_(pa.string())),
        ("places", pa.list_(pa.int16())),
        ("content", pa.binary()),
    ]
)
ROWS = [
    {"number": 2**62, "place": None, "time": 1, "name": "näme", "values": ["a", None], "places": [], "content": b"\0"},
    {"number": -5, "place": None, "time": 2, "name": None, "values": None, "places": [7], "content": None},
]


def rows() -> pa.RecordBatch:
    """Every type that capture writes, NULL where it can be."""
    return pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)


def test_rows_come_back(tmp_path: Path) -> None:
    """Types and values are those that were appended, for deltalake and for a reader of another make."""
    AppendLog(tmp_path, SCHEMA).append(rows(), {"app": 7})
    assert pa.table(DeltaTable(tmp_path).to_pyarrow_table()).cast(SCHEMA).equals(pa.table(rows()))
    assert pl.read_delta(str(tmp_path))["values"].to_list() == [["a", None], None]
    assert DeltaTable(tmp_path).transaction_version("app") == 7


def test_the_log_tells_the_ends_of_numbers(tmp_path: Path) -> None:
    """Lowest, highest and NULLs of each integer column, exactly; nothing of a column that has none."""
    AppendLog(tmp_path, SCHEMA).append(rows(), {})
    told = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()[0]
    ends = (told["min.number"], told["max.number"], told["null_count.number"], told["null_count.place"])
    assert ends == (-5, 2**62, 0, 2)
    assert (told["num_records"], told.get("min.place"), told.get("max.name")) == (2, None, None)


def test_a_version_is_written_once(tmp_path: Path) -> None:
    """Whoever comes second is refused, and what the first wrote stays whole."""
    log = AppendLog(tmp_path, SCHEMA)
    log.append(rows(), {"app": 1})
    with pytest.raises(FileExistsError):
        put_commit(tmp_path, 1, "WRITE", [])
    assert DeltaTable(tmp_path).transaction_version("app") == 1
    assert not list((tmp_path / "_delta_log").glob(".*"))


def test_a_table_with_features_is_refused(tmp_path: Path) -> None:
    """A table that somebody has given a feature which appends would have to honour is left alone."""
    AppendLog(tmp_path, SCHEMA)
    DeltaTable(tmp_path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with pytest.raises(LakeUnusable, match="writer version 4"):
        AppendLog(tmp_path, SCHEMA)
