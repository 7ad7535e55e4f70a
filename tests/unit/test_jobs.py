"""Each job starts without a JVM as far as its lake; tests/release/test_jobs.py runs them on a cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "jobs"
_JOBS = sorted(set(_FOLDER.glob("*.py")) - {_FOLDER / "bootstrap.py"})


@pytest.mark.parametrize("job", _JOBS, ids=lambda path: path.stem)
def test_a_job_names_a_folder_that_is_no_lake(job: Path, tmp_path: Path) -> None:
    """Exit code 6, before any JVM."""
    run = subprocess.run([sys.executable, job, tmp_path, "select 1"], capture_output=True, text=True, check=False)
    assert run.returncode == 6
    assert str(tmp_path) in run.stderr


def test_the_first_copy_needs_a_source(tmp_path: Path) -> None:
    """It makes the lake, so there need not be one; it is refused before any effect."""
    lake = tmp_path / "lake"
    run = subprocess.run([sys.executable, _FOLDER / "bootstrap.py", lake], capture_output=True, text=True, check=False)
    assert (run.returncode, "no source is set" in run.stderr) == (3, True)
    assert not lake.exists()
