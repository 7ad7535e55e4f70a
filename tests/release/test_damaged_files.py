"""Every file of a lake damaged in every way, one at a time: no question gets a wrong answer, and none ends as a bug."""

from pathlib import Path

import pytest

from tests.damaged_questions import damaged_lake, damages_of, wrong_answers
from tests.s3_server import on_disk


@pytest.mark.timeout(1800)
@on_disk("files are damaged in place")
def test_no_damage_leads_to_a_wrong_answer(tmp_path: Path) -> None:
    """Neither of data files, nor of entries, checkpoints and records."""
    lake = damaged_lake(tmp_path / "lake")
    assert wrong_answers(lake, damages_of(lake)) == []
