"""Expired files of tables on a disk and in a store; tests with Delta's VACUUM compare them with its own."""

import time
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import Schema
from pyroaring import BitMap64

from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.data_files import write_file
from auditlake.delta.deletion_vectors import write_vectors
from auditlake.delta.expired_files import expired_files
from auditlake.delta.log_reader import live_files
from auditlake.delta.log_writer import Creation, create_table, put_commit, removed
from auditlake.store.files import list_written, make_folder, put_if_absent, remove_files
from auditlake.store.place import Place

_SCHEMA = pa.schema([pa.field("n", pa.int64())])


@pytest.fixture(params=["disk", "s3"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table with a live file whose rows are marked, and a file that was removed."""
    folder = tmp_path if request.param == "disk" else cast("Path", request.getfixturevalue("remote_folder"))
    path = folder / "t"
    create_table(path, Creation(None, Schema.from_arrow(_SCHEMA), (), {}, deletion_vectors=True))
    for version in (1, 2):
        put_commit(path, version, "WRITE", [write_file(path, pa.record_batch([pa.array([version])], schema=_SCHEMA))])
    first, second = sorted(live_files(path, 2), key=lambda add: add["modificationTime"])
    (vector,) = write_vectors(path, [BitMap64([0])])
    marked = {"add": {**second, "deletionVector": vector, "dataChange": True}}
    put_commit(path, 3, "MERGE", [removed(first), removed(second), marked])
    return path


def _names(table: Place) -> set[str]:
    return {name for name, _ in list_written(table) if not name.startswith("_delta_log/")}


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_removed_file_expires_once_no_reader_may_have_its_version(table: Path, *, checkpointed: bool) -> None:
    """A deletion vector that is in force stays, and so does the file whose rows it marks."""
    if checkpointed:
        checkpoint(table)
    began_s, all_names = time.time(), _names(table)
    assert len(all_names) == 3
    assert expired_files(table, began_s - 60) == []
    (expired,) = expired_files(table, began_s + 60)
    remove_files([expired])
    assert _names(table) == all_names - {expired.name}
    assert {add["path"] for add in live_files(table, 3)} <= _names(table)
    assert expired_files(table, began_s + 60) == []


def test_a_file_of_a_killed_writer_expires_and_an_unfinished_one_does_not(table: Path) -> None:
    """No entry of the log names either."""
    for name in ("_part=open/stray.parquet", "_part=open/_unfinished.parquet", "_temporary/0/stray.parquet"):
        make_folder((table / name).parent)
        put_if_absent(table / name, b"PAR1")
    strays = {str(place).removeprefix(f"{table}/") for place in expired_files(table, time.time() + 60)}
    assert "_part=open/stray.parquet" in strays
    assert not {name for name in strays if "unfinished" in name or "temporary" in name}
