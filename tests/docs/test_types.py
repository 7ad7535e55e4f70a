"""Pages that are generated from the code are current."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["types", "api"])
def test_a_generated_page_is_current(page: str) -> None:
    """`make docs` would not change it."""
    made = subprocess.run([sys.executable, f"scripts/{page}_page.py"], cwd=_ROOT, capture_output=True, check=True)
    assert made.stdout.decode() == (_ROOT / "docs" / f"{page}.md").read_text(), "run `make docs`"
