"""Tests of records: types of their fields, the capture status, and lake.json on another timeline of the source."""

import errno
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from auditlake.errors import LakeUnusable, WrongSource
from auditlake.lake import manifest
from auditlake.lake.erasures import Erasure, ReturnedRow
from auditlake.lake.expiries import ExpiredTable, ExpiryRun
from auditlake.lake.holds import HoldEvent, read_events
from auditlake.lake.manifest import Manifest, read_manifest, record_timeline, write_manifest
from auditlake.lake.records import (
    BROKEN,
    read_capture_state,
    read_recorded,
    record_tables,
    typed,
    unreadable,
    write_numbered,
    write_state,
)
from auditlake.relation import TableName
from auditlake.source.publication_membership import Member, Membership
from auditlake.store.files import remove_files
from tests.s3_server import chosen_lake, on_disk, overwrite


def test_the_last_state_is_read_back(tmp_path: Path) -> None:
    """It is None before the first write, and the file is the only one left in the folder."""
    lake = chosen_lake(tmp_path)
    assert read_capture_state(lake) is None
    write_state(lake, "ended", WrongSource("the slot is gone", "Run auditlake resync."))
    ended = read_capture_state(lake)
    assert ended is not None
    assert (ended.state, ended.problem, ended.remedy) == ("ended", "the slot is gone", "Run auditlake resync.")
    write_state(lake, "running")
    state = read_capture_state(lake)
    assert state is not None
    assert (state.state, state.problem, state.remedy) == ("running", None, None)
    assert [path.name for path in lake.root.iterdir()] == ["capture.json"]


def test_tables_that_are_recorded_at_the_same_time_are_all_in_the_record(tmp_path: Path) -> None:
    """While `follow` takes a new snapshot of one table, its child process copies another."""
    lake = chosen_lake(tmp_path)
    oids = {TableName("public", f"t{oid}"): oid for oid in range(1, 41)}
    found = Membership(7, frozenset({"insert"}), {name: Member(oid, None, frozenset()) for name, oid in oids.items()})
    with ThreadPoolExecutor(4) as writers:
        for recorded in [writers.submit(record_tables, lake, found, {name: oid}) for name, oid in oids.items()]:
            recorded.result()
    assert read_recorded(lake) == found


@pytest.mark.parametrize(
    "text", ["", "{}", '{"state": "running", "mood": "good"}', pytest.param("[" * 100_000, id="deep")]
)
def test_an_invalid_capture_status_is_reported(tmp_path: Path, text: str) -> None:
    """The error has a hint with the next step."""
    lake = chosen_lake(tmp_path)
    overwrite(lake.capture_state, text.encode())
    with pytest.raises(LakeUnusable, match=r"capture\.json") as refusal:
        read_capture_state(lake)
    assert refusal.value.hint is not None
    assert "Remove it" in refusal.value.hint


@on_disk("a bucket has no folders")
def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    """The error names the folder."""
    (tmp_path / "file").touch()
    with pytest.raises(LakeUnusable, match="file cannot be written: File exists"):
        write_manifest(chosen_lake(tmp_path / "file"), Manifest("7", 1, "shop", "s", "p"))


