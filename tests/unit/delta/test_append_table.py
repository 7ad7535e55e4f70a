"""Append-only tables: few files and entries however many appends, and one writer."""

import json
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from auditlake.delta import log_writer as commits
from auditlake.delta.append_table import AppendLog, open_delta
from auditlake.delta.data_files import check_files
from auditlake.delta.expired_rows import remove_rows
from auditlake.delta.log_entry import entry_name
from auditlake.delta.log_reader import Add, list_newest, live_files
from auditlake.delta.sql import read_newest
from auditlake.delta.table import open_table
from auditlake.errors import ConfigError, LakeConflict, LakeUnusable
from tests.damage import summed

SCHEMA = pa.schema([("number", pa.int64())])


def rows(*numbers: int) -> pa.RecordBatch:
    """Return one row for each number."""
    return pa.RecordBatch.from_pylist([{"number": number} for number in numbers], schema=SCHEMA)


def numbers(path: Path) -> list[int]:
    """Read all numbers, in order."""
    table = open_delta(path)
    assert table is not None
    found = QueryBuilder().register("log", table).execute("select number from log order by number").read_all()
    return [row["number"] for row in pa.table(found).to_pylist()]


def test_many_small_appends_leave_few_files(tmp_path: Path) -> None:
    """Tidied whenever it is due, the table has every row once and its position, and older versions stay readable."""
    log = AppendLog(tmp_path, SCHEMA)
    reader = None
    for number in range(450):
        log.append(rows(number), {"app": number})
        reader = reader or (open_delta(tmp_path) if number == 250 else None)
        if log.untidy:
            log.tidy()
    assert numbers(tmp_path) == list(range(450))
    assert len(log.table.file_uris()) < 60
    assert (tmp_path / "_delta_log" / "_last_checkpoint").exists()
    assert AppendLog(tmp_path, SCHEMA).position("app") == 449
    assert reader is not None
    found = QueryBuilder().register("log", reader).execute("select count(*) as n from log").read_all()
    assert pa.table(found).to_pylist() == [{"n": 251}]


def _damage(path: Path, add: Add) -> Path:
    """Change one byte of a data file, as a disk may."""
    file = path / str(add["path"])
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    return file


def test_a_damaged_file_is_not_joined(tmp_path: Path) -> None:
    """The checksum of a new file would hide it: it stays, is named, and the others are joined."""
    log = AppendLog(tmp_path, SCHEMA)
    for number in range(5):
        log.append(rows(number), {"app": number})
    file = _damage(tmp_path, live_files(tmp_path, log.version)[2])
    assert [file.name in found.message for found in log.tidy()] == [True]
    kept = live_files(tmp_path, log.version)
    assert len(kept) == 2
    assert file.name in {add["path"] for add in kept}
    assert {problem.file for problem in check_files(tmp_path, log.version)} == {file.name}
    assert [file.name in found.message for found in log.tidy()] == [True]


def test_rows_of_a_damaged_file_are_not_written_anew(tmp_path: Path) -> None:
    """Neither when some expire nor when those above a limit are discarded."""
    log = AppendLog(tmp_path, SCHEMA)
    log.append(rows(1, 2), {"app": 1})
    file = _damage(tmp_path, live_files(tmp_path, log.version)[0])
    with pytest.raises(LakeUnusable, match=file.name):
        remove_rows(tmp_path, "number", 1, "expired", "erased")
    with pytest.raises(LakeUnusable, match=file.name):
        log.discard_above("number", 1)
    assert [add["path"] for add in live_files(tmp_path, list_newest(tmp_path).newest)] == [file.name]


def test_commits_without_rows_are_checkpointed(tmp_path: Path) -> None:
    """Commits that only set a position do not make the table slow to open."""
    log = AppendLog(tmp_path, SCHEMA)
    for number in range(120):
        log.append(None, {"app": number})
    assert (tmp_path / "_delta_log" / "_last_checkpoint").exists()


