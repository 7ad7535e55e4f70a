"""Public answers of the commands, the page's API, MCP and the Python API: programs read them, so they do not change."""

from pathlib import Path

import pytest

from auditlake.lake.layout import Lake
from tests.answered_lake import write_lake
from tests.frozen_answers import FILES, FOLDER, answers


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake that is asked."""
    folder: Path = tmp_path_factory.mktemp("answers")
    return write_lake(folder / "lake")


@pytest.mark.parametrize("name", FILES)
def test_public_answers_are_as_before(lake: Lake, name: str) -> None:
    """Values, members and their order; `tests.frozen_answers` writes the files if a change is meant."""
    assert answers(name, lake).splitlines() == (FOLDER / name).read_text().splitlines()
