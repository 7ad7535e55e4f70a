"""LIKE and regular expressions. Pure.

DuckDB's LIKE tries every place for each `%`, and nothing interrupts it within a row. So a pattern with several becomes
a regular expression, whose time grows with text and pattern. A regular expression of a statement is translated if
DuckDB reads it as PostgreSQL does.

Authority: src/backend/utils/adt/like_match.c; postgresql.org/docs/current/functions-matching.html
"""

import re
from collections.abc import Iterator

from sqlglot import exp

from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.conversions import coerced, padded
from auditlake.query.postgres.types import BOOL, TEXT
from auditlake.sql_names import standard_literal
from auditlake.values.numeric_text import Failed

_TAIL = re.compile(r"%*$")
_RUNS = re.compile(r"%+")
_REPEATED = r"([*+?]|\{\d{1,2}(,\d{0,2})?\})?"
_OF_CLASS = r"[A-Za-z0-9_ @.,:;=<>%/'\"!~#*+?{}$&]"
_SAFE_PATTERN = re.compile(
    rf"\^?([A-Za-z0-9 _@,:;=<>%&/'\"!~#-]{_REPEATED}|\\[.$^*+?()|\[\]{{}}/d-]{_REPEATED}|\.{_REPEATED}"
    rf"|\[\^?-?({_OF_CLASS}(-{_OF_CLASS})?)*-?\]{_REPEATED}|\((?!\?)|\){_REPEATED}|\|)*\$?",
    re.ASCII,
)
_ONE_WAY = re.compile(r"([^\\|()]|\\.|\((?![*+?{])|\)(?![*+?{]))*")
"""Patterns that match one longest text: alternatives and repeated groups are tried in another order by DuckDB."""


def liked(word: str, left: Cell, right: Cell, escape: str, node: exp.Expr) -> Cell:
    """Translate LIKE and ILIKE; `word` may begin with `not`; raises Refused."""
    if word.endswith("ilike") and escape.lower() != escape.upper():  # escapes are read in the pattern in lower case
        raise Refused(node, "ILIKE with a letter as ESCAPE")
    sql = padded(left, node) if left.type.name == "bpchar" else coerced(left, TEXT, node).sql
    pattern = coerced(right, TEXT, node).sql
    if right.literal is not None and _has_few_places(right.literal):
        return Cell(f"({sql} {word} {pattern} escape {standard_literal(escape)})", BOOL)
    if word.endswith("ilike"):
        sql, pattern = f"lower({sql})", f"lower({pattern})"
    expression = f"pg_like({pattern}, {standard_literal(escape)})"
    if right.literal is not None:
        expression = standard_literal(_regular(right.literal, escape, node, lower=word.endswith("ilike")))
    no = "not " if word.startswith("not ") else ""
    return Cell(f"({no}regexp_full_match({sql}, {expression}, 's'))", BOOL)


def _regular(pattern: str, escape: str, node: exp.Expr, *, lower: bool) -> str:
    try:
        return regular(_lowered(pattern) if lower else pattern, escape)
    except Failed as exc:
        raise Refused(node, str(exc), wrong=True) from None


def _has_few_places(pattern: str) -> bool:
    """Return whether DuckDB's LIKE goes through a text once: `%` is at the end, and in one other place at most."""
    return len(_RUNS.findall(_TAIL.sub("", pattern))) <= 1


def regular(pattern: str, escape: str) -> str:
    """Return the regular expression of a pattern; `escape` is empty if there is none; raises Failed."""
    return "".join(_parts(pattern, escape))


def _parts(pattern: str, escape: str) -> Iterator[str]:
    signs = iter(pattern)
    for sign in signs:
        if escape and sign == escape:
            escaped = next(signs, None)
            if escaped is None:
                raise Failed("LIKE pattern must not end with escape character")
            yield _literal(escaped)
        else:
            yield {"%": ".*", "_": "."}.get(sign) or _literal(sign)


def _literal(sign: str) -> str:
    return f"\\{sign}" if sign in r"\.+*?()|[]{}^$" else sign


def _lowered(text: str) -> str:
    """Return a text as DuckDB's lower does: a character becomes one character."""
    return "".join(each.lower()[0] for each in text)


def read_pattern(node: exp.Expr, *, finds: bool = False) -> tuple[str, int]:
    """Return a regular expression that PostgreSQL and DuckDB read alike, and how many groups it has.

    With `finds`, both find the same text by it. Raises Refused.
    """
    text = str(node.this) if isinstance(node, exp.Literal) and node.is_string else None
    if text is None or not _SAFE_PATTERN.fullmatch(text):
        raise Refused(node, "a regular expression that engines read differently", _PATTERNS)
    try:
        groups = re.compile(text).groups
    except re.error:
        raise Refused(node, "invalid regular expression", wrong=True) from None
    if finds and (not _ONE_WAY.fullmatch(text) or groups > 1):
        raise Refused(node, "a regular expression that engines match differently", _PARTS)
    return text, groups


_PARTS = "Translated are patterns without |, with one pair of parentheses at most, and nothing that repeats it."
_PATTERNS = "Translated are characters, . * + ? ( ) | ^ $ and classes such as [a-z0-9]; or use LIKE."
