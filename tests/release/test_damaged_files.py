"""Every file of a lake damaged in every way, one at a time: no question gets a wrong answer, and none ends as a bug."""

from pathlib import Path

import pytest

from tests.damaged_questions import damaged_lake, damages_of, wrong_answers
from tests.every_damage import OLDER, Damage
from tests.s3_server import on_disk


@pytest.mark.timeout(1800)
@on_disk("files are damaged in place")
def test_no_damage_leads_to_a_wrong_answer(tmp_path: Path) -> None:
    """Neither of data files, nor of entries, checkpoints and records, except what only verify finds."""
    lake = damaged_lake(tmp_path / "lake")
    assert wrong_answers(lake, (each for each in damages_of(lake) if not _is_left_to_verify(each))) == []


def _is_left_to_verify(damage: Damage) -> bool:
    """Return whether a right file is in the place of another, or an entry is lost that no other one requires.

    The lake has no commit of capture, which would record that `relations` and `transactions` are required.
    """
    is_last_entry = damage.file in sorted(damage.file.parent.glob("*.json"))[-1:]
    is_lost_entry = damage.kind == "deleted" and damage.file.parent.name == "_delta_log" and is_last_entry
    return is_lost_entry or (damage.kind == OLDER and damage.file.suffix == ".parquet")
