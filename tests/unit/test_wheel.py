"""The wheel has every file that the package opens; `tests/release/test_wheel.py` installs it."""

import runpy
import tomllib
from pathlib import Path

import pytest

from auditlake.spark.jars import DELTA_JARS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "auditlake"


def packed() -> set[Path]:
    """The files beside the modules that setuptools puts into the wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    return {path for pattern in settings["auditlake"] for path in PACKAGE.glob(pattern)}


def test_every_file_of_the_package_is_packed() -> None:
    """A template or an SQL file that no pattern of pyproject.toml names would exist in a clone only."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert {path for path in files if path.suffix != ".py"} == packed()


def test_every_folder_with_modules_is_a_package() -> None:
    """A folder without an __init__.py is not found by setuptools."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_no_module_opens_a_file_outside_the_package() -> None:
    """A path that goes up from its module names a file of the repository."""
    modules = {path.relative_to(PACKAGE): path.read_text() for path in PACKAGE.rglob("*.py")}
    ups = ("__file__).parents[", "__file__).parent.parent", "__file__).resolve().parents")
    assert [name for name, text in modules.items() if any(up in text for up in ups)] == []


def test_all_jars_are_checked_before_they_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a digest; a jar with another content is not distributed."""
    wheel = runpy.run_path(str(ROOT / "scripts" / "wheel.py"))
    assert set(wheel["SHA256"]) == set(DELTA_JARS)
    for name in DELTA_JARS:
        (tmp_path / name).touch()
    monkeypatch.setenv("AUDITLAKE_JARS", str(tmp_path))
    with pytest.raises(SystemExit, match=rf"{DELTA_JARS[0]} has the SHA-256 e3b0c442"):
        wheel["_copy_jars"](tmp_path / "packed")
