"""Data files: one listing for every log, one routine for statistics, and paths that every reader resolves."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema

from auditlake.delta.data_files import (
    DataFile,
    file_statistics,
    join_intact,
    list_any_files,
    list_files,
    write_file,
    write_part,
)
from auditlake.delta.log_writer import Creation, create_table, put_commit
from tests.full_disk import file_size_limit

ROWS = pa.table({"id": pa.array([3, 1, 2], pa.int64())})
SCHEMA = Schema.from_arrow(pa.schema([*ROWS.schema, pa.field("part", pa.string())]))
CONFIGURATION = {"delta.enableDeletionVectors": "true"}


def create(table: Path, *parts: str) -> None:
    """Create a table with one file in each of these partitions, as version 1."""
    create_table(table, Creation("t", SCHEMA, ("part",), CONFIGURATION))
    put_commit(table, 1, "WRITE", [write_part(table, ROWS, ["id"], {"part": part}) for part in parts])


def facts(file: DataFile) -> tuple[object, ...]:
    """Return all that a listing by deltalake has of a file."""
    return (file.name, file.add["path"], file.add["partitionValues"], file.size_bytes, file.rows, file.bounds("id"))


@pytest.mark.parametrize("limit", [100, 300])
def test_a_write_on_a_full_disk_raises_the_error_of_the_file_system(tmp_path: Path, limit: int) -> None:
    """Whether the rows or only the footer does not fit; the error becomes exit code 6, not 1."""
    (rows,) = ROWS.to_batches()
    adds = [dict(write_file(tmp_path, rows)["add"]) for _ in range(2)]
    with file_size_limit(limit):
        with pytest.raises(OSError, match="File too large") as failed:
            write_file(tmp_path, rows)
        with pytest.raises(OSError, match="File too large"):
            join_intact(tmp_path, adds)
    assert str(failed.value.filename).startswith(f"{tmp_path}/")


@pytest.mark.parametrize("part", ["open", "a b/50%"])
def test_deltalake_lists_a_log_that_the_replay_does_not_support(tmp_path: Path, part: str) -> None:
    """A checkpoint in parts, with the entries before it deleted: the same files, sizes, rows and bounds."""
    create(tmp_path, part)
    replayed = list_files(tmp_path, 1)
    DeltaTable(tmp_path).create_checkpoint()
    log = tmp_path / "_delta_log"
    checkpoint = log / f"{1:020}.checkpoint.parquet"
    checkpoint.rename(log / f"{1:020}.checkpoint.{1:010}.{1:010}.parquet")
    (log / "_last_checkpoint").write_text(json.dumps({"version": 1, "size": 4, "parts": 1}))
    (log / f"{0:020}.json").unlink()
    with pytest.raises(FileNotFoundError):
        list_files(tmp_path, 1)
    assert [facts(file) for file in list_any_files(tmp_path, 1)] == [facts(file) for file in replayed]


def test_another_reader_finds_files_of_partitions_with_special_characters(tmp_path: Path) -> None:
    """The folder is encoded, the path in the log once more, and the value is that of the log."""
    parts = ["a b", "50%", "%41", "a/b", "../x", "é"]
    create(tmp_path, *parts)
    reader = QueryBuilder().register("t", DeltaTable(tmp_path))
    assert sorted(pa.table(reader.execute("select part from t").read_all())["part"].to_pylist()) == sorted(parts * 3)


def test_statistics_cover_all_row_groups_of_the_column(tmp_path: Path) -> None:
    """A group that is all NULL adds only its NULLs; a field of a struct with the same dotted path adds nothing."""
    numbers = pa.array([5, None, 7, None, None, None], pa.int32())
    fields = pa.array([{"b": 100}] * 6, pa.struct([pa.field("b", pa.int32())]))
    file = tmp_path / "file.parquet"
    rows = pa.table({"a.b": numbers, "a": fields, "empty": pa.nulls(6, pa.int64())})
    pq.write_table(rows, file, row_group_size=3)
    assert file_statistics(pq.read_metadata(file), ["a.b", "empty"]) == {
        "numRecords": 6,
        "minValues": {"a.b": 5},
        "maxValues": {"a.b": 7},
        "nullCount": {"a.b": 4, "empty": 6},
    }


def test_columns_without_statistics_in_the_file_have_none_in_the_log(tmp_path: Path) -> None:
    """An unknown bound is omitted, so that no reader skips the file."""
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), file, write_statistics=False)
    assert file_statistics(pq.read_metadata(file), ["id"]) == {
        "numRecords": 2,
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
    }
