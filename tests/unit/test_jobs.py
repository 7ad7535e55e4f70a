"""Each job starts without a JVM as far as its lake; tests/release/test_jobs.py runs them on a cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

_JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("*.py"))


@pytest.mark.parametrize("job", _JOBS, ids=lambda path: path.stem)
def test_a_job_names_a_folder_that_is_no_lake(job: Path, tmp_path: Path) -> None:
    """Exit code 6, before any JVM."""
    run = subprocess.run([sys.executable, job, tmp_path, "select 1"], capture_output=True, text=True, check=False)
    assert run.returncode == 6
    assert str(tmp_path) in run.stderr
