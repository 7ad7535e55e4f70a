"""Entries of Delta logs that are empty or missing: a question gives the answer of the whole lake, or refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import Done, run_here
from tests.small_lake import write_lake_with_manifest

_QUESTIONS = (
    ("sql", "--engine", "duckdb", "--format", "csv", "select * from orders order by id"),
    ("log", "--changes", "--json"),
    ("row", "public.orders", "1", "--json"),
    ("status", "--json"),
)


def _empty(entry: Path) -> None:
    entry.write_bytes(b"")


@pytest.mark.parametrize("damage", [_empty, Path.unlink], ids=["empty", "missing"])
def test_a_damaged_entry_changes_no_answer(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Every entry of every table in turn; a missing last entry is a lake as it was before that commit."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    entries = sorted(Path(lake.root).rglob("_delta_log/*.json"))
    whole = [_ask(lake.root, question) for question in _QUESTIONS[:3]]
    assert {done.code for done in whole} == {0}
    refused = 0
    for entry in entries:
        if damage is Path.unlink and entry == max(entry.parent.glob("*.json")):
            continue
        content = entry.read_bytes()
        damage(entry)
        for question, before in zip(_QUESTIONS, [*whole, None], strict=True):
            done = _ask(lake.root, question)
            assert done.code in {0, 6}, (entry, question, done.stderr[-3000:])
            refused += done.code == 6
            if done.code == 0 and before is not None:
                assert done.stdout == before.stdout, (entry, question)
        entry.write_bytes(content)
    assert refused > len(entries)


def _ask(lake: Path, question: tuple[str, ...]) -> Done:
    return run_here([*question, "--lake", lake])
