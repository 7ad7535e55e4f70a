"""Erasure in a bucket: no byte of any version of an object stays, other answers are the same."""

from pathlib import Path
from typing import Any

import boto3
import pytest

from auditlake.lake.erasures import unfinished
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, hold
from tests.command import Done, run, run_here
from tests.erasure_bucket import all_versions, bucket_of, copied_into_bucket, everything
from tests.erasure_lake import (
    OF_ONE,
    ONE,
    OTHERS,
    TWO,
    columns_gone,
    found_in,
    require_sound,
    states,
    without,
    write_lake,
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake before any erasure, on a disk."""
    return write_lake(tmp_path_factory.mktemp("written") / "lake").root


@pytest.fixture
def store(bucket: str) -> Any:
    """A client of the server of the tests."""
    assert bucket
    return boto3.client("s3")


@pytest.fixture
def lake(written: Path, store: Any) -> Lake:
    """A copy of it in a bucket that keeps versions."""
    return copied_into_bucket(written, store, Status="Enabled")


def _forget(lake: Lake, *arguments: str) -> Done:
    return run_here(["forget", *arguments, "--lake", str(lake.root)])


def test_no_byte_of_any_version_stays(lake: Lake, store: Any, tmp_path: Path) -> None:
    """Nothing happens unless older versions may be deleted, which would keep the values."""
    before = states(lake)
    refused = _forget(lake, *OF_ONE)
    assert (refused.code, "keeps older versions" in refused.stderr) == (3, True), refused.stderr
    assert set(found_in(everything(lake, store, tmp_path / "before"), ONE)) != set()
    assert "would delete 0 older versions" in _forget(lake, *OF_ONE, "--dry-run", "--delete-versions").stderr
    done = _forget(lake, *OF_ONE, "--delete-versions")
    assert done.code == 0, done.stderr
    gone = everything(lake, store, tmp_path / "after")
    assert found_in(gone, ONE) == {}
    assert set().union(*found_in(gone, (*TWO, *OTHERS)).values()) == {*TWO, *OTHERS}
    assert states(lake) == without(before, columns_gone)
    require_sound(lake)
    for question in (["row", "people", "11"], ["sql", "--as-of", "lsn:768", "select count(*) from people"]):
        asked = run([*question, "--lake", str(lake.root)])  # another process, which has said nothing yet
        assert (asked.code, "erased: name, email, born, score of one row" in asked.stderr) == (0, True), asked.stderr


def test_apply_must_not_run(lake: Lake) -> None:
    """A store has no gate that a batch could wait at."""
    with hold(lake, "follow", Stage.APPLY):
        refused = run(["forget", *OF_ONE, "--delete-versions", "--lake", str(lake.root)])
    assert (refused.code, "holds the lock of apply" in refused.stderr) == (6, True), refused.stderr
    assert not lake.erasures.is_dir()


def test_a_locked_version_leaves_the_erasure_unfinished(written: Path, store: Any) -> None:
    """Until somebody removes the lock."""
    lake = copied_into_bucket(written, store, ObjectLockEnabledForBucket=True)
    locked = next(each for each in all_versions(lake, store) if each["Key"].startswith("lake/changes/part"))
    of_version = {"Bucket": bucket_of(lake), "Key": locked["Key"], "VersionId": locked["VersionId"]}
    store.put_object_legal_hold(**of_version, LegalHold={"Status": "ON"})
    refused = _forget(lake, *OF_ONE, "--delete-versions")
    assert (refused.code, "AccessDenied" in refused.stderr) == (6, True), refused.stderr
    assert len(unfinished(lake)) == 1
    store.put_object_legal_hold(**of_version, LegalHold={"Status": "OFF"})
    assert _forget(lake, "--resume", "--delete-versions").code == 0
    assert unfinished(lake) == []


def test_a_bucket_that_kept_versions_until_now_still_does(lake: Lake, store: Any) -> None:
    """Versioning can be suspended, but not undone."""
    suspended = {"Status": "Suspended"}
    store.put_bucket_versioning(Bucket=bucket_of(lake), VersioningConfiguration=suspended)
    assert _forget(lake, *OF_ONE).code == 3
