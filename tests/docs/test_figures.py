"""Figures of sizing.md name their origin and date, and those who read CHANGELOG.md find the version of the package."""

import re
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_every_measured_figure_has_an_origin_and_a_date() -> None:
    """A program in bench/ that exists, or the run that was measured by hand; and the month."""
    tables = re.findall(
        r"^\| .* \| when \|\n\|[-|]+\|\n((?:\|.*\n)+)", (_ROOT / "docs" / "sizing.md").read_text(), re.MULTILINE
    )
    rows = [row.strip("| \n").split(" | ") for table in tables for row in table.splitlines()]
    assert len(rows) >= 10
    for _, _, origin, when in rows:
        assert re.fullmatch(r"20\d\d-\d\d", when), when
        programs = re.findall(r"`(bench/\w+\.py)`", origin)
        assert all((_ROOT / program).is_file() for program in programs)
        assert programs or "by hand" in origin or "the same run" in origin, origin


def test_the_changelog_knows_the_version() -> None:
    """Before the first release everything is under Unreleased; afterwards the version has a section."""
    text = (_ROOT / "CHANGELOG.md").read_text()
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - 20\d\d-\d\d-\d\d$", text, re.MULTILINE)
    assert "## [Unreleased]" in text
    assert not released or version == released[0]
