"""compared.md is fair in its form: every section begins with what the other tool does better, and names its sources."""

import re
from pathlib import Path

import pytest

_PAGE = (Path(__file__).parents[2] / "docs" / "compared.md").read_text()
_SECTIONS = {text.splitlines()[0]: text for text in _PAGE.split("\n## ")[1:]}


@pytest.mark.parametrize("name", _SECTIONS)
def test_a_section_begins_with_the_other_tool_and_has_sources(name: str) -> None:
    """First what is better there, then what is different, then links to what was read."""
    parts = re.findall(r"^(\*\*Better there:\*\*|\*\*Different:\*\*|Sources?:)", _SECTIONS[name], re.MULTILINE)
    assert [part.strip("*:s") for part in parts] == ["Better there", "Different", "Source"]
    assert "](https://" in _SECTIONS[name].split("\nSource")[1]


def test_the_first_table_leads_to_every_section() -> None:
    """An anchor is the heading in lower case, with hyphens."""
    anchors = re.findall(r"\]\(#([a-z-]+)\)", _PAGE.split("\n## ")[0])
    assert anchors == [name.lower().replace(" ", "-") for name in _SECTIONS]
