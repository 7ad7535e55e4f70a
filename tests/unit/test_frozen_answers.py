"""Public answers of the commands, the page's API, MCP and the Python API: programs read them, so they do not change."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from auditlake.audit import json_output as objects
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


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("log", objects.TransactionJson),
        ("row_full", objects.EventJson),
        ("blame_deleted", objects.BlameJson),
        ("blame_with_gap", objects.BlameJson),
        ("deleted", objects.DeletedJson),
        ("diff", objects.DifferenceJson),
    ],
)
def test_commands_print_what_their_model_describes(name: str, model: type) -> None:
    """All members, in no other type, and no others."""
    text = (FOLDER / "commands.txt").read_text().split(f"# {name}: exit 0\n", 1)[1].split("\n\n", 1)[0]
    printed = [json.loads(line) for line in text.splitlines()[1:]]
    assert printed
    assert TypeAdapter(list[model]).validate_python(printed, strict=True) == printed  # type: ignore[valid-type]
