"""Quoting: each dialect reads back the identifier or text that was quoted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp, parse_one

from auditlake.relation import TableName
from auditlake.sql_names import (
    display_identifier,
    postgres_literal,
    spark_identifier,
    spark_literal,
    standard_identifier,
    standard_literal,
)

_TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=20)
_ODD = st.text("a'\"`\\ .\n", min_size=1, max_size=12)


@given(name=_ODD)
def test_a_quoted_identifier_is_one_identifier_again(name: str) -> None:
    """Quotes, dots, spaces, backslashes and line ends are part of it."""
    for dialect in ("postgres", "duckdb", "trino"):
        column = parse_one(standard_identifier(name), dialect=dialect)
        assert (column.find(exp.Dot), column.name) == (None, name)
    assert parse_one(spark_identifier(name), dialect="spark").name == name


@given(text=_ODD)
def test_a_quoted_text_is_the_same_text_again(text: str) -> None:
    """A backslash is a character of standard SQL and an escape of Spark SQL."""
    for dialect in ("duckdb", "trino"):
        assert parse_one(standard_literal(text), dialect=dialect).this == text
    assert parse_one(spark_literal(text), dialect="databricks").this == text


@given(text=_TEXTS)
def test_a_postgres_literal_shows_every_character(text: str) -> None:
    """Control characters, also bidirectional ones, are escaped; all others are written as they are."""
    literal = postgres_literal(text)
    assert not set(literal) & {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x202E, 0xFEFF)}
    assert literal.startswith("E'") or literal == standard_literal(text)


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("it's é", "'it''s é'"),
        ("a\\'b", "E'a\\\\''b'"),
        ("\x1b[1m\n\t\r", r"E'\u001b[1m\n\t\r'"),
        ("\x9b\u202e\U000e0001", r"E'\u009b\u202e\U000e0001'"),
    ],
)
def test_a_postgres_literal_escapes_under_every_setting(text: str, literal: str) -> None:
    """`E` goes before a literal with a backslash, so `standard_conforming_strings` does not matter."""
    assert postgres_literal(text) == literal


def test_an_invalid_byte_has_no_postgres_literal() -> None:
    """PostgreSQL would refuse the literal; the error has no part of the text."""
    with pytest.raises(ValueError, match="no literal of PostgreSQL") as caught:
        postgres_literal("secret\0xe9")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("orders", "orders"), ("_a1", "_a1"), ("Orders", '"Orders"'), ("1a", '"1a"'), ("é", '"é"'), ('a"b', '"a""b"')],
)
def test_a_name_is_shown_with_quotes_only_if_it_needs_them(name: str, shown: str) -> None:
    """Lower-case ASCII letters, digits and underscores need none."""
    assert display_identifier(name) == shown
    assert str(TableName("public", name)) == f"public.{shown}"
