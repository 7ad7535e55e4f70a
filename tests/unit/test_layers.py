"""ARCHITECTURE.md's table of layers is the import-linter contract that `make check` enforces."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def contract_layers() -> list[set[str]]:
    """The packages of each layer, from the highest to the lowest, in `pyproject.toml`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (each for each in settings["contracts"] if each["id"] == "layers")
    return [{name.strip() for name in layer.split("|")} for layer in contract["layers"]]


def documented_layers() -> list[set[str]]:
    """The packages in the first column of the table under "Packages" in ARCHITECTURE.md."""
    section = (ROOT / "ARCHITECTURE.md").read_text().split("## Packages", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [set(re.findall(r"`(\w+)`", row)) for row in rows]


def test_the_documented_layers_are_the_enforced_ones() -> None:
    """Same packages, same order."""
    assert documented_layers() == contract_layers()


def test_every_package_has_a_layer() -> None:
    """A new package or top-level module must be placed before it can be merged."""
    package = ROOT / "auditlake"
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    assert set.union(*contract_layers()) == modules | packages


def test_only_the_store_asks_where_a_place_is() -> None:
    """Every other package calls a function that knows both a disk and a store."""
    asks = re.compile(r"isinstance\([^)]*\b(Path|Remote)\b")
    files = (ROOT / "auditlake").rglob("*.py")
    found = [str(file) for file in files if file.parent.name != "store" and asks.search(file.read_text())]
    assert not found
