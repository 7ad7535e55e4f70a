"""Tests of SQL over versions of Delta tables: the rows of each version, files that are not opened, requests."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import Schema
from pyroaring import BitMap64

from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.data_files import list_files, write_file, write_part
from auditlake.delta.deletion_vectors import write_vectors
from auditlake.delta.log_reader import Add, file_path
from auditlake.delta.log_writer import Action, Creation, create_table, put_commit, removed, with_schema
from auditlake.delta.sql import TableFiles, open_duckdb, read_log_at, read_newest, select
from auditlake.delta.table import open_table
from auditlake.errors import LakeUnusable, Unsupported
from auditlake.sql_names import duckdb_literal
from auditlake.store import objects
from auditlake.store.files import remove_folder
from auditlake.store.place import Place, Remote
from tests.s3_server import overwrite

_SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])
_NUMBERS = "select n from t order by n"


def _table(place: Place, schema: pa.Schema = _SCHEMA) -> Place:
    path = place / "t"
    create_table(cast("Path", path), Creation(None, Schema.from_arrow(schema), (), {}, deletion_vectors=True))
    return path


def _written(path: Place, numbers: Sequence[int], schema: pa.Schema = _SCHEMA) -> Action:
    texts = [pa.array([f"text {n}" for n in numbers]) for _ in schema.names[1:]]
    return write_file(path, pa.record_batch([pa.array(numbers), *texts], schema=schema))


def _append(path: Place, version: int, numbers: Sequence[int]) -> None:
    put_commit(path, version, "WRITE", [_written(path, numbers)])


def _numbers(table: TableFiles | None) -> list[int]:
    return list(select(_NUMBERS, t=table)["n"].to_pylist())


def _gaining_columns(path: Place) -> TableFiles:
    found = read_newest(path)
    assert found is not None
    return replace(found, gains_columns=True)


def _first(path: Place, version: int) -> Add:
    """Return the file with the least numbers."""
    return min(list_files(path, version), key=lambda file: file.bounds("n") or ()).add


def _marked(path: Place, version: int, positions: Sequence[int]) -> None:
    """Mark rows of the first file as deleted."""
    first = _first(path, version - 1)
    (vector,) = write_vectors(path, [BitMap64(positions)])
    put_commit(
        path, version, "MERGE", [removed(first), {"add": {**first, "deletionVector": vector, "dataChange": True}}]
    )


@pytest.mark.parametrize("folder", ["tmp_path", "remote_folder"])
def test_each_version_has_its_rows(folder: str, request: pytest.FixtureRequest) -> None:
    """Also after a checkpoint, a removed file, and rows that a deletion vector marks."""
    path = _table(request.getfixturevalue(folder))
    for version in range(1, 12):
        _append(path, version, range(version * 10, version * 10 + 10))
        assert _numbers(read_newest(path)) == list(range(10, version * 10 + 10))
    checkpoint(path)
    put_commit(path, 12, "DELETE", [removed(_first(path, 11))])
    _marked(path, 13, [0, 3])
    gone = {*range(10, 20), 20, 23}
    assert _numbers(read_newest(path)) == [n for n in range(10, 120) if n not in gone]
    assert _numbers(read_log_at(path, 12)) == list(range(20, 120))


def test_no_part_of_a_file_is_kept(tmp_path: Path) -> None:
    """It may have values that are erased later; a process may run for months."""
    file = tmp_path / "small.parquet"
    pq.write_table(pa.table({"v": ["erased later"]}), file)
    with closing(open_duckdb()) as connection:
        assert connection.execute(f"select v from '{file}'").fetchall() == [("erased later",)]
        assert connection.execute("select * from duckdb_external_file_cache()").fetchall() == []


def test_columns_have_names_of_duckdb(tmp_path: Path) -> None:
    """Rows of a marked file are then read without DuckDB's numbers of rows."""
    schema = pa.schema([*_SCHEMA, pa.field("file_index", pa.string()), pa.field("File_Row_Number", pa.string())])
    path = _table(tmp_path, schema)
    put_commit(path, 1, "WRITE", [_written(path, [1, 2, 3], schema)])
    _marked(path, 2, [1])
    found = select("select * from t order by n", t=_gaining_columns(path))
    assert found.column_names == schema.names
    assert found.to_pylist()[1] == {name: 3 if name == "n" else "text 3" for name in schema.names}


def test_a_file_lacks_a_column(tmp_path: Path) -> None:
    """It is NULL in the rows of a file from before it was added, also if no other file is read."""
    path = _table(tmp_path)
    _append(path, 1, [1])
    _add_column(path)
    assert select("select * from t", t=_gaining_columns(path)).to_pylist() == [{"n": 1, "text": "text 1", "more": None}]


