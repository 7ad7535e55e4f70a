"""Views of tables whose names Spark would take for one."""

from auditlake.query.names import view_names
from auditlake.relation import TableName


def test_plain_names() -> None:
    """A table has its long name, and its bare one where no other schema has it."""
    one, other, shared = TableName("public", "orders"), TableName("sales", "orders"), TableName("sales", "Lines")
    assert view_names([one, other, shared]) == {
        "public__orders": one,
        "sales__orders": other,
        "sales__Lines": shared,
        "Lines": shared,
    }


def test_no_table_takes_the_view_of_another() -> None:
    """Names that differ in case alone, and bare names that look like long ones, stay apart."""
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
