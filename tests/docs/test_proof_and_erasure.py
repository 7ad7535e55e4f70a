"""The walk of docs/proof-and-erasure.md: a lake is proved, changed as the text does it, and the change is named."""

import re
import shlex
from pathlib import Path

import pytest

from tests.command import Done, run_here
from tests.s3_server import on_disk
from tests.small_lake import write_lake_with_manifest

_DOCUMENT = Path(__file__).parents[2] / "docs" / "proof-and-erasure.md"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _DOCUMENT.read_text(), re.DOTALL)


def _run(line: str) -> Done:
    """Run a command of the document, with its redirection."""
    command, _, to = line.partition(" > ")
    program, *arguments = shlex.split(command)
    assert program == "auditlake"
    done = run_here(arguments)
    if to:
        Path(to).write_text(done.stdout)
    return done


@on_disk("the walk changes files with Python")
def test_the_walk_finds_what_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the walk is run, and the attack is that of the text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUDITLAKE_DIGEST_KEY", raising=False)
    write_lake_with_manifest(tmp_path / "lake")
    holds, first, second = (block.splitlines() for block in _blocks("sh"))
    (attack,) = _blocks("python")
    for line in holds:
        done = _run(line)
        assert done.code == 0, done.stderr
    for line in first:
        done = _run(line)
        assert done.code == 0, done.stderr
    assert "proved up to commit 0/300" in done.stderr
    exec(compile(attack, "the walk", "exec"), {})  # noqa: S102 - it is the document's
    (line,) = second
    done = _run(line)
    assert done.code == 6
    assert re.match(r"changed change  public\.\w+, commit 0/\d+, change \d+  file part-\S+\.parquet", done.stdout)
