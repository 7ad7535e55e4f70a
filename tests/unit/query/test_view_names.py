"""Names of views, if Spark's case-insensitive names would collide."""

from auditlake.relation import TableName
from auditlake.temporal.table_lookup import view_names


def test_a_table_has_a_qualified_and_a_bare_view() -> None:
    """The bare name exists only if one schema has it."""
    one, other, shared = TableName("public", "orders"), TableName("sales", "orders"), TableName("sales", "Lines")
    assert view_names([one, other, shared]) == {
        "public__orders": one,
        "sales__orders": other,
        "sales__Lines": shared,
        "Lines": shared,
    }


def test_no_table_takes_the_view_of_another() -> None:
    """Names that differ only in case, and bare names that equal qualified ones, get distinct views."""
    upper, lower = TableName("public", "Orders"), TableName("public", "orders")
    bare, split = TableName("x", "public__lines"), TableName("public", "lines")
    found = view_names([upper, lower, bare, split])
    assert found == {
        "public__~4frders": upper,
        "public__orders": lower,
        "x__public__lines": bare,
        "public__lines": split,
        "lines": split,
    }
    assert len({name.casefold() for name in found}) == len(found)
