"""Small files of a history joined in memory: the same rows in one file of each part, seen by another reader."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction
from pyroaring import BitMap64

from auditlake.lake.actions import entry
from auditlake.lake.arrow import history_schema
from auditlake.lake.commits import put_commit, removed, write_part
from auditlake.lake.deletionvectors import write_vectors
from auditlake.lake.history import HistoryTable, add_columns, create_history, open_history
from auditlake.lake.join import join
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lake.scan import File, Files, find_files
from auditlake.relation import Column, TableName

NAME = TableName("public", "t")
ID = Column("id", 23, -1, key=True)
COLUMNS = (ID, Column("tags", 1009, -1, key=False), Column("day", 1082, -1, key=False))
LATER = Column("later", 1700, ((12 << 16) | 2) + 4, key=False, since=150)


def rows(columns: tuple[Column, ...], *given: dict[str, Any]) -> pa.Table:
    """Rows of a history file."""
    return pa.Table.from_pylist([*given], schema=history_schema(columns))


def the_table(lake: Lake) -> HistoryTable:
    """The history as it is now."""
    table = open_history(lake, NAME)
    assert table is not None
    return table


def the_files(lake: Lake) -> Files:
    """Its files."""
    files = find_files(the_table(lake))
    assert files is not None
    return files


def begin(lake: Lake) -> None:
    """Two small files in each part, one with marks and one from before a column was added."""
    delta = create_history(lake, NAME, COLUMNS)
    positions = CommitProperties(app_transactions=[Transaction(HISTORY_APP, 100), Transaction(SNAPSHOT_APP, 100)])
    delta.create_write_transaction([], "append", delta.schema(), ["_part"], commit_properties=positions)
    path, odd = lake.history(NAME), [("day", "infinity")]
    older: list[dict[str, Any]] = [
        {"id": 1, "tags": ["a", None], "_from_lsn": 100, "_raw": odd},
        {"id": 2, "tags": None, "_from_lsn": 100, "_raw": None},
    ]
    ended = [{"id": 3, "_from_lsn": 130, "_to_lsn": 140}, {"id": 3, "_from_lsn": 110, "_to_lsn": 130}]
    actions = [write_part(path, rows(COLUMNS, *older), ["id"], {"_part": "open"})]
    put_commit(path, 2, "WRITE", [*actions, write_part(path, rows(COLUMNS, *ended), ["id"], {"_part": "2026-11"})])
    add_columns(the_table(lake), [LATER])
    (first,) = (file for file in the_files(lake).by_name.values() if file.is_open)
    (vector,) = write_vectors(path, [BitMap64([1])])
    stats = json.dumps({**first.stats, "tightBounds": False})
    marked = {**first.add, "stats": stats, "deletionVector": vector}
    newer = [{"id": 2, "tags": [], "later": None, "_from_lsn": 160, "_raw": [("later", "NaN")]}]
    gone = [{"id": 2, "_from_lsn": 100, "_to_lsn": 160}]
    columns = (*COLUMNS, LATER)
    added = [
        write_part(path, rows(columns, *newer), ["id"], {"_part": "open"}),
        write_part(path, rows(columns, *gone), ["id"], {"_part": "2026-11"}),
    ]
    put_commit(path, 4, "MERGE", [removed(first.add), {"add": marked}, *added])


def read(lake: Lake) -> list[dict[str, Any]]:
    """All rows, as deltalake reads them."""
    reader = QueryBuilder().register("t", DeltaTable(lake.history(NAME)))
    found = pa.table(reader.execute("select * from t")).to_pylist()
    return sorted(found, key=lambda row: (row["id"], row["_from_lsn"]))


def join_all(files: Files) -> bool:
    """Join each part, as the files were read once."""
    done = [join(files.of_part(part)) for part in ("open", "2026-11")]
    return all(done)


def test_the_same_rows_in_one_file_of_each_part(tmp_path: Path) -> None:
    """What was marked is gone for good, what an older file lacks is NULL, closed versions lie in their order."""
    lake = Lake(tmp_path)
    begin(lake)
    before = read(lake)
    assert [(row["id"], row["_from_lsn"]) for row in before] == [(1, 100), (2, 100), (2, 160), (3, 110), (3, 130)]
    assert join_all(the_files(lake))
    assert read(lake) == before

    files = the_files(lake).by_name.values()
    assert sorted((file.part, file.rows, file.is_marked) for file in files) == [
        ("2026-11", 3, False),
        ("open", 2, False),
    ]
    (closed,) = (file for file in files if not file.is_open)
    assert closed.bounds("_from_lsn") == (100, 130)
    path = lake.history(NAME)
    in_order = pq.read_table(path / closed.add["path"], partitioning=None)["_from_lsn"].to_pylist()
    assert in_order == [100, 110, 130]
    footer = pq.read_metadata(path / closed.add["path"])
    chunks = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    assert all(chunk.has_offset_index for chunk in chunks), "pages can be passed over"
    assert {chunk.path_in_schema for chunk in chunks if chunk.has_column_index} >= {"id", "_from_lsn", "_to_lsn"}
    assert the_table(lake).position == 100


def test_it_changes_no_data(tmp_path: Path) -> None:
    """Who reads the table as a stream of changes passes the commit over."""
    lake = Lake(tmp_path)
    begin(lake)
    assert join_all(the_files(lake))
    actions = [*entry(lake.history(NAME), 5), *entry(lake.history(NAME), 6)]
    changes = [said["dataChange"] for action in actions for kind, said in action.items() if kind in {"add", "remove"}]
    assert changes == [False] * 6


def test_another_commit_touched_nothing_of_it(tmp_path: Path) -> None:
    """What is joined takes the version after it, whatever others have added."""
    lake = Lake(tmp_path)
    begin(lake)
    found, path = the_files(lake), lake.history(NAME)
    late = {"id": 4, "_from_lsn": 170, "_to_lsn": 180}
    put_commit(path, 5, "MERGE", [write_part(path, rows(COLUMNS, late), ["id"], {"_part": "2026-11"})])
    before = read(lake)
    assert join_all(found)
    assert read(lake) == before
    assert sorted(file.rows for file in the_files(lake).by_name.values()) == [1, 2, 3]


def a_row_ends(lake: Lake) -> None:
    """Mark a row of an open file."""
    path, file = lake.history(NAME), open_file(lake)
    (vector,) = write_vectors(path, [BitMap64([0])])
    put_commit(path, 5, "MERGE", [removed(file.add), {"add": {**file.add, "deletionVector": vector}}])


def a_file_goes(lake: Lake) -> None:
    """Take an open file out of the table."""
    put_commit(lake.history(NAME), 5, "DELETE", [removed(open_file(lake).add)])


def a_column_comes(lake: Lake) -> None:
    """Give the table one more column."""
    add_columns(the_table(lake), [Column("last", 23, -1, key=False, since=170)])


def open_file(lake: Lake) -> File:
    """An open file, of which all rows are there."""
    (file,) = (each for each in the_files(lake).of_part("open").by_name.values() if not each.is_marked)
    return file


@pytest.mark.parametrize("commit", [a_row_ends, a_file_goes, a_column_comes])
def test_another_commit_was_faster(tmp_path: Path, commit: Callable[[Lake], None]) -> None:
    """Then nothing is done, and the files stay due."""
    lake = Lake(tmp_path)
    begin(lake)
    found = the_files(lake).of_part("open")
    commit(lake)
    before = read(lake)
    assert not join(found)
    assert read(lake) == before


def test_a_part_of_which_all_is_gone(tmp_path: Path) -> None:
    """There is no file without rows."""
    lake = Lake(tmp_path)
    begin(lake)
    files = the_files(lake)
    opened = [file for file in files.by_name.values() if file.is_open]
    vectors = write_vectors(lake.history(NAME), [BitMap64(range(file.rows)) for file in opened])
    marked = [{"add": {**file.add, "deletionVector": vector}} for file, vector in zip(opened, vectors, strict=True)]
    put_commit(lake.history(NAME), 5, "DELETE", [*(removed(file.add) for file in opened), *marked])
    assert join(the_files(lake).of_part("open"))
    assert {row["_part"] for row in read(lake)} == {"2026-11"}
    assert {file.part for file in the_files(lake).by_name.values()} == {"2026-11"}
