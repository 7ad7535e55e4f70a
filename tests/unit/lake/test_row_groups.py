"""Files that auditlake writes have row groups that fit into memory, and footers with the size of their rows."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditlake.delta import append_table, row_groups
from auditlake.delta.append_table import AppendLog
from auditlake.delta.data_files import join_intact, write_file, write_part
from auditlake.delta.log_reader import file_path, live_files
from auditlake.delta.row_groups import group_ends, held_bytes, read_batches, row_bytes

_LIMIT = 10_000


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the limit small."""
    monkeypatch.setattr(row_groups, "GROUP_BYTES", _LIMIT)


def _rows(*lengths: int) -> pa.RecordBatch:
    return pa.record_batch({"lsn": pa.array(range(len(lengths))), "new": pa.array([["x" * n, None] for n in lengths])})


def _groups(path: Path) -> list[int]:
    footer = pq.read_metadata(path)
    return [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]


def test_row_groups_hold_no_more_than_the_limit_or_one_row(tmp_path: Path) -> None:
    """Rows of usual length share a group; one larger than the limit has a group of its own."""
    action = write_file(tmp_path, _rows(*[1000] * 15, 50_000, 10, 10))
    path = tmp_path / str(action["add"]["path"])
    assert _groups(path) == [9, 6, 1, 2]
    assert pq.read_table(path).num_rows == 18


def test_joining_keeps_row_groups_within_the_limit(tmp_path: Path) -> None:
    """Also of files with one large group, as other writers make them; small groups become one."""
    large, small = tmp_path / "large.parquet", [tmp_path / f"{n}.parquet" for n in range(3)]
    pq.write_table(pa.table(_rows(*[1000] * 40)), large, use_dictionary=False)
    for path in small:
        pq.write_table(pa.table(_rows(10, 10)), path)
    adds = [{"path": path.name, "size": path.stat().st_size, "partitionValues": {}} for path in (large, *small)]
    (*_, action), damaged = join_intact(tmp_path, adds)
    joined = tmp_path / str(action["add"]["path"])
    assert not damaged
    assert max(_groups(joined)) <= 10
    assert _groups(joined)[-1] >= 6
    assert pq.read_table(joined).equals(pa.concat_tables(map(pq.read_table, (large, *small))))


def test_long_values_have_no_dictionary(tmp_path: Path) -> None:
    """A dictionary would hide that a value is in many rows, and takes its length in memory for each."""
    rows = pa.table({"id": range(20), "body": ["x" * 5000] * 20, "op": ["insert"] * 20})
    (tmp_path / "_part=open").mkdir()
    path = tmp_path / str(write_part(tmp_path, rows, ["id"], {"_part": "open"})["add"]["path"])
    assert held_bytes([path]) > 20 * 5000
    encodings = {c["path_in_schema"]: c["encodings"] for c in pq.read_metadata(path).row_group(0).to_dict()["columns"]}
    assert ("RLE_DICTIONARY" in encodings["op"], "RLE_DICTIONARY" in encodings["body"]) == (True, False)


def test_a_file_is_read_a_part_at_a_time(tmp_path: Path) -> None:
    """Whatever its row groups are."""
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table(_rows(*[1000] * 40)), path, use_dictionary=False)
    batches = list(read_batches(path, ["new"]))
    assert [batch.num_rows for batch in batches][:-1] == [9] * 4
    assert sum(batch.num_rows for batch in batches) == 40


def test_the_size_of_a_row_is_that_of_its_values() -> None:
    """In lists and maps too, and in a slice."""
    maps = pa.array([[("a", "x" * 100)], None, []], pa.map_(pa.string(), pa.string()))
    rows = pa.table(
        {"n": pa.array([1, 2, 3]), "list": [["x" * 1000, None], None, ["y"]], "map": maps, "t": ["z", "", "t"]}
    )
    first, second, third = map(int, row_bytes(rows))
    assert (1100 < first < 1200, second < 100, third < 100) == (True, True, True)
    assert list(row_bytes(rows.slice(1))) == [second, third]
    assert group_ends(rows) == [3]


def test_compressible_files_are_joined_up_to_a_size_before_compression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these takes a few hundred bytes on the disk."""
    monkeypatch.setattr(append_table, "_JOINED_HELD_BYTES", 40_000)
    log = AppendLog(tmp_path, _rows(1).schema)
    for _ in range(10):
        log.append(_rows(9_000), {})
    log.tidy()
    found = [held_bytes([file_path(tmp_path, add)]) for add in live_files(tmp_path, log.table.version())]
    assert len(found) == 3
    assert max(found) < 40_000
