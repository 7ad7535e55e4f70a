"""Tests of the check of data files, and of the output of findings."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from auditlake.delta.data_files import check_files
from auditlake.delta.log_check import log_problems
from auditlake.errors import LakeUnusable, NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.store.files import parquet, relative_name
from auditlake.verify.report import Finding, Report, TableReport, as_json_lines, as_lines
from tests.damage import edit_log, flipped
from tests.read_lake import history_of
from tests.s3_server import forget, overwrite
from tests.small_lake import ORDERS, write_small_lake


@pytest.fixture
def orders(tmp_path: Path) -> HistoryTable:
    """A history of two files."""
    return history_of(write_small_lake(tmp_path / "lake"), ORDERS)


def _kinds(table: HistoryTable) -> list[str]:
    return [finding.kind for finding in check_files(table.path, table.delta_version)]


def _a_file(table: HistoryTable) -> Path:
    return next(iter(sorted(table.path.glob("_part=*/*.parquet"))))


def test_intact_files_have_no_findings(orders: HistoryTable) -> None:
    """A table as written passes."""
    assert _kinds(orders) == []


def test_a_missing_file_is_named(orders: HistoryTable) -> None:
    """Its path is that of the log."""
    file = _a_file(orders)
    file.unlink()
    forget(orders.path)
    (finding,) = check_files(orders.path, orders.delta_version)
    assert (finding.kind, finding.file) == ("missing file", relative_name(file, orders.path))


def test_a_truncated_file_is_named(orders: HistoryTable) -> None:
    """Its size differs, and without its footer it cannot be read."""
    file = _a_file(orders)
    overwrite(file, file.read_bytes()[:-10])
    forget(orders.path)
    assert _kinds(orders) == ["file size", "unreadable file"]


def test_a_replaced_file_is_named(orders: HistoryTable) -> None:
    """The file of another partition has other rows."""
    one, other = sorted(orders.path.glob("_part=*/*.parquet"))
    content = one.read_bytes()
    overwrite(one, other.read_bytes())
    overwrite(other, content)
    forget(orders.path)
    assert "file size" in _kinds(orders)


def test_every_flipped_byte_of_a_file_is_found(tmp_path: Path) -> None:
    """A file written here has a checksum in the log; size and number of rows stay."""
    lake = write_small_lake(tmp_path / "lake")
    (file,) = sorted(lake.gaps.parent.glob("relations/*.parquet"))
    content, version = file.read_bytes(), 1
    assert check_files(lake.relations, version) == ()
    for place in range(0, len(content), 7):
        overwrite(file, flipped(content, place))
        forget(file)
        assert "checksum" in {problem.kind for problem in check_files(lake.relations, version)}, place


def test_a_file_without_checksum_is_decoded(orders: HistoryTable) -> None:
    """Another program wrote it: the pages of a column can no longer be decompressed, the footer is as before."""
    file = _a_file(orders)
    column = pq.read_metadata(parquet(file)).row_group(0).column(0)
    content = file.read_bytes()
    begin = min(place for place in (column.dictionary_page_offset, column.data_page_offset) if place)
    overwrite(
        file, content[:begin] + bytes(column.total_compressed_size) + content[begin + column.total_compressed_size :]
    )
    forget(orders.path)
    assert _kinds(orders) == ["unreadable file"]


def test_a_missing_log_is_damage(orders: HistoryTable) -> None:
    """Without its log, the table has no known files."""
    (orders.path / "_delta_log" / f"{orders.delta_version:020}.json").unlink()
    assert _kinds(orders) == ["unreadable log"]


@pytest.mark.parametrize("stats", ['{"numRecords": ', "[]", '{"minValues": 7}'])
def test_statistics_that_are_none_are_damage(orders: HistoryTable, stats: str) -> None:
    """Of the file, and of the entry in which another program wrote them."""
    file, entry = _a_file(orders), orders.path / "_delta_log" / f"{orders.delta_version:020}.json"
    edit_log(orders, lambda add: add | {"stats": stats} if Path(add["path"]).name == file.name else add)
    assert _kinds(orders) == ["statistics"]
    (problem,) = log_problems(orders.path)
    assert (problem.kind, problem.file) == ("log entry", f"_delta_log/{entry.name}")
    assert problem.detail == f"the statistics of {relative_name(file, orders.path)} in its Delta log are damaged"


def test_keys_are_printed_as_text_or_not_at_all() -> None:
    """Control characters of a key are escaped; --no-keys omits keys."""
    finding = Finding("row missing in the lake", (("id", "\x1b[2J"), ("n", None)), ("note",), Lsn(0x1A))
    report = Report(Lsn(0x2B), (TableReport("public.t", rows=3, findings=(finding,)), TableReport("public.u", rows=1)))
    text = "\n".join(as_lines(report, keys=True))
    assert 'id="\\u001b[2J"  n=NULL  version 0/1A  columns note' in text
    assert "id=" not in "\n".join(as_lines(report, keys=False))
    first, *_, last = map(json.loads, as_json_lines(report, keys=True))
    assert first["key"] == {"id": "\x1b[2J", "n": None}
    assert last == {
        "event": "done", "lsn": "0/2B", "rows": 4, "equal": 1, "damaged": 1, "unverified": 0, "skipped": 0
    }  # fmt: skip
    assert "key" not in json.loads(next(as_json_lines(report, keys=False)))


def test_the_worst_verdict_decides_the_exit_code() -> None:
    """Damage (6) has precedence over unverified tables (7); a skipped table is no failure."""
    equal, skipped = TableReport("a", rows=1), TableReport("s", reason="not published", skipped=True)
    unverified = TableReport("u", reason="locked")
    parked = TableReport("p", reason="it was truncated", remedy="Run auditlake resync.")
    damaged = TableReport("d", findings=(Finding("missing file"),), reason="locked")
    assert Report(None, (equal, skipped)).failure() is None
    assert isinstance(Report(None, (equal, unverified)).failure(), NotAnswerable)
    assert isinstance(Report(None, (unverified, damaged)).failure(), LakeUnusable)
    hints = [
        str(failure.hint)
        for each in ((parked,), (parked, parked.and_also(equal), unverified))
        if (failure := Report(None, each).failure())
    ]
    assert hints[0] == "Run auditlake resync."
    assert hints[1].startswith("Run auditlake resync. Run auditlake verify again")
    assert damaged.and_also(damaged).findings == damaged.findings
    assert skipped.and_also(equal).verdict == "skipped"
    assert skipped.and_also(unverified).verdict == "unverified"
    assert "1 equal, 1 skipped" in Report(Lsn(1), (equal, skipped)).summary()
