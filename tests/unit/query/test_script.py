"""A script is cut at the semicolons that end statements, and at no other."""

import pytest

from auditlake.errors import BadUsage
from auditlake.query.script import split


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("select 1", ["select 1"]),
        ("select 1;", ["select 1"]),
        ("select 1; select 2", ["select 1", "select 2"]),
        (";; select 1 ;;", ["select 1"]),
        ("select ';' as `;` /* ; */ -- ;\n, 1; select 2", ["select ';' as `;` /* ; */ -- ;\n, 1", "select 2"]),
        ("-- nothing\n;", []),
        ("", []),
    ],
)
def test_statements(script: str, statements: list[str]) -> None:
    """Texts, quoted names and comments keep their semicolons; empty statements are none."""
    assert [statement.strip() for statement in split(script)] == statements


def test_a_statement_keeps_its_place() -> None:
    """What came before is blank, so offsets and lines are the script's."""
    script = "select 1;\nselect '𝄞';\n  select 2"
    assert split(script)[2] == " " * 9 + "\n" + "      " + " " + "    " + "\n" + "  select 2"
    assert all(script[len(one) - 3 : len(one)] == one[-3:] for one in split(script))


def test_an_unfinished_text_is_bad_usage() -> None:
    """The line is named."""
    with pytest.raises(BadUsage, match="line 2"):
        split("select 1;\nselect 'x")