def test_a_file_has_the_columns_of_its_partition(tmp_path: Path) -> None:
    """Delta's writers put them there; the log has their values."""
    path = tmp_path / "t"
    part = pa.schema([*_SCHEMA, pa.field("part", pa.string())])
    create_table(path, Creation(None, Schema.from_arrow(part), ("part",), {}, deletion_vectors=True))
    rows = pa.table({"n": [1, 2], "text": ["a", "b"], "part": ["open", "open"]}, schema=part)
    put_commit(path, 1, "WRITE", [write_part(path, rows, ["n"], {"part": "open"})])
    assert _numbers(_gaining_columns(path)) == [1, 2]
    _marked(path, 2, [1])
    assert _numbers(_gaining_columns(path)) == [1]


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_file_that_lacks_a_column_is_damaged_if_none_is_added(tmp_path: Path, lacking: int) -> None:
    """One bit may change the name that a file has for it: its rows would be NULL, without a word."""
    path = _table(tmp_path)
    more = pa.schema([*_SCHEMA, pa.field("more", pa.string())])
    for version in (0, 1):
        schema = _SCHEMA if version == lacking else more
        put_commit(path, version + 1, "WRITE", [_written(path, [version], schema)])
    _add_column(path)
    with pytest.raises(LakeUnusable, match="cannot be read"):
        select("select n, more from t", t=read_newest(path))


def _add_column(path: Place) -> None:
    table, added = open_table(path), Schema.from_arrow(pa.schema([pa.field("more", pa.string())])).fields
    put_commit(path, table.version() + 1, "ADD COLUMN", with_schema(table, [*table.schema().fields, *added], {}))


def test_a_table_without_files_has_its_columns(tmp_path: Path) -> None:
    """They are those of its metadata."""
    found = select("select * from t", t=read_newest(_table(tmp_path)))
    assert (found.num_rows, found.schema.remove_metadata()) == (0, _SCHEMA)


def test_files_beyond_the_bounds_are_not_opened(tmp_path: Path) -> None:
    """The second file is not there: only a question that needs it fails."""
    path = _table(tmp_path)
    for version, numbers in ((1, [1, 2]), (2, [3, 4]), (3, [5])):
        _append(path, version, numbers)
    found = read_newest(path)
    assert found is not None
    (tmp_path / "t" / found.files[1].name).unlink()
    assert _numbers(found.within(n=(None, 2))) == [1, 2]
    assert _numbers(found.within(n=(5, None))) == [5]
    assert _numbers(found.within(n=(6, 9))) == []
    with pytest.raises(OSError, match=found.files[1].name):
        _numbers(found.within(n=(2, 3)))


def test_a_text_may_have_the_byte_0(tmp_path: Path) -> None:
    """A literal in the statement would end there."""
    path = _table(tmp_path)
    rows = pa.record_batch([pa.array([1, 2]), pa.array(["a\0'b", "a"])], schema=_SCHEMA)
    put_commit(path, 1, "WRITE", [write_file(path, rows)])
    found = select(
        f"select n from t where text = {duckdb_literal(chr(0).join(['a', chr(39) + 'b']))}", t=read_newest(path)
    )
    assert found.to_pylist() == [{"n": 1}]


def test_an_error_has_no_value_of_a_row(tmp_path: Path) -> None:
    """DuckDB's own text quotes it."""
    path = _table(tmp_path)
    _append(path, 1, [1])
    with pytest.raises(LakeUnusable) as raised:
        select("select cast(text as bigint) from t", t=read_newest(path))
    assert "text 1" not in str(raised.value)


def test_other_table_features_are_refused(tmp_path: Path) -> None:
    """Their files may have other names of columns."""
    path = _table(tmp_path)
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["columnMapping"], "writerFeatures": []}
    put_commit(path, 1, "UPGRADE", [{"protocol": features}])
    with pytest.raises(Unsupported, match="columnMapping"):
        read_newest(path)


def test_an_entry_is_missing(tmp_path: Path) -> None:
    """The files that it named are not known."""
    path = _table(tmp_path)
    _append(path, 1, [1])
    _append(path, 2, [2])
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(LakeUnusable, match="cannot be read"):
        read_newest(path)


def test_a_table_that_was_created_again_is_read_again(remote_folder: Remote) -> None:
    """Its versions have the same numbers, and other ETags."""
    for number in (1, 2):
        path = _table(remote_folder)
        _append(path, 1, [number])
        assert _numbers(read_newest(path)) == [number]
        remove_folder(path)


def test_an_unchanged_table_is_read_again_by_one_listing(
    remote_folder: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a commit, only what is new is requested."""
    path = _table(remote_folder)
    for version in range(1, 21):
        _append(path, version, [version])
    assert len(_numbers(read_newest(path))) == 20
    requested: list[str] = []
    real = objects.get

    def get(bucket: str, key: str) -> objects.Got:
        requested.append(key)
        return real(bucket, key)

    monkeypatch.setattr(objects, "get", get)
    assert len(_numbers(read_newest(path))) == 20
    assert not requested
    _append(path, 21, [21])
    assert len(_numbers(read_newest(path))) == 21
    assert [key for key in requested if key.endswith(".json")] == [f"{remote_folder.key}/t/_delta_log/{21:020}.json"]
    assert not [key for key in requested if key.endswith(".parquet")], "this process has written it"


@pytest.mark.parametrize("bit", range(8))
def test_a_damaged_name_of_a_column_is_no_absent_column(tmp_path: Path, bit: int) -> None:
    """Whichever bit is flipped: a file that has an unknown column is refused."""
    path = _table(tmp_path)
    _append(path, 1, [1])
    _append(path, 2, [2])
    file = file_path(path, _first(path, 2))
    content = file.read_bytes()
    place = content.index(b"text", len(content) - 8 - int.from_bytes(content[-8:-4], "little"))
    overwrite(file, content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
    with pytest.raises((LakeUnusable, OSError)):
        select("select n, text from t", t=_gaining_columns(path))