@on_disk("a bucket is never full")
def test_a_record_on_a_full_disk_needs_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there stays."""
    lake = chosen_lake(tmp_path)
    write_state(lake, "running")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(LakeUnusable, match="cannot be written: No space left on device") as refusal:
        write_state(lake, "ended")
    monkeypatch.undo()
    assert "Free space there" in str(refusal.value.hint)
    state = read_capture_state(lake)
    assert state is not None
    assert state.state == "running"


@on_disk("a bucket has no folders")
def test_a_lake_that_another_process_removed_is_reported(tmp_path: Path) -> None:
    """Also by a process that was suspended between the file and its new name, and finds neither."""
    lake = chosen_lake(tmp_path / "lake")
    with pytest.raises(LakeUnusable, match=r"capture\.json is gone: another process changed .*lake"):
        write_state(lake, "running")
    with (
        mock.patch.object(manifest, "reach", side_effect=lambda _: shutil.rmtree(tmp_path / "lake")),
        pytest.raises(LakeUnusable, match=r"lake\.json is gone: another process changed .*lake"),
    ):
        write_manifest(lake, Manifest("7", 1, "shop", "s", "p"))


def test_recording_a_timeline_changes_no_other_entry(tmp_path: Path) -> None:
    """All other entries stay, including those unknown to this version."""
    lake = chosen_lake(tmp_path / "lake")
    write_manifest(lake, Manifest("7", 1, "shop", "s", "p"))
    before = json.loads(lake.manifest.read_text()) | {"note": "of a later version"}
    overwrite(lake.manifest, json.dumps(before).encode())
    record_timeline(lake, 3)
    assert json.loads(lake.manifest.read_text()) == before | {"timeline": 3}
    assert read_manifest(lake) == Manifest("7", 3, "shop", "s", "p")


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (OSError(errno.EIO, "The store failed: timed out", "s3://bucket/lake/lake.json"), "Check credentials"),
        (PermissionError(errno.EACCES, "Permission denied", "/lake/lake.json"), "Correct that"),
        (ValueError("no JSON"), "Restore it."),
        (KeyError("toast"), "If another version wrote the lake"),
    ],
)
def test_only_a_damaged_file_is_to_be_restored(failure: Exception, advice: str) -> None:
    """If the store or the disk failed, the file may be as it should be."""
    error = unreadable(Path("lake.json"), failure, "Restore it.")
    assert advice in (error.hint or "")


_EVENT = {"event": "added", "name": "n", "tables": "t", "token": None, "until_us": 7, "reason": "r", "by": "b"}
_RUN = {"time_us": 1, "tables": [{"schema": "s", "table": "t", "horizon": 2, "versions": 3}]}
_ERASURE = {
    "number": 0,
    "table": "t",
    "schema": "s",
    "tokens": ["a"],
    "columns": [],
    "stored": [],
    "upto_lsn": 9,
    "kept": [[1, 2]],
    "from_lsn": 1,
    "to_lsn": 9,
    "versions": 1,
    "changes": 1,
    "reason": "r",
    "by": "b",
    "time_us": 1,
}


def test_a_record_is_read_with_the_types_of_its_fields() -> None:
    """Lists are tuples, of records, too; what has a default may be absent."""
    assert typed(ExpiryRun, _RUN) == ExpiryRun(1, (ExpiredTable("s", "t", 2, 3),))
    erasure = typed(Erasure, _ERASURE)
    assert (erasure.tokens, erasure.kept, erasure.is_dropped) == (("a",), ((1, 2),), False)
    assert typed(HoldEvent, {**_EVENT, "time_us": 1}).until_us == 7


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (ExpiryRun, {**_RUN, "time_us": True}),
        (ExpiryRun, {**_RUN, "tables": [["s", "t", 2, 3]]}),
        (ReturnedRow, {"erasure": 1 << 63, "token": "x", "lsn": 7}),
        (ReturnedRow, {"erasure": 1, "token": "\ud800", "lsn": 7}),
        (ReturnedRow, {"erasure": 1, "token": "x", "lsn": 7.0}),
        (ReturnedRow, {"erasure": 1, "token": "x", "lsn": 7, "more": 1}),
        (ReturnedRow, {"erasure": 1, "token": "x"}),
        (ReturnedRow, [1, "x", 7]),
        (HoldEvent, {**_EVENT, "time_us": 1, "until_us": "2030"}),
        (Erasure, {**_ERASURE, "tokens": "abc"}),
        (Erasure, {**_ERASURE, "kept": [[1]]}),
        (Erasure, {**_ERASURE, "is_dropped": "no"}),
    ],
)
def test_a_record_with_another_type_is_not_read(kind: type[object], content: object) -> None:
    """A text that is taken for a list of tokens, or for true, would have an effect that nobody recorded."""
    with pytest.raises(BROKEN):
        typed(kind, content)


def test_an_event_of_a_hold_is_an_addition_or_a_release(tmp_path: Path) -> None:
    """Any other would end the hold."""
    lake = chosen_lake(tmp_path)
    write_numbered(lake.holds, lambda _: {**_EVENT, "event": "aded", "time_us": 1})
    with pytest.raises(LakeUnusable, match=r"000000\.json cannot be read: ValueError"):
        read_events(lake)


def test_a_record_that_is_lost_is_missed(tmp_path: Path) -> None:
    """Its hold would not be in force any more. Nor does another record get its number."""
    lake = chosen_lake(tmp_path)
    for _ in range(3):
        write_numbered(lake.holds, lambda _: {**_EVENT, "time_us": 1})
    remove_files([lake.holds / "000001.json"])
    with pytest.raises(LakeUnusable, match=r"000001\.json is missing, and later records are there"):
        read_events(lake)
    with pytest.raises(LakeUnusable, match=r"000001\.json is missing"):
        write_numbered(lake.holds, lambda _: _EVENT)
