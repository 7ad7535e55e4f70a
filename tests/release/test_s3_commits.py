"""Commits of Spark in S3: none replaces another, whatever the interleaving; Delta's own log store loses one."""

import subprocess
import sys

import pytest

from auditlake.spark import log_store
from auditlake.store.place import Remote

pytestmark = [pytest.mark.spark, pytest.mark.crash]  # a JVM of its own

_TIMEOUT_S = 280


def _printed(what: str, folder: Remote) -> list[str]:
    command = [sys.executable, "-m", "tests.release.s3_commits", what, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_an_entry_that_appears_between_check_and_put_is_kept(remote_folder: Remote) -> None:
    """Delta's own store overwrites it: that is why it is not used."""
    ours, deltas = _printed("stores", remote_folder)
    assert ours == f"{log_store.S3_CLASS} FileAlreadyExistsException theirs"
    assert deltas == "io.delta.storage.S3SingleDriverLogStore nothing ours"


def test_an_entry_that_adds_a_missing_file_is_refused(remote_folder: Remote) -> None:
    """A vacuum deletes the files of a process that was suspended before its commit for longer than files are kept."""
    assert _printed("missing", remote_folder) == ["True False"]


def test_no_commit_of_spark_and_python_at_once_is_lost(remote_folder: Remote) -> None:
    """Every commit of both has a version of its own, and all rows are there."""
    (line,) = _printed("race", remote_folder)
    commits, version, rows = map(int, line.split())
    assert version == commits
    assert rows == 10 * (8 + 1)
