"""Scripts are split at the semicolons that end statements, and at no other."""

import pytest

from auditlake.errors import BadUsage
from auditlake.query.statement import definition_in, split_script


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("select 1", ["select 1"]),
        ("select 1;", ["select 1"]),
        ("select 1; select 2", ["select 1", "select 2"]),
        (";; select 1 ;;", ["select 1"]),
        ("select ';' as `;` /* ; */ -- ;\n, 1; select 2", ["select ';' as `;`             \n, 1", "select 2"]),
        ("-- nothing\n;", []),
        ("", []),
    ],
)
def test_a_script_is_split_into_its_statements(script: str, statements: list[str]) -> None:
    """Strings and quoted names keep their semicolons, comments are blank; empty statements are dropped."""
    assert [statement.strip() for statement in split_script(script)] == statements


def test_a_statement_keeps_its_place() -> None:
    """Everything before it is blank, so offsets and lines are those of the script."""
    script = "select 1;\nselect '𝄞';\n  select 2"
    assert split_script(script)[2] == " " * 9 + "\n" + "      " + " " + "    " + "\n" + "  select 2"
    assert all(script[len(one) - 3 : len(one)] == one[-3:] for one in split_script(script))


def test_an_unterminated_string_is_bad_usage() -> None:
    """The error names the line."""
    with pytest.raises(BadUsage, match="line 2"):
        split_script("select 1;\nselect 'x")


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("create temporary view late as select 1", "late"),
        ("CREATE OR REPLACE TEMP VIEW `Late ones` AS (select 1)", "Late ones"),
        ("/* x */ create view v as with c as (select 1) select * from c", "v"),
        ("select 1", None),
        ("create table t as select 1", None),
    ],
)
def test_a_view_definition_is_recognised(sql: str, name: str | None) -> None:
    """The text after AS is the query, at its position."""
    found = definition_in(sql)
    assert (found and found.name) == name
    if found:
        assert len(found.query) == len(sql)
        assert found.query.strip() == sql[-len(found.query.strip()) :]


@pytest.mark.parametrize(
    "sql",
    [
        "create view v",
        "create view v as",
        "create view a.v as select 1",
        "create view v (a) as select 1",
        "create view 'v' as select 1",
        "create temporary view Late as select 1",
    ],
)
def test_an_invalid_view_definition_is_refused(sql: str) -> None:
    """Anything but a name and a query, or the name of an existing view."""
    with pytest.raises(BadUsage, match=r"(?i)view"):
        definition_in(sql, {"late"})
