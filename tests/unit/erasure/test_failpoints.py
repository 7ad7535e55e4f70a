"""Every failpoint of the ledger, of retention, of holds and of erasure has a test that kills a process there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_CODE = ("auditlake/erasure/*.py", "auditlake/ledger/*.py", "auditlake/delta/eras*.py", "auditlake/delta/expired_*.py")
_TESTS = ("tests/*.py", "tests/unit/**/*.py", "tests/postgres/*.py", "tests/release/*.py", "tests/crash/*.py")


def _trees(patterns: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    for pattern in patterns:
        for file in _ROOT.glob(pattern):
            text = file.read_text()
            yield text, ast.parse(text)


def _places(tree: ast.AST) -> set[str]:
    """Return the members of `After` that a tree names."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
    return {node.attr for node in names if isinstance(node.value, ast.Name) and node.value.id == "After"}


def test_a_process_is_killed_at_every_place() -> None:
    """Which these packages reach; the tests require the exit code of the kill."""
    reached = set[str]().union(*(_places(tree) for _, tree in _trees(_CODE)))
    killed = set[str]().union(*(_places(tree) for text, tree in _trees(_TESTS) if _kills(text)))
    assert len(reached) > 15
    assert reached - killed == set()


def _kills(test: str) -> bool:
    return "AUDITLAKE_FAILPOINT" in test or re.search(r"\bkill_[a-z_]+\(", test) is not None
