"""The canonical text of a statement: every lexer divides it alike, and Spark's rules decide what it means."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import TokenType

from auditlake.errors import BadUsage
from auditlake.query.dialect import spark_tokens
from auditlake.query.lexical import TokenKind, Unfinished, canonical_sql, tokens_of

_BACKSLASH = "\\"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select 1 -- it's\nfrom t", "select 1        \nfrom t"),
        ("select 1 -- x\rfrom t", "select 1     \rfrom t"),
        ("select/*a\nb*/1", "select   \n   1"),
        ("select /*+ broadcast(t) */ 1", "select                     1"),
        ("select\u00a01\u2028", "select 1 "),
        ('select \'it\'\'s\', "a""b", "it\'s"', r"""select 'it\'s', 'a"b', 'it\'s'"""),
        (r"select r'\d''x', R'${a}'", r"select '\\d' 'x', '\u0024{a}'"),
        (r"select '\101\u0041\U0001F600\%\_\q\Z\0'", "select 'AA\U0001f600\\\\%\\\\_q\\u001a\\u0000'"),
        (r"select '\ud83d\ude00'", "select '\U0001f600'"),
        ("select 'a\nb', 'größe'", "select 'a\nb', 'größe'"),
        ("select '${env:HOME}'", r"select '\u0024{env:HOME}'"),
        ("select x'1f', b'1', n'a'", "select x'1f', b '1', n 'a'"),
        ("select 'a''b'\"c\"", r"""select 'a\'b' "c" """.rstrip()),
        ("where a<-1 and b!=-1 and c>>>2 and d<=>e", "where a< -1 and b!= -1 and c>>>2 and d<=>e"),
        ("select 1L, 2.5BD, 1e-3, .5, 7S, 1.5f", "select 1L, 2.5BD, 1e-3, .5, 7S, 1.5f"),
        ("select `a``b`, `--x`, `/*`, `a\\b`", "select `a``b`, `--x`, `/*`, `a\\b`"),
        ("cast(x as array<array<int>>)", "cast(x as array<array<int>>)"),
    ],
)
def test_a_statement_is_composed_again_from_its_tokens(sql: str, expected: str) -> None:
    """Comments and hints are blank, strings are written from their values, operators do not touch."""
    assert canonical_sql(sql) == expected
    assert canonical_sql(expected) == expected


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (f"select 1 as a -- {_BACKSLASH}\n, 2 as b", ["line 1, column 15", "a comment that ends in a backslash"]),
        (f"select 1 -- {_BACKSLASH}\r\n", ["a comment that ends in a backslash"]),
        ("/* a /* b */ */ select 1", ["line 1, column 1", "a comment in a comment"]),
        ("select 1,\n /*+ x('*/') */ 2", ["line 2, column 2", "a quote in a hint"]),
        ("select `${env:HOME}`", ["${"]),
        ("select ``", ["an empty name"]),
        ("select \u017fum(1)", ["'\u017f'"]),
        ("select gr\u00f6\u00dfe", ["'\u00f6'", "backticks"]),
        ("select 1 {# union all #}", ["'{'"]),
        ("select $$a$$", ["'$'"]),
        ("select 1 \x00", ["U+0000"]),
        ("select 1 \u200b", ["U+200B"]),
        ("select 1., 2", ["a number that ends in a point"]),
        ("select 1a", ["a name that begins with a digit"]),
        ("select t.5", [".5 after a name"]),
        (r"select '\ud83d'", ["not Unicode"]),
        ("select '\ud83d'", ["not Unicode"]),
        (r"select '\UFFFFFFFF'", ["not Unicode"]),
    ],
)
def test_what_has_no_one_meaning_is_refused(sql: str, words: list[str]) -> None:
    """With its place."""
    with pytest.raises(BadUsage) as caught:
        canonical_sql(sql)
    assert not isinstance(caught.value, Unfinished)
    assert all(word in f"{caught.value.message} {caught.value.hint}" for word in words), caught.value.message


@pytest.mark.parametrize(
    "sql", ["select 'a", 'select "a', "select `a", "select 1 /* a", "select 'a\\'", "select /*+ a"]
)
def test_what_does_not_end_is_unfinished(sql: str) -> None:
    """A prompt reads on then."""
    with pytest.raises(Unfinished, match="does not end"):
        canonical_sql(sql)


# fmt: off
_PARTS = [
    "select", "a", "x", "r", "b", " ", "\n", "\t", "'", "''", '"', "`", "\\", "\\'", "--", "/*", "*/", "/*+", "+",
    "-", "<", ">", "=",
    "!", "|", ":", ".", "1", "e", "L", "BD", "(", ")", ",", ";", "${", "}", "u0041", "101", "%", "\u00e9", "\U0001f600",
    "\u00a0", "#", "{",
]
# fmt: on
_KINDS = {
    TokenType.STRING: TokenKind.STRING,
    TokenType.HEX_STRING: TokenKind.STRING,
    TokenType.IDENTIFIER: TokenKind.QUOTED,
}


@given(st.lists(st.sampled_from(_PARTS) | st.text(max_size=2), max_size=30).map("".join))
def test_sqlglot_divides_a_canonical_text_alike(sql: str) -> None:
    """Strings and quoted names at the same places, and nothing is a comment; a canonical text stays as it is."""
    try:
        text = canonical_sql(sql)
    except BadUsage:
        return
    assert canonical_sql(text) == text
    ours = [(each.kind, each.end) for each in tokens_of(text) if each.kind in {TokenKind.STRING, TokenKind.QUOTED}]
    found = spark_tokens(text)
    theirs = [(_KINDS[each.token_type], each.end + 1) for each in found if each.token_type in _KINDS]
    assert theirs == ours
    assert not any(each.comments for each in found)


@given(st.text(max_size=20))
def test_a_string_keeps_its_value(value: str) -> None:
    """As sqlglot reads it, whatever it has."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    with contextlib.suppress(UnicodeEncodeError):
        value.encode()
        (token,) = spark_tokens(canonical_sql(f"'{escaped}'"))
        assert token.text == value
