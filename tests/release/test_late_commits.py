"""A process that is suspended before its commit for longer than the retention, while a vacuum deletes files.

The files that it has written are in no version, and older than the retention. If they are deleted, its commit must not
be made: it would name files that are missing.
"""

import os
import time
from pathlib import Path

import pytest

from auditlake.delta.checkpoints import KEPT_FOR_S
from tests.interleaved import Site, Writer, suspended_before_commit

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]


def _age(site: Site) -> int:
    """Let the data files and deletion vectors of the history be older than the retention; return their number."""
    assert isinstance(site.lake.root, Path)
    written_s = time.time() - KEPT_FOR_S - 60
    files = [file for kind in ("parquet", "bin") for file in site.lake.histories.glob(f"*/*/**/*.{kind}")]
    for file in files:
        os.utime(file, (written_s, written_s))
    return len(files)


@pytest.mark.parametrize("first", [Writer("optimize"), Writer("resync", 2), Writer("merge")], ids=str)
def test_a_commit_after_a_vacuum_names_no_missing_file(database: str, tmp_path: Path, first: Writer) -> None:
    """It is planned again, although no other process has committed any change."""
    site = Site(database, tmp_path / "lake")
    site.begin()
    with suspended_before_commit(site, first) as process:
        assert _age(site)
        site.run("expire")
        code, messages = process.resume()
    assert code == 0, messages
    site.check()
