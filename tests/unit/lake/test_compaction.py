"""Compaction in memory: another reader finds the same rows in one file of each partition."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, QueryBuilder, Transaction
from pyroaring import BitMap64

from auditlake.delta import log_writer
from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.data_files import DataFile, write_part
from auditlake.delta.deletion_vectors import write_vectors
from auditlake.delta.log_reader import entry, file_path
from auditlake.delta.log_writer import put_commit, removed
from auditlake.delta.row_groups import held_bytes
from auditlake.delta.table import open_table
from auditlake.engine import Engine
from auditlake.errors import LakeConflict, LakeUnusable, Unsupported
from auditlake.lake import compaction, maintenance
from auditlake.lake.compaction import fence, fitting, has_large_row_groups, join, may_hold
from auditlake.lake.history import HistoryTable, create_history, history_schema
from auditlake.lake.history_files import Files, is_open, part_of
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lake.maintenance import Due, Means, rewrite_due, vacuum
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName
from auditlake.store.files import parquet
from tests.read_lake import history_of
from tests.s3_server import chosen_lake
from tests.small_lake import add_columns, files_of

NAME = TableName("public", "t")
OPEN = {"_part": "open"}
ID = Column("id", 23, -1, key=True)
COLUMNS = (ID, Column("tags", 1009, -1, key=False), Column("day", 1082, -1, key=False))
LATER = Column("later", 1700, ((12 << 16) | 2) + 4, key=False, since=Lsn(150))


def rows(columns: tuple[Column, ...], *given: dict[str, Any]) -> pa.Table:
    """Return rows of a history file."""
    return pa.Table.from_pylist([*given], schema=history_schema(columns))


def the_table(lake: Lake) -> HistoryTable:
    """Open the current version of the history."""
    return history_of(lake, NAME)


def the_files(lake: Lake) -> Files:
    """List its files."""
    return files_of(lake, NAME)


def begin(lake: Lake) -> None:
    """Write two small files in each partition, one with a deletion vector, one from before a column was added."""
    delta = create_history(lake, NAME, COLUMNS, 1)
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
    add_columns(the_table(lake), LATER)
    (first,) = (file for file in the_files(lake).by_name.values() if is_open(file))
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
    """Read all rows with deltalake."""
    reader = QueryBuilder().register("t", open_table(lake.history(NAME)))
    found = pa.table(reader.execute("select * from t")).to_pylist()
    return sorted(found, key=lambda row: (row["id"], row["_from_lsn"]))


def join_all(files: Files) -> bool:
    """Join each partition, from one listing."""
    done = [join(files.of_part(part)) for part in ("open", "2026-11")]
    return all(done)


def test_compaction_leaves_the_same_rows_in_one_file_of_each_partition(tmp_path: Path) -> None:
    """Deleted rows are dropped, columns missing in an older file are NULL, closed versions are sorted."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    before = read(lake)
    assert [(row["id"], row["_from_lsn"]) for row in before] == [(1, 100), (2, 100), (2, 160), (3, 110), (3, 130)]
    assert join_all(the_files(lake))
    assert read(lake) == before

    files = the_files(lake).by_name.values()
    assert sorted((part_of(file), file.rows, file.is_marked) for file in files) == [
        ("2026-11", 3, False),
        ("open", 2, False),
    ]
    (closed,) = (file for file in files if not is_open(file))
    assert closed.bounds("_from_lsn") == (100, 130)
    path = lake.history(NAME)
    in_order = pq.read_table(parquet(path / closed.add["path"]), partitioning=None)["_from_lsn"].to_pylist()
    assert in_order == [100, 110, 130]
    footer = pq.read_metadata(parquet(path / closed.add["path"]))
    chunks = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    assert all(chunk.has_offset_index for chunk in chunks), "readers can skip pages"
    assert {chunk.path_in_schema for chunk in chunks if chunk.has_column_index} >= {"id", "_from_lsn", "_to_lsn"}
    assert the_table(lake).position == 100


