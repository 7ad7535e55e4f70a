"""Hooks of MkDocs: the site has the pages of docs/ and of the repository's root, in the order of the index.

1. The navigation is docs/README.md, then every page that its table links to, so a page without a row is a warning.
2. Links are written for the repository. The pages of its root are added beside those of docs/, and links between both
   are rewritten; a link to any other file becomes its name. MkDocs then checks every link and anchor that is left.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
}
"""Pages of the root, and their names in the site, where README.md is that of docs/."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from the index."""
    index = rewrite((_ROOT / "docs" / "README.md").read_text(), in_root=False)
    linked = [target for _, _, target, _ in _LINK.findall(index) if target.endswith(".md")]
    config.nav = list(dict.fromkeys(["README.md", "overview.md", *linked]))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=rewrite((_ROOT / name).read_text(), in_root=True)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Rewrite the links of a page of docs/."""
    return markdown if page.file.src_uri in PAGES.values() else rewrite(markdown, in_root=False)


def rewrite(markdown: str, *, in_root: bool) -> str:
    """Turn links of the repository into links of the site."""

    def replace(found: re.Match[str]) -> str:
        image, text, target, anchor = found.groups()
        name = str((_ROOT / ("" if in_root else "docs") / target).resolve().relative_to(_ROOT))
        if name in PAGES:
            return f"{image}[{text}]({PAGES[name]}{anchor or ''})"
        if name.startswith("docs/"):
            return f"{image}[{text}]({name.removeprefix('docs/')}{anchor or ''})"
        return f"{text} (`{name}`)" if text != name else f"`{name}`"

    return _LINK.sub(replace, markdown)