def test_tidying_is_refused_after_a_commit_of_another_writer(tmp_path: Path) -> None:
    """Although joining files conflicts with no append."""
    late = AppendLog(tmp_path, SCHEMA)
    for number in range(3):
        late.append(rows(number), {"app": number})
    AppendLog(tmp_path, SCHEMA).append(rows(3), {"app": 3})
    with pytest.raises(LakeConflict):
        late.tidy()
    assert numbers(tmp_path) == [0, 1, 2, 3]


def test_vacuum_keeps_files_of_the_last_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between appends expired files are deleted; a reader opened before still reads its version."""
    log = AppendLog(tmp_path, SCHEMA)
    log.append(rows(0), {"app": 0})
    reader = open_delta(tmp_path)
    assert reader is not None
    for number in range(1, 4):
        log.append(rows(number), {"app": number})
        with monkeypatch.context() as clock:
            clock.setattr(time, "monotonic", lambda: 1e9 + number)  # noqa: B023  # read within the loop's turn
            log.tidy()
    assert numbers(tmp_path) == [0, 1, 2, 3]
    found = QueryBuilder().register("log", reader).execute("select count(*) as n from log").read_all()
    assert pa.table(found).to_pylist() == [{"n": 1}]


@pytest.mark.parametrize(("age_s", "files"), [(5.5 * 3600, 4), (6.5 * 3600, 1)])
def test_replaced_files_stay_for_six_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: float, files: int
) -> None:
    """A catch-up may read the files of its version that long; then they are deleted, without a commit."""
    log = AppendLog(tmp_path, SCHEMA)
    for number in range(3):
        log.append(rows(number), {"app": number})
    then_s = time.time() - age_s
    with monkeypatch.context() as clock:
        clock.setattr(commits, "_now_ms", lambda: int(then_s * 1000))
        log.tidy()
    for file in tmp_path.glob("*.parquet"):
        os.utime(file, (then_s, then_s))
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    log.tidy()
    assert len(list(tmp_path.glob("*.parquet"))) == files
    assert numbers(tmp_path) == [0, 1, 2]
    assert log.table.version() == 4


def test_a_folder_that_is_deleted_while_it_is_opened_is_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a new table that begins anew deletes what a killed one left; a question meanwhile goes on."""
    AppendLog(tmp_path / "t", SCHEMA)

    def deleted(path: Path) -> DeltaTable:
        if path.exists():
            shutil.rmtree(path)
            raise DeltaError(f"File not found: {path}/_delta_log/00000000000000000000.json")
        return open_table(path)

    monkeypatch.setattr("auditlake.delta.append_table.open_table", deleted)
    assert open_delta(tmp_path / "t") is None


def _flip(entry: Path) -> None:
    """Make a position another one."""
    entry.write_bytes(entry.read_bytes().replace(b'"version": 2', b'"version": 3'))


@pytest.mark.parametrize(
    ("damage", "reported"),
    [
        (Path.unlink, "is missing"),
        (partial(Path.write_bytes, data=b""), "is empty"),
        (_flip, "is damaged: its CRC-32 is [0-9a-f]{8}, it records [0-9a-f]{8}"),
    ],
)
def test_a_damaged_entry_is_reported_until_a_checkpoint_replaces_it(
    tmp_path: Path, damage: Callable[[Path], object], reported: str
) -> None:
    """Entries that a checkpoint replaces may be deleted."""
    log = AppendLog(tmp_path, SCHEMA)
    for number in (1, 2, 3):
        log.append(rows(number), {"app": number})
    entry = tmp_path / "_delta_log" / f"{2:020}.json"
    content = entry.read_bytes()
    damage(entry)
    with pytest.raises(LakeUnusable, match=f"{entry.name} {reported}, so the changes of its commit are lost"):
        open_delta(tmp_path)
    entry.write_bytes(content)
    DeltaTable(tmp_path).create_checkpoint()
    entry.unlink()
    table = open_delta(tmp_path)
    assert table is not None
    assert table.version() == 3


