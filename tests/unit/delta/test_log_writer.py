"""Commits written without deltalake: readable by others, written once, never lost, recognized by their id."""

import os
import re
import threading
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from auditlake.delta.append_table import AppendLog
from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.log_writer import moved, put_commit
from auditlake.errors import LakeUnusable
from auditlake.store.place import Place

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
    """Return rows with every type that capture writes, and NULLs."""
    return pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)


def test_appended_rows_are_read_back(tmp_path: Path) -> None:
    """With the same types and values, by deltalake and by polars."""
    AppendLog(tmp_path, SCHEMA).append(rows(), {"app": 7})
    assert pa.table(DeltaTable(tmp_path).to_pyarrow_table()).cast(SCHEMA).equals(pa.table(rows()))
    assert pl.read_delta(str(tmp_path))["values"].to_list() == [["a", None], None]
    assert DeltaTable(tmp_path).transaction_version("app") == 7


def test_the_log_has_the_bounds_of_integers(tmp_path: Path) -> None:
    """Exact bounds and NULLs of each integer column, and no bounds of a column that is all NULL."""
    AppendLog(tmp_path, SCHEMA).append(rows(), {})
    listed = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()[0]
    bounds = (listed["min.number"], listed["max.number"], listed["null_count.number"], listed["null_count.place"])
    assert bounds == (-5, 2**62, 0, 2)
    assert (listed["num_records"], listed.get("min.place"), listed.get("max.name")) == (2, None, None)


def test_a_version_is_written_once(tmp_path: Path) -> None:
    """A second commit of the version is refused, and the first stays unchanged."""
    log = AppendLog(tmp_path, SCHEMA)
    log.append(rows(), {"app": 1})
    with pytest.raises(FileExistsError):
        put_commit(tmp_path, 1, "WRITE", [])
    assert DeltaTable(tmp_path).transaction_version("app") == 1
    assert not list((tmp_path / "_delta_log").glob(".*"))


def expire(path: Place, version: int) -> None:
    """Make commits and checkpoints, until every entry up to a version is deleted."""
    log = AppendLog(cast("Path", path), SCHEMA)
    for number in range(1, version + 4):
        log.append(rows(), {"app": number})
        checkpoint(path, kept_for_s=-60)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_version_whose_entry_was_deleted_is_not_written_again(tmp_path: Path, version: int) -> None:
    """No reader would see the commit of a process that planned it before: a later checkpoint exists."""
    expire(tmp_path, 3)
    before = DeltaTable(tmp_path)
    entries = sorted((tmp_path / "_delta_log").glob("*.json"))
    assert entries[0].name == f"{5:020}.json"
    with pytest.raises(FileExistsError, match="had this version"):
        put_commit(tmp_path, version, "WRITE", moved({"app": 99}))
    kept = [tmp_path / "_delta_log" / f"{0:020}.json"] if version == 0 else []
    assert sorted((tmp_path / "_delta_log").glob("*.json")) == [*kept, *entries]
    after = DeltaTable(tmp_path)
    assert (after.version(), after.transaction_version("app")) == (before.version(), before.transaction_version("app"))
    put_commit(tmp_path, before.version() + 1, "WRITE", moved({"app": 99}))
    assert DeltaTable(tmp_path).transaction_version("app") == 99


def test_entries_are_deleted_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed while it deletes them leaves the later ones: no version is free between two entries."""
    deleted: list[str] = []
    unlink = Path.unlink

    def recorded(path: Path, *, missing_ok: bool = False) -> None:
        deleted.append(path.name)
        unlink(path, missing_ok=missing_ok)

    log = AppendLog(tmp_path, SCHEMA)
    for number in range(1, 31):
        log.append(rows(), {"app": number})
    checkpoint(tmp_path)
    log.append(rows(), {"app": 31})
    monkeypatch.setattr(Path, "unlink", recorded)
    checkpoint(tmp_path, kept_for_s=-60)
    entries = [name for name in deleted if re.fullmatch(r"\d{20}\.json", name)]
    assert entries == sorted(entries)
    assert len(entries) == 30


@pytest.mark.parametrize("error", [FileExistsError, OSError])
def test_a_commit_whose_reply_is_lost_has_succeeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """link(2) reports an error although it took effect: the id in the entry identifies our commit."""
    log = AppendLog(tmp_path, SCHEMA)
    link = os.link

    def lose(old: Path, new: Path) -> None:
        link(old, new)
        raise error

    with monkeypatch.context() as lossy:
        lossy.setattr(os, "link", lose)
        log.append(rows(), {"app": 1})
    log.append(rows(), {"app": 2})
    assert DeltaTable(tmp_path).version() == 2
    assert DeltaTable(tmp_path).transaction_version("app") == 2


def test_no_commit_of_many_writers_is_lost(tmp_path: Path) -> None:
    """Writers that race for the next version get one each, and every entry stays as its writer wrote it."""
    AppendLog(tmp_path, SCHEMA)
    versions: dict[str, list[int]] = {f"writer-{number}": [] for number in range(4)}

    def write(name: str) -> None:
        version = 1
        while len(versions[name]) < 5:
            try:
                put_commit(tmp_path, version, name, [])
            except FileExistsError:
                version += 1
            else:
                versions[name].append(version)

    writers = [threading.Thread(target=write, args=(name,)) for name in versions]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    made = {version: name for name, mine in versions.items() for version in mine}
    assert sorted(made) == list(range(1, 21))
    log = tmp_path / "_delta_log"
    assert all(f'"operation": "{name}"' in (log / f"{at:020}.json").read_text() for at, name in made.items())
    assert len({(log / f"{at:020}.json").read_bytes() for at in made}) == 20


def test_a_table_with_features_is_refused(tmp_path: Path) -> None:
    """Another program turned on a feature that appends would have to support."""
    AppendLog(tmp_path, SCHEMA)
    DeltaTable(tmp_path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with pytest.raises(LakeUnusable, match="writer version 4"):
        AppendLog(tmp_path, SCHEMA)
