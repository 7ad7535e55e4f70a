"""ARCHITECTURE.md names modules that exist, and its ways through the code follow imports."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def section(title: str) -> str:
    """The text of one section of ARCHITECTURE.md."""
    return (ROOT / "ARCHITECTURE.md").read_text().split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def source(module: str) -> Path:
    """The file of a module such as `apply/fold`; one name alone may also be a package."""
    return ROOT / "auditlake" / f"{module}.py"


def ways() -> dict[str, list[str]]:
    """The modules of each way, in order."""
    rows = [
        line.split("|")[1:3] for line in section("Ways through the code").splitlines() if "/" in line and line[0] == "|"
    ]
    return {name.strip(): re.findall(r"`([\w/]+)`", modules) for name, modules in rows}


def imported_by(module: str) -> set[str]:
    """The modules of ours that a module imports, at its top or in a function."""
    found = set()
    for node in ast.walk(ast.parse(source(module).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("auditlake"):
            path = node.module.removeprefix("auditlake").strip(".").replace(".", "/")
            found |= {path, *(f"{path}/{name.name}" for name in node.names)}
    return found


def test_the_map_names_modules_that_exist() -> None:
    """Of every behaviour."""
    rows = [line for line in section("Where is …").splitlines() if line.startswith("| ")][1:]
    named = [name for row in rows for cell in row.split("|")[2::3] for name in re.findall(r"`([\w/]+)`", cell)]
    assert len(named) > 50
    assert [name for name in named if not (source(name).is_file() or source(name).with_suffix("").is_dir())] == []


@pytest.mark.parametrize("way", ways())
def test_a_way_enters_each_module_once_and_from_one_before(way: str) -> None:
    """Every module is imported by an earlier one of its way."""
    modules = ways()[way]
    assert len(modules) >= 5
    assert len(set(modules)) == len(modules)
    for number, module in enumerate(modules[1:], start=1):
        assert any(module in imported_by(before) for before in modules[:number]), module
