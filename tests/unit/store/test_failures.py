"""Failures of a disk are errors of the lake, and those of a store in Spark's exceptions: S3A's before such a store."""

import errno
import os
import re
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from auditlake.jvm_trace import trace_of
from auditlake.store.failures import as_disk_error, as_lake_error, remedy_of
from tests import command
from tests.full_disk import file_size_limit
from tests.small_lake import write_lake_with_manifest

_S3A, _SDK = "org.apache.hadoop.fs.s3a", "software.amazon.awssdk"
_FRAMES = f"""
\tat {_S3A}.S3AUtils.translateException(S3AUtils.java:291)
\tat {_SDK}.core.exception.SdkClientException$BuilderImpl.build(SdkClientException.java:130)
"""
_NO_REPLY = (
    f"{_S3A}.HttpChannelEOFException: listObjects() on s3://b/t: {_SDK}.core.exception.SdkClientException: Unable to "
    "execute HTTP request: The target server failed to respond (SDK Attempt Count: 2)"
)
_TO_HEAD = (
    f"{_S3A}.AWSServiceThrottledException: getFileStatus on s3://b/t/_delta_log: {_SDK}.services.s3.model.S3Exception: "
    "Service Unavailable (Service: S3, Status Code: 503, Request ID: null):null: Service Unavailable"
)
_IN_AN_EXECUTOR = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times: "
    f"{_S3A}.AWSStatus500Exception: open s3://b/t/1.parquet: {_SDK}.services.s3.model.S3Exception: injected "
    "(Service: S3, Status Code: 500, Request ID: null) (SDK Attempt Count: 2)"
)
_NO_CREDENTIALS = f"{_S3A}.auth.NoAuthWithAWSException: No AWS Credentials provided"
_MISSING = f"java.io.FileNotFoundException: {_SDK}.S3Exception: Not Found (Service: S3, Status Code: 404, x)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_NO_REPLY, "the store failed: SdkClientException"),
        (_TO_HEAD, "the store answered 503 Service Unavailable"),
        (_IN_AN_EXECUTOR, "the store answered 500"),
        (_NO_CREDENTIALS, "the store failed: NoAuthWithAWSException"),
    ],
)
def test_a_failure_of_the_store_in_spark(text: str, message: str) -> None:
    """It is named by its status, or by its kind if there was no reply."""
    found = as_lake_error(PySparkException(text + _FRAMES))
    assert found is not None
    assert (found.message, found.exit_code) == (message, 6)


@pytest.mark.parametrize(
    "exc",
    [
        PySparkException(f"java.lang.NullPointerException{_FRAMES}"),
        PySparkException(_MISSING + _FRAMES),
        RuntimeError("Service: S3, Status Code: 503"),
    ],
)
def test_other_failures_are_not_the_stores(exc: BaseException) -> None:
    """A missing object has a meaning for who asked, and a frame of the trace is no cause."""
    assert as_lake_error(exc) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE])
def test_a_failure_of_the_disk_names_the_file(number: int) -> None:
    """It is no bug; a missing file may be one."""
    found = as_disk_error(OSError(number, "a text", "/lake/changes"))
    assert found is not None
    assert (found.message, found.exit_code) == (f"/lake/changes: {os.strerror(number)}", 6)
    assert ("Free space" in str(found.hint)) == (number == errno.ENOSPC)
    assert as_disk_error(FileNotFoundError(errno.ENOENT, "gone", "/lake/changes")) is None


def test_a_full_disk_needs_space() -> None:
    """As deltalake reports it, too, without a number; whatever else fails needs something else."""
    text = "Generic LocalFileSystem error: Unable to copy data to file: No space left on device (os error 28)"
    found = [OSError(errno.EDQUOT, "a text"), OSError(text), DeltaError(text)]
    assert [remedy_of(exc) for exc in found] == ["Free space there, then run this again: it continues from there."] * 3
    assert "Free space" not in remedy_of(OSError(errno.EROFS, text))


@pytest.mark.parametrize("name", ["x" * 300, "loop"])
def test_a_place_that_cannot_be_is_no_bug(tmp_path: Path, name: str) -> None:
    """A name that is too long, and a link to itself."""
    write_lake_with_manifest(tmp_path / "lake")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    backup: list[str | Path] = ["backup", tmp_path / name, "--lake", tmp_path / "lake"]
    restore: list[str | Path] = ["restore", tmp_path / name, "--lake", tmp_path / "other"]
    for arguments in (backup, restore):
        done = command.run_here(arguments)
        assert (done.code, "unexpected" in done.stderr) == (6, False), done.stderr


def test_a_backup_on_a_full_disk_is_no_bug(tmp_path: Path) -> None:
    """The next one goes on from what was copied."""
    write_lake_with_manifest(tmp_path / "lake")
    arguments: list[str | Path] = ["backup", tmp_path / "backups", "--lake", tmp_path / "lake"]
    with file_size_limit(300):
        done = command.run_here(arguments)
    assert (done.code, "bug" in done.stderr) == (6, False), done.stderr
    assert re.search(rf"error: {tmp_path}/backups/\S+: File too large", done.stderr), done.stderr
    assert command.run_here(arguments).code == 0


class Py4JJavaError(Exception):
    """An exception of a JVM that has ended."""

    def __str__(self) -> str:
        raise Py4JNetworkError("the JVM does not answer")


def test_an_exception_of_a_jvm_that_has_ended_has_no_trace() -> None:
    """To ask for its text fails, and that must not replace the error that is reported."""
    assert trace_of(Py4JJavaError()) is None
    assert as_lake_error(Py4JJavaError()) is None
