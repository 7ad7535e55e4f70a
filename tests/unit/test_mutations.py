"""Mutations and the edits that they consist of: each applies to the package as it is."""

import ast
from pathlib import Path

import pytest

import auditlake
from tests.torture.mutation_list import MUTATIONS, Mutation
from tests.torture.source_edits import DoesNotApply, Edit

_MODULE = '''
"""Module."""
TEXT = "a b"


class Kind:
    def method(self, rows):  # a comment
        first = rows.filter(
            "lsn",
        )
        self.write(first)
        return first + 1


def other(rows):
    return rows.filter("lsn")
'''


def edited(edit: Edit) -> str:
    """Return the module after an edit."""
    tree = ast.parse(_MODULE)
    edit.apply_to(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation_applies_and_changes_its_modules(mutation: Mutation) -> None:
    """Every edit finds its symbol and the code in it, after the edits before it, and the result compiles."""
    package = Path(auditlake.__file__).parent
    trees = {edit.file: ast.parse((package / edit.file).read_text()) for edit in mutation.edits}
    before = {file: ast.dump(tree) for file, tree in trees.items()}
    for edit in mutation.edits:
        edit.apply_to(trees[edit.file])
    for file, tree in trees.items():
        assert ast.dump(tree) != before[file]
        compile(ast.unparse(ast.fix_missing_locations(tree)), str(file), "exec")


def test_mutations_have_unique_names() -> None:
    """A mutation is selected by its name."""
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_an_edit_ignores_formatting_and_other_functions() -> None:
    """An expression is replaced in its symbol only, whatever its line breaks and quotes."""
    changed = edited(Edit("m:Kind.method", "rows.filter('lsn')", "rows"))
    assert "first = rows\n" in changed
    assert "return rows.filter('lsn')" in changed


def test_a_placeholder_keeps_the_expression_that_it_matched() -> None:
    """`_1` stands for any expression."""
    assert "return first - 1" in edited(Edit("m:Kind.method", "_1 + 1", "_1 - 1"))


def test_a_statement_can_be_replaced_by_several() -> None:
    """Statements are replaced as a whole."""
    changed = edited(Edit("m:Kind.method", "self.write(_1)", "self.check(_1)\nself.write(_1)\nx = 1"))
    assert "self.check(first)\n        self.write(first)\n        x = 1\n" in changed


def test_a_body_and_a_text_can_be_replaced() -> None:
    """Without old code the whole body is replaced; a constant's text is edited as text."""
    assert edited(Edit("m:other", "", "pass")).endswith("def other(rows):\n    pass")
    assert "TEXT = 'a c'" in edited(Edit("m:TEXT", "b", "c"))


@pytest.mark.parametrize(
    "edit",
    [Edit("m:Kind.missing", "x", "y"), Edit("m:Kind.method", "missing", "y"), Edit("m:Kind.method", "first", "y")],
    ids=["symbol", "code", "several"],
)
def test_an_edit_that_does_not_apply_exactly_is_refused(edit: Edit) -> None:
    """A missing symbol, missing code, and code that occurs more often than expected."""
    with pytest.raises(DoesNotApply):
        edited(edit)
