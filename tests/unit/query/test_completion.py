"""Completions of the shell: only words that are valid next."""

import pytest

from auditlake.query.completion import complete
from auditlake.relation import TableName

TABLES = {
    TableName("public", "orders"): ["order_id", "status", "Odd name"],
    TableName("public", "customers"): ["customer_id", "name"],
    TableName("audit", "log"): ["at"],
}


def offered(text: str) -> list[str]:
    """Return the text after each completion."""
    return [text[: len(text) - replaced] + candidate for candidate, replaced in complete(text, TABLES)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sele", "select"),
        ("select * from ord", "select * from orders"),
        ("select * from public.cu", "select * from public.customers"),
        ("select * from auditlake.tr", "select * from auditlake.transactions"),
        ("select * from orders where sta", "select * from orders where status"),
        ("select * from orders o join customers as c on c.na", "select * from orders o join customers as c on c.name"),
        ("select orders.st", "select orders.status"),
        ("select * from orders where od", "select * from orders where `Odd name`"),
        ("select * from orders for s", "select * from orders for system_time all"),
        ("from orders for system_time all where _from", "from orders for system_time all where _from_lsn"),
        ("\\as", "\\as-of "),
        ("\\d ord", "\\d orders"),
        ("\\format j", "\\format json"),
    ],
)
def test_each_kind_of_word_is_completed(text: str, expected: str) -> None:
    """Tables, columns, keywords, clauses, commands and formats."""
    assert expected in offered(text)


def test_columns_of_other_tables_are_not_offered() -> None:
    """After a table's name only its own columns; without one, no columns of tables that the statement does not name."""
    assert "select o.customer_id" not in offered("select o.cu")
    assert [text for text in offered("select * from orders o where o.") if "customer" in text] == []
    assert "select status" not in offered("select sta")
    assert offered("select * from nowhere.x") == []


def test_tables_may_be_named_after_the_cursor() -> None:
    """Columns of theirs are offered, also after an alias."""
    assert ("status", 3) in complete("select sta", TABLES, " from orders o")
    assert ("name", 2) in complete("select c.na", TABLES, " from customers c")
    assert ("status", 3) not in complete("select sta", TABLES, " from customers")


def test_a_long_statement_is_read_at_its_end() -> None:
    """From each of a million characters on it would be read again, which nothing interrupts."""
    for text in ('select * from "' + "x" * 1_000_000 + '" o', "select `" + "``" * 500_000 + "o"):
        assert "orders" in {candidate for candidate, _ in complete(text, TABLES)}
