"""An erasure is killed after each of its effects, in a process of its own, and finished."""

from pathlib import Path

import boto3
import pytest

from auditlake.failpoints import After
from auditlake.lake.erasures import unfinished
from tests.command import run, run_here
from tests.erasure_bucket import copied_into_bucket, everything
from tests.erasure_lake import OF_ONE, ONE, STEPS, columns_gone, found_in, kill_and_finish, states, without, write_lake
from tests.s3_server import forget


@pytest.mark.parametrize("step", STEPS)
def test_an_erasure_that_is_killed_anywhere_is_finished(tmp_path: Path, step: str) -> None:
    """No value stays, and every other answer is as before."""
    kill_and_finish(write_lake(tmp_path / "lake"), step)


@pytest.mark.parametrize("step", [*STEPS, After.VERSIONS_DELETED])
def test_so_is_one_in_a_bucket_that_keeps_versions(tmp_path: Path, bucket: str, step: str) -> None:
    """In no version of an object a value stays."""
    assert bucket
    store = boto3.client("s3")
    lake = copied_into_bucket(write_lake(tmp_path / "lake").root, store, Status="Enabled")
    before = states(lake)
    command = ["forget", *OF_ONE, "--delete-versions", "--lake", str(lake.root)]
    assert run(command, {"AUDITLAKE_FAILPOINT": step}).code == -9
    forget(lake.root)
    for (lsn, table), rows in states(lake).items():
        assert [row["id"] for row in rows] == [row["id"] for row in before[lsn, table]]
    assert run_here(["forget", "--resume", "--delete-versions", "--lake", str(lake.root)]).code == 0
    assert unfinished(lake) == []
    assert found_in(everything(lake, store, tmp_path / "after"), ONE) == {}
    assert states(lake) == without(before, columns_gone)
