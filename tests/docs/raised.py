"""The classes that the package defines and the texts that they are called with, read from its sources.

`python -m tests.docs.raised` prints them as JSON. Tests run this in a process of its own: Python 3.11.7 fails to parse
while another thread formats a traceback, and the trees of all sources slow down each collection of garbage.
"""

import ast
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

_ROOT = Path(__file__).parents[2]
HOLE = "…"
"""Stands in a text for a value that is filled in."""


@dataclass(frozen=True)
class Sources:
    """The names of the bases of each class, and the texts of the first argument of each call, by the name called."""

    bases: dict[str, list[str]] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)

    def subclasses(self, base: str) -> set[str]:
        """Return the names of all classes below `base`, also those in modules that nothing imports."""
        found = {base}
        while more := {name for name, over in self.bases.items() if found.intersection(over)} - found:
            found |= more
        return found - {base}


def read_sources() -> Sources:
    """Parse the package in another process."""
    done = subprocess.run([sys.executable, "-m", __name__], cwd=_ROOT, capture_output=True, text=True, check=True)
    return Sources(**json.loads(done.stdout))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return HOLE


def _parse() -> Sources:
    found = Sources()
    for path in sorted((_ROOT / "auditlake").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                found.texts.setdefault(node.func.id, []).append(_text(node.args[0]))
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(_parse())))
