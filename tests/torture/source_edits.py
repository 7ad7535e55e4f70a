"""Source edits by symbol: replace one expression or statement inside a named function, class or constant.

An edit compares syntax trees, not text, so comments, line breaks, quotes and everything outside the symbol may change
without breaking it. It refuses a symbol that does not exist, and code that the symbol does not contain exactly `times`
times.
"""

import ast
import copy
import re
import runpy
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from auditlake.fold.net import SPARK_FILE
from scripts.fold_stages import in_spark

_STAGES = Path("fold/stages.py")
_PLACEHOLDER = re.compile(r"_\d")
_Block = ast.Module | ast.ClassDef | ast.FunctionDef
_Found = dict[str, ast.expr]


class DoesNotApply(LookupError):
    """The symbol or the code in it does not exist."""


@dataclass(frozen=True)
class Edit:
    """Replace `old` by `new` inside `symbol`, which is `package.module:Qualified.name` below `auditlake`.

    Both are one expression or one statement; `new` may be several statements. `_1`, `_2` in `old` match any expression
    and are replaced by it in `new`. If `old` is empty, `new` replaces the whole body of the function. If the symbol is
    a constant with a text, such as the Java source of the log store, both are parts of this text.
    """

    symbol: str
    old: str
    new: str
    times: int = 1

    @property
    def file(self) -> Path:
        """Return the module's file, relative to the package."""
        return Path(f"{self.symbol.partition(':')[0].replace('.', '/')}.py")

    def apply_to(self, tree: ast.Module) -> None:
        """Change the syntax tree of the module.

        Raises DoesNotApply.
        """
        found = _find(tree, self.symbol)
        text = found.value if isinstance(found, ast.Assign) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            times = text.value.count(self.old)
            text.value = text.value.replace(self.old, self.new)
        elif not self.old and isinstance(found, ast.FunctionDef):
            found.body, times = ast.parse(self.new).body, 1
        else:
            replacement = _Replacement(self.old, self.new)
            replacement.generic_visit(found)
            times = replacement.times
        if times != self.times:
            raise DoesNotApply(f"{self.symbol} contains {times} times, expected {self.times}: {self.old}")


def edit_package(package: Path, edits: Iterable[Edit]) -> None:
    """Apply edits to the files of a copy of the package; edited stages of the fold are translated for Spark, too.

    Raises DoesNotApply.
    """
    edits = list(edits)
    for edit in edits:
        file = package / edit.file
        try:
            tree = ast.parse(file.read_text())
        except FileNotFoundError:
            raise DoesNotApply(f"{edit.symbol}: there is no such module") from None
        edit.apply_to(tree)
        file.write_text(ast.unparse(ast.fix_missing_locations(tree)))
    if any(edit.file == _STAGES for edit in edits):
        stages = runpy.run_path(str(package / _STAGES))["STAGES"]
        (package / _STAGES).with_name(SPARK_FILE).write_text(in_spark(stages))


def _find(tree: ast.Module, symbol: str) -> _Block | ast.Assign:
    found: _Block | ast.Assign = tree
    for name in symbol.partition(":")[2].split("."):
        inner = [] if isinstance(found, ast.Assign) else found.body
        named = [node for node in inner if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Assign)]
        found = next((node for node in named if name in _names(node)), tree)
        if found is tree:
            raise DoesNotApply(f"{symbol}: there is no {name}")
    return found


def _names(node: ast.ClassDef | ast.FunctionDef | ast.Assign) -> list[str]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [node.name]


class _Replacement(ast.NodeTransformer):
    """Replaces every node that equals the old code, and counts them."""

    def __init__(self, old: str, new: str) -> None:
        self.times = 0
        before, after = _parse(old), _parse(new)
        self._is_expression = isinstance(before, ast.expr) and isinstance(after, ast.expr)
        self._old = before if self._is_expression else ast.parse(old).body[0]
        self._new = [after] if self._is_expression else ast.parse(new).body

    def visit(self, node: ast.AST) -> ast.AST | list[ast.AST]:
        found: _Found = {}
        if not _matches(self._old, node, found):
            changed: ast.AST = self.generic_visit(node)
            return changed
        self.times += 1
        filled: list[ast.AST] = [_Filling(found).visit(copy.deepcopy(new)) for new in self._new]
        return filled[0] if self._is_expression else filled


class _Filling(ast.NodeTransformer):
    """Puts the expressions that placeholders matched in their place."""

    def __init__(self, found: _Found) -> None:
        self._found = found

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._found.get(node.id, node))


def _parse(code: str) -> ast.AST:
    try:
        return ast.parse(code, mode="eval").body
    except SyntaxError:
        return ast.parse(code)


def _matches(pattern: object, value: object, found: _Found) -> bool:
    if isinstance(pattern, ast.Name) and _PLACEHOLDER.fullmatch(pattern.id) and isinstance(value, ast.expr):
        return ast.dump(found.setdefault(pattern.id, value)) == ast.dump(value)
    if isinstance(pattern, ast.AST):
        fields = [field for field in pattern._fields if field != "ctx"]
        return type(pattern) is type(value) and all(
            _matches(getattr(pattern, field), getattr(value, field), found) for field in fields
        )
    if isinstance(pattern, list) and isinstance(value, list):
        return len(pattern) == len(value) and all(map(_matches, pattern, value, [found] * len(pattern)))
    return type(pattern) is type(value) and pattern == value