def test_compaction_is_no_change_of_data(tmp_path: Path) -> None:
    """Streaming readers skip the commit."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    assert join_all(the_files(lake))
    actions = [*entry(lake.history(NAME), 5), *entry(lake.history(NAME), 6)]
    changes = [
        content["dataChange"] for action in actions for kind, content in action.items() if kind in {"add", "remove"}
    ]
    assert changes == [False] * 6


def test_compaction_follows_a_commit_that_touched_none_of_its_files(tmp_path: Path) -> None:
    """It takes the next free version, and rows that others appended stay."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    found, path = the_files(lake), lake.history(NAME)
    late = {"id": 4, "_from_lsn": 170, "_to_lsn": 180}
    put_commit(path, 5, "MERGE", [write_part(path, rows(COLUMNS, late), ["id"], {"_part": "2026-11"})])
    before = read(lake)
    assert join_all(found)
    assert read(lake) == before
    assert sorted(file.rows for file in the_files(lake).by_name.values()) == [1, 2, 3]


def mark_row(lake: Lake) -> None:
    """Mark a row of an open file as deleted."""
    path, file = lake.history(NAME), open_file(lake)
    (vector,) = write_vectors(path, [BitMap64([0])])
    put_commit(path, 5, "MERGE", [removed(file.add), {"add": {**file.add, "deletionVector": vector}}])


def remove_file(lake: Lake) -> None:
    """Remove an open file."""
    put_commit(lake.history(NAME), 5, "DELETE", [removed(open_file(lake).add)])


def add_last_column(lake: Lake) -> None:
    """Add a column."""
    add_columns(the_table(lake), Column("last", 23, -1, key=False, since=Lsn(170)))


def let_expire(lake: Lake) -> None:
    """Make commits that touch none of the files, until the entries of the first of them are deleted."""
    for _ in range(4):
        path = lake.history(NAME)
        put_commit(path, the_table(lake).delta_version + 1, "WRITE", [])
        checkpoint(path, kept_for_s=-60)


def fence_off(lake: Lake) -> None:
    """Begin a vacuum."""
    assert fence(the_table(lake))


def open_file(lake: Lake) -> DataFile:
    """Return the open file without a deletion vector."""
    (file,) = (file for file in the_files(lake).of_part("open").by_name.values() if not file.is_marked)
    return file


@pytest.mark.parametrize("commit", [mark_row, remove_file, add_last_column, let_expire, fence_off])
def test_compaction_is_refused_after_a_commit_that_touched_its_files(
    tmp_path: Path, commit: Callable[[Lake], None]
) -> None:
    """Nothing is committed, and the files stay due."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    found = the_files(lake).of_part("open")
    commit(lake)
    before = read(lake)
    assert not join(found)
    assert read(lake) == before


@pytest.mark.parametrize(("moves", "fenced"), [((), True), (log_writer.moved({HISTORY_APP: 190}), False)])
def test_a_fence_never_takes_a_position_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: list[log_writer.Action], *, fenced: bool
) -> None:
    """A commit that comes before it counts; one that sets no position is passed over."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    table = the_table(lake)

    def late(*commit: Any) -> None:
        monkeypatch.undo()
        put_commit(table.path, commit[1], "WRITE", moves)
        put_commit(*commit)

    monkeypatch.setattr(log_writer, "put_commit", late)
    assert fence(table) == fenced
    expected = 190 if moves else table.position
    assert open_table(table.path).transaction_version(HISTORY_APP) == expected


def test_columns_are_not_set_in_a_version_that_expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have changed them since; the table as it is now gets no column."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    table = the_table(lake)

    def late(*commit: Any) -> None:
        monkeypatch.undo()
        let_expire(lake)
        put_commit(*commit)

    monkeypatch.setattr(log_writer, "put_commit", late)
    with pytest.raises(LakeConflict, match="another process changes the columns"):
        add_columns(table, Column("newest", 23, -1, key=False, since=Lsn(170)))
    assert the_table(lake).columns == table.columns


