"""Each job starts without a JVM as far as its lake; tests/release/test_jobs.py runs them on a cluster."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "jobs"
_JOBS = sorted(set(_FOLDER.glob("*.py")) - {_FOLDER / "bootstrap.py"})


Run = Callable[..., tuple[object, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bare_environment: None) -> Run:  # noqa: ARG001
    """A function that runs a job in this process, and returns exit code and stderr."""

    def run(job: Path, *arguments: str | Path) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", [str(job), *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(job), run_name="__main__")
        return ended.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize("job", _JOBS, ids=lambda path: path.stem)
def test_a_job_names_a_folder_that_is_no_lake(job: Path, tmp_path: Path, run: Run) -> None:
    """Exit code 6, before any JVM."""
    code, said = run(job, tmp_path, "select 1")
    assert (code, str(tmp_path) in said) == (6, True), said


def test_the_first_copy_needs_a_source(tmp_path: Path, run: Run) -> None:
    """It makes the lake, so there need not be one; it is refused before any effect."""
    lake = tmp_path / "lake"
    code, said = run(_FOLDER / "bootstrap.py", lake)
    assert (code, "no source is set" in said) == (3, True), said
    assert not lake.exists()
