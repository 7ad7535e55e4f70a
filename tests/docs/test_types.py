"""docs/types.md is generated from the table of types in the code."""

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_the_page_of_types_is_current() -> None:
    """`make docs` would not change it."""
    page = subprocess.run([sys.executable, "scripts/types_page.py"], cwd=_ROOT, capture_output=True, check=True)
    assert page.stdout.decode() == (_ROOT / "docs" / "types.md").read_text(), "run `make docs`"