def test_nothing_is_appended_to_an_older_copy(tmp_path: Path) -> None:
    """It was put in the place of the table while a process writes it: the entry before the next one is missing."""
    table, copy = tmp_path / "table", tmp_path / "copy"
    log = AppendLog(table, SCHEMA)
    log.append(rows(1), {"app": 1})
    shutil.copytree(table, copy)
    log.append(rows(2), {"app": 2})
    shutil.rmtree(table)
    copy.rename(table)
    before = sorted((table / "_delta_log").iterdir())
    with pytest.raises(LakeUnusable, match="an older copy was put in its place"):
        log.append(rows(3), {"app": 3})
    assert sorted((table / "_delta_log").iterdir()) == before
    AppendLog(table, SCHEMA).append(rows(2), {"app": 2})


def test_who_was_suspended_for_longer_than_entries_are_kept_learns_of_the_other_writer(tmp_path: Path) -> None:
    """The entries that both wrote are deleted by then, but the log goes on."""
    suspended = AppendLog(tmp_path, SCHEMA)
    suspended.append(rows(1), {"app": 1})
    other = AppendLog(tmp_path, SCHEMA)
    for number in (2, 3, 4):
        other.append(rows(number), {"app": number})
    DeltaTable(tmp_path).create_checkpoint()
    for version in range(4):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(LakeConflict, match="another process committed"):
        suspended.append(rows(5), {"app": 5})
    assert numbers(tmp_path) == [1, 2, 3, 4]


def test_damaged_statistics_are_named(tmp_path: Path) -> None:
    """Whoever lists the files, and a writer that looks for rows to delete."""
    log = AppendLog(tmp_path, SCHEMA)
    log.append(rows(1, 2), {"app": 2})
    entry = tmp_path / "_delta_log" / entry_name(log.version)
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    entry.write_bytes(
        summed(entry.name, [{"add": each["add"] | {"stats": "["}} if "add" in each else each for each in actions])
    )
    damaged = r"the statistics of part-.* in its Delta log are damaged"
    with pytest.raises(LakeUnusable, match=damaged):
        AppendLog(tmp_path, SCHEMA).discard_above("number", 1)
    with pytest.raises(LakeUnusable, match=damaged):
        read_newest(tmp_path)


def test_a_bound_that_is_no_number_excludes_no_row(tmp_path: Path) -> None:
    """The rows themselves decide."""
    log = AppendLog(tmp_path, SCHEMA)
    log.append(rows(1, 2), {"app": 2})
    entry = tmp_path / "_delta_log" / entry_name(log.version)
    damaged = entry.read_text().replace(
        '\\"maxValues\\": {\\"number\\": 2}', '\\"maxValues\\": {\\"number\\": \\"q\\"}'
    )
    entry.write_bytes(summed(entry.name, map(json.loads, damaged.splitlines())))
    AppendLog(tmp_path, SCHEMA).discard_above("number", 1)
    assert numbers(tmp_path) == [1]


def test_a_limit_of_addresses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In so few, deltalake would never return."""
    AppendLog(tmp_path, SCHEMA)
    monkeypatch.setattr("auditlake.delta.table.getrlimit", lambda _: (1 << 30, 1 << 30))
    with pytest.raises(ConfigError, match=r"limited to 1,024 MiB \(ulimit -v\), need 3,072"):
        open_table(tmp_path)


def test_a_damaged_log_is_described_without_the_threads_of_deltalake(tmp_path: Path) -> None:
    """Its errors have a line for each frame."""
    AppendLog(tmp_path, SCHEMA).append(rows(1), {"app": 1})
    newest = max((tmp_path / "_delta_log").glob("*.json"))
    newest.write_text('{"add": 1}\n')
    with pytest.raises(LakeUnusable, match=r"cannot be read: .*expected \{ got 1$"):
        AppendLog(tmp_path, SCHEMA)
