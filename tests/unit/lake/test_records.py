"""Tests of the capture status, and of lake.json when the source changes to another timeline."""

import errno
import json
from pathlib import Path

import pytest

from auditlake.errors import LakeUnusable
from auditlake.lake.manifest import Manifest, read_manifest, record_timeline, write_manifest
from auditlake.lake.records import read_capture_state, unreadable, write_state
from tests.s3_server import chosen_lake, on_disk, overwrite


def test_the_last_state_is_read_back(tmp_path: Path) -> None:
    """It is None before the first write, and the file is the only one left in the folder."""
    lake = chosen_lake(tmp_path)
    assert read_capture_state(lake) is None
    write_state(lake, "trying again", "the source is away")
    write_state(lake, "running")
    state = read_capture_state(lake)
    assert state is not None
    assert (state.state, state.problem) == ("running", None)
    assert [path.name for path in lake.root.iterdir()] == ["capture.json"]


@pytest.mark.parametrize("text", ["", "{}", '{"state": "running", "mood": "good"}'])
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
    with pytest.raises(LakeUnusable, match="cannot be written"):
        write_state(chosen_lake(tmp_path / "gone"), "running")


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
    ],
)
def test_only_a_damaged_file_is_to_be_restored(failure: Exception, advice: str) -> None:
    """If the store or the disk failed, the file may be as it should be."""
    error = unreadable(Path("lake.json"), failure, "Restore it.")
    assert advice in (error.hint or "")
