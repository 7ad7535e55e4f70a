"""Tests of tables of a store that are read as a copy: the same rows, in a few rounds of requests."""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyroaring import BitMap64

from auditlake.delta import fetched_table
from auditlake.delta.append_table import open_to_read, select
from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.data_files import write_file
from auditlake.delta.deletion_vectors import write_vectors
from auditlake.delta.log_reader import live_files
from auditlake.delta.log_writer import Creation, create_table, put_commit, removed
from auditlake.delta.table import open_table
from auditlake.store import objects
from auditlake.store.files import remove_folder
from auditlake.store.place import Remote

_SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])
_ROWS = "select count(*) as rows, sum(n) as n, max(text) as text from t"


def _table(place: Remote, name: str = "t") -> Path:
    path = cast("Path", place / name)
    create_table(path, Creation(None, Schema.from_arrow(_SCHEMA), (), {}, deletion_vectors=True))
    return path


def _append(path: Path, version: int, numbers: Sequence[int]) -> None:
    rows = pa.record_batch([pa.array(numbers), pa.array([f"text {n}" for n in numbers])], schema=_SCHEMA)
    put_commit(path, version, "WRITE", [write_file(path, rows)])


def _sums(table: DeltaTable | None) -> list[dict[str, object]]:
    assert table is not None
    return list(select(table, "t", _ROWS).to_pylist())


def _folder(table: DeltaTable | None) -> Path:
    assert table is not None
    return Path(urlsplit(table.table_uri).path)


def test_a_copy_has_the_rows_of_each_version(remote_folder: Remote) -> None:
    """Also after a checkpoint, a removed file, and rows that a deletion vector marks."""
    path = _table(remote_folder)
    for version in range(1, 12):
        _append(path, version, range(version * 10, version * 10 + 10))
        assert _sums(open_to_read(path)) == _sums(open_table(path))
    checkpoint(path)
    first, second, *_ = live_files(path, 11)
    (vector,) = write_vectors(path, [BitMap64([0, 3])])
    marked = {"add": {**second, "deletionVector": vector, "dataChange": True}}
    put_commit(path, 12, "MERGE", [removed(first), removed(second), marked])
    found = open_to_read(path)
    assert (
        _sums(found) == _sums(open_table(path)) != _sums(open_table(path).__class__(str(path), 11, objects.options()))
    )
    assert _folder(found).is_dir()


def test_a_copy_is_private_and_deleted(remote_folder: Remote) -> None:
    """It has rows: only this user may read it, and it stays for as long as the table is in use."""
    path = _table(remote_folder)
    _append(path, 1, [1])
    (etag,) = (
        etag for key, etag in objects.etags(remote_folder.bucket, f"{remote_folder.key}/") if key.endswith("1.json")
    )
    copy = fetched_table.fetch_table(remote_folder / "t", 1, str(etag))
    folder = _folder(copy)
    assert folder.stat().st_mode & 0o777 == 0o700
    del copy
    gc.collect()
    assert not folder.exists()


def test_a_table_that_was_created_again_is_copied_again(remote_folder: Remote) -> None:
    """Its versions have the same numbers, and other ETags."""
    for number in (1, 2):
        path = _table(remote_folder)
        _append(path, 1, [number])
        assert _sums(open_to_read(path))[0]["n"] == number
        remove_folder(path)


def test_an_unchanged_table_is_read_again_by_one_listing(
    remote_folder: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a commit, only what is new is requested."""
    path = _table(remote_folder)
    for version in range(1, 21):
        _append(path, version, [version])
    assert _sums(open_to_read(path))[0]["rows"] == 20
    requested: list[str] = []
    real = objects.get

    def get(bucket: str, key: str) -> objects.Got:
        requested.append(key)
        return real(bucket, key)

    monkeypatch.setattr(objects, "get", get)
    assert _sums(open_to_read(path))[0]["rows"] == 20
    assert not requested
    _append(path, 21, [21])
    assert _sums(open_to_read(path))[0]["rows"] == 21
    assert [key for key in requested if key.endswith(".json")] == [f"{remote_folder.key}/t/_delta_log/{21:020}.json"]
    assert not [key for key in requested if key.endswith(".parquet")], "this process has written it"


def test_a_large_table_stays_in_the_store(remote_folder: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are the same."""
    monkeypatch.setattr(fetched_table, "FETCHED_BYTES", 1)
    path = _table(remote_folder)
    _append(path, 1, [5])
    found = open_to_read(path)
    assert found is not None
    assert found.table_uri.startswith("s3://")
    assert _sums(found)[0]["n"] == 5