def test_a_partition_with_only_deleted_rows_gets_no_file(tmp_path: Path) -> None:
    """No file without rows is written."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    files = the_files(lake)
    opened = [file for file in files.by_name.values() if is_open(file)]
    vectors = write_vectors(lake.history(NAME), [BitMap64(range(file.rows)) for file in opened])
    marked = [{"add": {**file.add, "deletionVector": vector}} for file, vector in zip(opened, vectors, strict=True)]
    put_commit(lake.history(NAME), 5, "DELETE", [*(removed(file.add) for file in opened), *marked])
    assert join(the_files(lake).of_part("open"))
    assert {row["_part"] for row in read(lake)} == {"2026-11"}
    assert {part_of(file) for file in the_files(lake).by_name.values()} == {"2026-11"}


def test_files_are_chosen_by_their_size_before_compression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest that fit together; a group of few rows that is larger than that has large rows."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    long = [{"id": 9, "tags": ["x" * 100_000], "_from_lsn": 100}]
    added = [write_part(lake.history(NAME), rows(COLUMNS, *long), ["id"], OPEN)]
    put_commit(lake.history(NAME), the_table(lake).delta_version + 1, "WRITE", added)
    opened = the_files(lake).of_part("open")
    (large,) = opened.which(lambda file: held_bytes([file_path(lake.history(NAME), file.add)]) > 100_000).by_name
    assert opened.size_bytes < 100_000
    assert (may_hold(opened), has_large_row_groups(opened)) == (True, False)
    monkeypatch.setattr(compaction, "HELD_BYTES", 50_000)
    monkeypatch.setattr(compaction, "_LARGE_ROW_BYTES", 10_000)
    assert (may_hold(opened), has_large_row_groups(opened)) == (False, True)
    assert fitting(opened).by_name.keys() == opened.by_name.keys() - {large}


def no_session() -> NoReturn:
    """Stand for a session where Spark must not start."""
    raise AssertionError("Spark was started")


@pytest.mark.parametrize("engine", [Engine.AUTO, Engine.DUCKDB])
def test_more_open_versions_than_memory_holds_are_joined_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    """They are written while they are read, a few files at a time, each in a commit."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    path = lake.history(NAME)
    for version, number in ((5, 10), (6, 11)):
        added = write_part(path, rows((*COLUMNS, LATER), {"id": number, "_from_lsn": 170}), ["id"], OPEN)
        put_commit(path, version, "MERGE", [added])
    before, sizes = read(lake), [file.size_bytes for file in the_files(lake).of_part("open").by_name.values()]
    assert len(sizes) == 4
    monkeypatch.setattr(compaction, "HELD_BYTES", 0)
    monkeypatch.setattr(compaction, "_LARGE_ROW_BYTES", 1 << 30)
    monkeypatch.setattr(maintenance, "_OPEN_FILE_BYTES", sum(sorted(sizes)[-2:]))
    assert rewrite_due(Means(no_session, engine), the_table(lake), Due(open_part=True))
    opened = the_files(lake).of_part("open").by_name.values()
    assert read(lake) == before
    assert len(opened) == 2
    assert not any(file.is_marked for file in opened)
    assert the_table(lake).delta_version == 8


def test_the_engine_decides_who_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Spark every OPTIMIZE is Spark's, with `auto` only one of very many rows."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    with pytest.raises(AssertionError, match="Spark was started"):
        rewrite_due(Means(no_session, Engine.SPARK), the_table(lake), Due(open_part=True))
    monkeypatch.setattr(maintenance, "_STREAMED_BYTES", 0)
    with pytest.raises(AssertionError, match="Spark was started"):
        rewrite_due(Means(no_session), the_table(lake), Due(open_part=True))
    assert rewrite_due(Means(no_session, Engine.DUCKDB), the_table(lake), Due(open_part=True))


@pytest.mark.parametrize("engine", [Engine.AUTO, Engine.SPARK, Engine.DUCKDB])
@pytest.mark.parametrize("due", [Due(open_part=True), Due(open_part=False, closed_parts=("2026-11",))])
def test_a_damaged_file_is_not_rewritten(tmp_path: Path, engine: Engine, due: Due) -> None:
    """The checksum of a new file would hide it."""
    lake = Lake(tmp_path)
    begin(lake)
    part = "open" if due.open_part else "2026-11"
    (_, file) = the_files(lake).of_part(part).paths
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    before = the_table(lake).delta_version
    with pytest.raises(LakeUnusable, match=file.name):
        rewrite_due(Means(no_session, engine), the_table(lake), due)
    assert the_table(lake).delta_version == before


def test_a_history_of_another_program_is_not_maintained_without_spark(tmp_path: Path) -> None:
    """The error names it and the command that does."""
    lake = chosen_lake(tmp_path)
    begin(lake)
    table = replace(the_table(lake), as_made=False)
    with pytest.raises(Unsupported, match=r"the history of public\.t") as refusal:
        rewrite_due(Means(no_session, Engine.DUCKDB), table, Due(open_part=True))
    assert "--engine auto" in (refusal.value.hint or "")
    with pytest.raises(Unsupported):
        vacuum(Means(no_session, Engine.DUCKDB), table)
