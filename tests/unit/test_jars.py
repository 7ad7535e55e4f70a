"""Java and the Delta jars are found, or the error has a remedy; no JVM is started."""

from pathlib import Path

import pytest

from auditlake.errors import ConfigError
from auditlake.spark import jars
from auditlake.spark.jars import DELTA_JARS, delta_jars, jars_folder
from auditlake.spark.java import require_java

JARS = (
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar",
    "delta-storage-4.4.0.jar",
    "delta-kernel-api-4.4.0.jar",
    "delta-kernel-defaults-4.4.0.jar",
    "delta-kernel-unitycatalog-4.4.0.jar",
    "unitycatalog-client-0.6.0.jar",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prepared folder of jars, named by AUDITLAKE_JARS; the jars are empty."""
    for name in (*JARS, "other-1.0.jar"):
        (tmp_path / name).touch()
    monkeypatch.setenv("AUDITLAKE_JARS", str(tmp_path))
    return tmp_path


def test_takes_a_prepared_folder_as_it_is(folder: Path) -> None:
    """Names with and without Ivy's organisation count; other jars are left out."""
    assert {jar.name for jar in delta_jars({})} == set(JARS)
    assert jars_folder() == folder


def test_names_what_a_folder_lacks(folder: Path) -> None:
    """A folder without one of the jars is an error now, not a ClassNotFoundException later."""
    (folder / "delta-storage-4.4.0.jar").unlink()
    with pytest.raises(ConfigError, match=r"lacks delta-storage-4\.4\.0\.jar"):
        delta_jars({})


def test_keeps_jars_in_the_cache_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without AUDITLAKE_JARS the XDG cache holds them, by version."""
    monkeypatch.delenv("AUDITLAKE_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars_folder() == tmp_path / "auditlake" / "jars" / "delta-4.4.0"


def test_takes_the_jars_of_a_wheel_before_those_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed wheel needs neither a network nor a cache; a chosen folder still outranks it."""
    for name in DELTA_JARS:
        (tmp_path / name).touch()
    monkeypatch.setattr(jars, "PACKED", tmp_path)
    monkeypatch.delenv("AUDITLAKE_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert delta_jars({}) == [tmp_path / name for name in DELTA_JARS]
    monkeypatch.setenv("AUDITLAKE_JARS", str(tmp_path / "other"))
    assert jars_folder() == tmp_path / "other"


def java_home(root: Path, release: str) -> Path:
    """Make a folder that looks like a Java runtime of that version."""
    java = root / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    (root / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{release}"\n')
    return java


@pytest.mark.parametrize("release", ["17", "17.0.15", "21.0.2"])
def test_takes_java_17_and_newer(release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version comes from the runtime's own release file."""
    java = java_home(tmp_path, release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert require_java() == java


@pytest.mark.parametrize(("release", "major"), [("1.8.0_402", 8), ("11.0.22", 11)])
def test_refuses_an_older_java(release: str, major: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would fail on it with the number of a class version, not of a Java release."""
    java_home(tmp_path, release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=f"is version {major}, Spark needs 17"):
        require_java()


def test_says_what_to_install_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java at all is one line with the package to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no java on the PATH") as failure:
        require_java()
    assert "openjdk-17-jre-headless" in (failure.value.hint or "")


def test_refuses_a_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME outranks the PATH, so a wrong one is an error."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no java in its bin folder"):
        require_java()
