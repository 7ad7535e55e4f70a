"""Deletion vectors, and the log entries that name them, compared with deltalake's own implementation."""

import base64
import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from auditlake.delta.data_files import write_part
from auditlake.delta.deletion_vectors import _B85, _Z85, read_vector, write_vectors
from auditlake.delta.log_reader import Add, file_path, live_files
from auditlake.delta.log_writer import Creation, create_table, moved, put_commit, removed

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})
PART = {"_part": "open"}


def begin(folder: Path) -> None:
    """Create a table with two files of ten rows."""
    schema = Schema.from_arrow(pa.schema([*ROWS.schema, pa.field("_part", pa.string())]))
    configuration = {"delta.enableDeletionVectors": "true"}
    create_table(folder, Creation("a table", schema, ("_part",), configuration))
    put_commit(folder, 1, "WRITE", [write_part(folder, ROWS, ["id"], PART) for _ in range(2)])


def mark(folder: Path, version: int, add: Add, rows: Iterable[int]) -> None:
    """Mark rows of a file in the next version."""
    (vector,) = write_vectors(folder, [BitMap64(rows)])
    stats = json.dumps({**json.loads(add["stats"]), "tightBounds": False})
    after = {**add, "dataChange": True, "stats": stats, "deletionVector": vector}
    put_commit(folder, version, "DELETE", [removed(add), {"add": after}])


def marked(folder: Path) -> dict[str, list[int]]:
    """Return the positions that deltalake finds marked, by file name."""
    rows = pa.table(DeltaTable(folder).deletion_vectors()).to_pylist()
    return {
        Path(row["filepath"]).name: [place for place, kept in enumerate(row["selection_vector"]) if not kept]
        for row in rows
    }


def ours(folder: Path, version: int) -> dict[str, list[int]]:
    """Return the positions that we find marked, by file name."""
    return {
        file_path(folder, add).name: list(read_vector(folder, add["deletionVector"]))
        for add in live_files(folder, version)
        if "deletionVector" in add
    }


def test_marked_rows_are_deleted_for_another_reader(tmp_path: Path) -> None:
    """Rows marked once, and more of them after a checkpoint; the new vector replaces the old one."""
    begin(tmp_path)
    first, second = live_files(tmp_path, 1)
    mark(tmp_path, 2, first, [0, 3])
    assert ours(tmp_path, 2) == marked(tmp_path) == {file_path(tmp_path, first).name: [0, 3]}
    DeltaTable(tmp_path).create_checkpoint()
    (again,) = (add for add in live_files(tmp_path, 2) if add["path"] == first["path"])
    mark(tmp_path, 3, again, [0, 3, 9])
    mark(tmp_path, 4, second, [5])
    assert ours(tmp_path, 4) == marked(tmp_path)
    assert sorted(ours(tmp_path, 4).values()) == [[0, 3, 9], [5]]

    reader = QueryBuilder().register("t", DeltaTable(tmp_path))
    left = pa.table(reader.execute("select id, count(*) as n from t group by id order by id"))
    assert left.to_pydict() == {"id": [*range(10)], "n": [1, 2, 2, 1, 2, 1, 2, 2, 2, 1]}


def test_replay_with_a_checkpoint_equals_replay_without(tmp_path: Path) -> None:
    """For every version; older versions do not have later files."""
    begin(tmp_path)
    for version in range(2, 6):
        add = min(live_files(tmp_path, version - 1), key=lambda add: add.get("deletionVector", {}).get("offset", 0))
        mark(tmp_path, version, add, [version])
    put_commit(tmp_path, 6, "WRITE", [*moved({"app": 7}), write_part(tmp_path, ROWS, ["id"], {"_part": "2026-11"})])
    without = {version: _described(live_files(tmp_path, version)) for version in range(1, 7)}
    DeltaTable(tmp_path, version=3).create_checkpoint()
    assert {version: _described(live_files(tmp_path, version)) for version in range(1, 7)} == without
    assert [len(files) for files in without.values()] == [2, 2, 2, 2, 2, 3]
    assert DeltaTable(tmp_path).transaction_version("app") == 7


def _described(files: Iterable[Add]) -> list[str]:
    wanted = ("path", "partitionValues", "size", "modificationTime", "stats", "deletionVector")
    return sorted(repr([add.get(name) for name in wanted]) for add in files)


def test_a_missing_entry_is_an_error(tmp_path: Path) -> None:
    """A version without its entries is not read as an empty one."""
    begin(tmp_path)
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(FileNotFoundError):
        live_files(tmp_path, 1)


@settings(deadline=None)  # depends on the disk
@given(st.lists(st.sets(st.integers(0, 1 << 40), max_size=50), min_size=1, max_size=4))
def test_all_vectors_of_one_file_are_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[set[int]]) -> None:
    """Each descriptor has the offset and the cardinality of its vector."""
    folder = tmp_path_factory.mktemp("vectors")
    descriptors = write_vectors(folder, [BitMap64(each) for each in rows])
    assert [set(read_vector(folder, descriptor)) for descriptor in descriptors] == rows
    assert [descriptor["cardinality"] for descriptor in descriptors] == [len(each) for each in rows]
    assert len([*folder.iterdir()]) == 1


def test_an_inline_vector_is_read(tmp_path: Path) -> None:
    """The action itself may contain a small one, in Z85."""
    begin(tmp_path)
    add, _ = live_files(tmp_path, 1)
    (descriptor,) = write_vectors(tmp_path, [BitMap64([2, 7])])
    (file,) = tmp_path.glob("*.bin")
    held = file.read_bytes()[5:-4]
    padded = held + bytes(-len(held) % 4)
    z85 = base64.b85encode(padded).translate(bytes.maketrans(_B85, _Z85)).decode()
    inline = {"storageType": "i", "pathOrInlineDv": z85, "sizeInBytes": len(held), "cardinality": 2}
    put_commit(tmp_path, 2, "DELETE", [removed(add), {"add": {**add, "deletionVector": inline}}])
    assert ours(tmp_path, 2) == marked(tmp_path) == {file_path(tmp_path, add).name: [2, 7]}
    assert descriptor["sizeInBytes"] == len(held)


@pytest.mark.parametrize("place", [1, 5, 12, -1])
def test_a_damaged_file_is_refused(tmp_path: Path, place: int) -> None:
    """With another size, other bytes or another checksum."""
    (descriptor,) = write_vectors(tmp_path, [BitMap64([1, 2, 3])])
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="another deletion vector"):
        read_vector(tmp_path, descriptor)


def test_unsupported_kinds_of_vectors_are_refused(tmp_path: Path) -> None:
    """A vector at an absolute path, and one of another format."""
    with pytest.raises(ValueError, match="storage type p"):
        read_vector(tmp_path, {"storageType": "p", "pathOrInlineDv": "/x", "sizeInBytes": 1})
    other = base64.b85encode(bytes(8)).decode()
    with pytest.raises(ValueError, match="begins with"):
        read_vector(tmp_path, {"storageType": "i", "pathOrInlineDv": other, "sizeInBytes": 8})
