"""Documents are consistent with the code: links, commands, settings and options exist, sizes are limited."""

import re
from pathlib import Path

import click
import pytest

from auditlake.cli.main import auditlake
from auditlake.config import Settings

_ROOT = Path(__file__).parents[2]
_DOCUMENTS = [
    *(_ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((_ROOT / "docs").glob("*.md")),
]
_LINK = re.compile(r"\]\(([^)#:]+)\)")
_COMMAND = re.compile(r"`?auditlake ([a-z]+)\b(?![.:/_])")
_OPTION = re.compile(r"auditlake [a-z]+[^`\n|]*?(--[a-z-]+)")


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: str(path.relative_to(_ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    """Every relative link names an existing file."""
    for target in _LINK.findall(document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: str(path.relative_to(_ROOT)))
def test_commands_exist(document: Path) -> None:
    """Every `auditlake COMMAND` is a command."""
    lines = [line for line in document.read_text().splitlines() if "`auditlake " in line or line.startswith("$ ")]
    for line in lines:
        for name in _COMMAND.findall(line):
            assert name in auditlake.commands, line


def test_every_command_has_help_an_example_and_documentation() -> None:
    """Help is one line, then an example; each command is in some document."""
    everything = "\n".join(document.read_text() for document in _DOCUMENTS)
    for name, command in auditlake.commands.items():
        assert command.help is not None, name
        assert "Example:" in command.help, name
        assert f"auditlake {name}" in everything or f"make {name}" in everything, name


def test_every_setting_is_documented() -> None:
    """Each setting is in the table of operating.md."""
    text = (_ROOT / "docs" / "operating.md").read_text()
    for name in Settings.model_fields:
        assert f"`{name}`" in text or f"`[{name}]`" in text, name


def test_every_option_in_the_documents_exists() -> None:
    """Options named after a command belong to some command."""
    known = {
        option
        for command in (auditlake, *auditlake.commands.values())
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
    }
    for document in _DOCUMENTS:
        for option in _OPTION.findall(document.read_text()):
            assert option in known, (document.name, option)


def test_the_architecture_file_stays_short() -> None:
    """ARCHITECTURE.md has fewer than 250 lines; tests/unit/test_layers.py compares its packages."""
    text = (_ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) < 250


def test_every_file_of_tests_that_is_named_exists() -> None:
    """Documents and tests name files of tests by their path."""
    naming = [*_DOCUMENTS, *(_ROOT / "tests").rglob("*.py")]
    named = {path for each in naming for path in re.findall(r"\btests/[\w/]+\.py\b", each.read_text())}
    assert len(named) > 10
    assert [path for path in sorted(named) if not (_ROOT / path).is_file()] == []
