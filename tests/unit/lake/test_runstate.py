"""What capture says of itself, and lake.json when the source moves to another timeline."""

import json
from pathlib import Path

import pytest

from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, read_manifest, record_timeline, write_manifest
from auditlake.lake.runstate import read_state, write_state


def test_the_last_word_is_kept(tmp_path: Path) -> None:
    """None before the first, and nothing but the note is left in the folder."""
    lake = Lake(tmp_path)
    assert read_state(lake) is None
    write_state(lake, "trying again", "the source is away")
    write_state(lake, "running")
    found = read_state(lake)
    assert found is not None
    assert (found.state, found.problem) == ("running", None)
    assert [path.name for path in tmp_path.iterdir()] == ["capture.json"]


@pytest.mark.parametrize("text", ["", "{}", '{"state": "running", "mood": "good"}'])
def test_a_damaged_note_is_said(tmp_path: Path, text: str) -> None:
    """With the way out."""
    (tmp_path / "capture.json").write_text(text)
    with pytest.raises(LakeUnusable, match=r"capture\.json") as refusal:
        read_state(Lake(tmp_path))
    assert refusal.value.hint is not None
    assert "Remove it" in refusal.value.hint


def test_a_note_that_cannot_be_written(tmp_path: Path) -> None:
    """The folder is named."""
    with pytest.raises(LakeUnusable, match="cannot be written"):
        write_state(Lake(tmp_path / "gone"), "running")


def test_a_new_timeline_changes_nothing_else(tmp_path: Path) -> None:
    """All other entries stay, those this version does not know too."""
    lake = Lake(tmp_path / "lake")
    write_manifest(lake, Manifest("7", 1, "shop", "s", "p"))
    before = json.loads(lake.manifest.read_text()) | {"note": "of a later version"}
    lake.manifest.write_text(json.dumps(before))
    record_timeline(lake, 3)
    assert json.loads(lake.manifest.read_text()) == before | {"timeline": 3}
    assert read_manifest(lake) == Manifest("7", 3, "shop", "s", "p")
