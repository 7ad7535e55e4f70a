"""The site of `make site` builds without a warning: every page is in the index, every link and anchor exists."""

import json
import re
import subprocess
import sys
from pathlib import Path

from scripts.site_hooks import PAGES

_ROOT = Path(__file__).parents[2]


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """A warning of MkDocs is an error; the search knows all pages."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sources = {path.name for path in (_ROOT / "docs").glob("*.md")} - {"README.md"} | set(PAGES.values())
    expected = {name.replace(".md", ".html") for name in sources} | {"index.html"}
    entries = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    assert {entry["location"].partition("#")[0] or "index.html" for entry in entries} == expected
    for page in expected:
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', (tmp_path / page).read_text())
        assert not loaded, page
