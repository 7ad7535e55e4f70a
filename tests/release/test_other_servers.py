"""The documented role on the other major versions that can run here: every command, with each optional part.

18 is that of `make test`. `make release` installs 14 (`scripts/postgresql14.sh`) and 15 (Debian's `postgresql-15`).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["14", "15", "16", "17"])
def test_the_documented_role_suffices(version: str) -> None:
    """Its tests pass there, none is skipped."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/postgres/test_documented_role.py"],
        cwd=_ROOT,
        env={**os.environ, "AUDITLAKE_TEST_PG": version},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "skipped" not in done.stdout
