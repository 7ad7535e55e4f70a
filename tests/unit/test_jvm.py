"""The class-data archive: its name contains its dependencies; it is used only if it exists."""

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.spark.jvm import _forward, archive_path, create_archive, driver_options

JARS = (Path("/jars/delta-spark.jar"),)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_other_jars_need_another_archive(cache: Path) -> None:
    """An archive holds the classes of one class path."""
    assert archive_path(JARS).parent == cache / "auditlake" / "jvm"
    assert archive_path(JARS) != archive_path((Path("/jars/delta-spark-2.jar"),))


def test_an_archive_is_used_once_it_exists() -> None:
    """Before, the JVM gets no option about it."""
    path = archive_path(JARS)
    assert driver_options(JARS) == ""
    path.parent.mkdir(parents=True)
    path.touch()
    assert f"-XX:SharedArchiveFile={path}" in driver_options(JARS)


def test_a_folder_that_java_options_cannot_name_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark splits the driver's options at spaces."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with space"))
    path = archive_path(JARS)
    path.parent.mkdir(parents=True)
    path.touch()
    assert driver_options(JARS) == ""


def test_archives_that_no_start_has_used_for_two_weeks_are_deleted() -> None:
    """The current one, one that a start has named since, and a recent one stay."""
    current, used, old, recent = (
        archive_path((Path(f"/jars/{name}.jar"),)) for name in ("current", "used", "old", "recent")
    )
    current.parent.mkdir(parents=True)
    for path, age_days in ((current, 99), (used, 99), (old, 15), (recent, 13)):
        path.touch()
        os.utime(path, (time.time() - age_days * 86_400,) * 2)
    assert driver_options((Path("/jars/used.jar"),))
    create_archive((Path("/jars/current.jar"),), no_start, lambda _: None)
    assert set(current.parent.iterdir()) == {current, used, recent}


def no_start(_: str) -> SparkSession:
    """Fail: the archive exists."""
    raise AssertionError


def test_what_a_library_says_of_its_own_logging_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """Three lines of the SLF4J inside the AWS SDK, at its first request; a message of the JVM passes."""
    read_fd, write_fd = os.pipe()
    with os.fdopen(write_fd, "wb") as stderr:
        stderr.write(
            b'SLF4J: Failed to load class "org.slf4j.impl.StaticLoggerBinder".\n'
            b"SLF4J: Defaulting to no-operation (NOP) logger implementation\n"
            b"SLF4J: See http://www.slf4j.org/codes.html#StaticLoggerBinder for further details.\n"
            b"Error: Could not create the Java Virtual Machine.\n"
        )
    _forward(read_fd)
    assert capfd.readouterr().err == "Error: Could not create the Java Virtual Machine.\n"
