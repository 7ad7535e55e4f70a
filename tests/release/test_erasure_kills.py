"""An erasure is killed after each of its effects, in a process of its own, and finished; or it is not killed."""

from pathlib import Path

import boto3
import pytest

from auditlake.failpoints import After
from auditlake.ledger.blocks import read_blocks
from tests import erasure_bucket
from tests.command import run_here
from tests.erasure_bucket import copied_into_bucket, everything
from tests.erasure_lake import (
    OF_TWO,
    STEPS,
    STEPS_IN_LEDGER,
    TWO,
    found_in,
    kill_and_finish,
    states,
    without,
    write_lake,
)
from tests.ledger_lake import compared, sealed


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
    erasure_bucket.kill_and_finish(lake, store, step, tmp_path / "after")


@pytest.mark.parametrize("step", STEPS_IN_LEDGER)
def test_so_is_one_in_a_sealed_lake(tmp_path: Path, step: str) -> None:
    """Its digest still fits."""
    lake = write_lake(tmp_path / "lake")
    digest = sealed(lake)
    kill_and_finish(lake, step)
    assert compared(lake, digest).mismatches == ()


@pytest.mark.parametrize("step", [*STEPS_IN_LEDGER, After.VERSIONS_DELETED])
def test_so_is_one_in_a_sealed_lake_in_a_bucket(tmp_path: Path, bucket: str, step: str) -> None:
    """The key of the secrets is in no version of an object either."""
    assert bucket
    store = boto3.client("s3")
    lake = copied_into_bucket(write_lake(tmp_path / "lake").root, store, Status="Enabled")
    digest, key = sealed(lake), read_blocks(lake)[0].key
    assert key is not None
    erasure_bucket.kill_and_finish(lake, store, step, tmp_path / "after")
    files = [file for file in (tmp_path / "after").rglob("*") if file.is_file()]
    assert not any(found in file.read_bytes() for file in files for found in (key, key.hex().encode()))
    assert compared(lake, digest).mismatches == ()


def test_a_sealed_lake_in_a_bucket_without_versions_loses_a_row(tmp_path: Path, bucket: str) -> None:
    """Its digest still fits, and no key of a secret stays."""
    assert bucket
    store = boto3.client("s3")
    lake = copied_into_bucket(write_lake(tmp_path / "lake").root, store)
    before, digest = states(lake), sealed(lake)
    done = run_here(["forget", *OF_TWO, "--lake", lake.root])
    assert done.code == 0, done.stderr
    assert found_in(everything(lake, store, tmp_path / "after"), TWO) == {}
    assert states(lake) == without(before, lambda row: row if row["id"] != "2" else None)
    assert compared(lake, digest).mismatches == ()
