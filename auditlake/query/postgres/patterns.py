"""LIKE and regular expressions. Pure.

DuckDB's LIKE tries every place for each `%`, and nothing interrupts it within a row. So a pattern with several becomes
a regular expression, whose time grows with text and pattern. A regular expression of a statement is translated if
DuckDB reads it as PostgreSQL does.

Authority: src/backend/utils/adt/like_match.c; postgresql.org/docs/current/functions-matching.html
"""

import re
from collections.abc import Iterator, Sequence

from sqlglot import exp

from auditlake.cancellation import cancellable_loop
from auditlake.query.postgres.cells import Cell, Refused
from auditlake.query.postgres.conversions import coerced, padded
from auditlake.query.postgres.growth import MOST_BYTES, held, repeatable
from auditlake.query.postgres.letters import LOWER, small
from auditlake.query.postgres.types import BOOL, BYTEA, INT4, TEXT, TEXTS, array
from auditlake.sql_names import standard_literal

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


class EndsInEscape(ValueError):
    """A pattern that PostgreSQL refuses, unless each text differs from it before its end."""


ENDS_IN_ESCAPE = "a pattern of LIKE that ends in its escape character"


def liked(word: str, left: Cell, right: Cell, escape: str, node: exp.Expr) -> Cell:
    """Translate LIKE and ILIKE; `word` may begin with `not`; raises Refused."""
    if word.endswith("ilike") and escape.lower() != escape.upper():  # escapes are read in the pattern in lower case
        raise Refused(node, "ILIKE with a letter as ESCAPE")
    if BYTEA in {left.type, right.type}:
        raise Refused(node, f"{word.upper()} of bytea", "Compare its encode(…, 'hex').")
    sql = padded(left, node) if left.type.name == "bpchar" else coerced(left, TEXT, node).sql
    pattern = coerced(right, TEXT, node).sql
    given = right.literal
    if word.endswith("ilike"):
        sql, pattern = (repeatable([each], LOWER.format) for each in (sql, pattern))
        given = None if given is None else "".join(map(small, given))
    expression = f"pg_like({pattern}, {standard_literal(escape)})"
    if given is not None:
        expression = standard_literal(_regular(given, escape, node))
    no = "not " if word.startswith("not ") else ""
    if given is not None and _has_few_places(given):
        return Cell(f"({sql} {no}like {standard_literal(given)} escape {standard_literal(escape)})", BOOL)
    return Cell(f"({no}regexp_full_match({sql}, {expression}, 's'))", BOOL)


def _regular(pattern: str, escape: str, node: exp.Expr) -> str:
    try:
        return regular(pattern, escape)
    except EndsInEscape:
        raise Refused(node, ENDS_IN_ESCAPE, "Write the escape character twice.") from None


def _has_few_places(pattern: str) -> bool:
    """Return whether DuckDB's LIKE goes through a text once: `%` is at the end, and in one other place at most."""
    return len(_RUNS.findall(_TAIL.sub("", pattern))) <= 1


def regular(pattern: str, escape: str) -> str:
    """Return the regular expression of a pattern; `escape` is empty if there is none; raises EndsInEscape."""
    return "".join(_parts(pattern, escape))


def _parts(pattern: str, escape: str) -> Iterator[str]:
    signs = cancellable_loop(pattern)
    for sign in signs:
        if escape and sign == escape:
            escaped = next(signs, None)
            if escaped is None:
                raise EndsInEscape
            yield _literal(escaped)
        else:
            yield {"%": ".*", "_": "."}.get(sign) or _literal(sign)


def _literal(sign: str) -> str:
    return f"\\{sign}" if sign in r"\.+*?()|[]{}^$" else sign


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


def similar_pattern(node: exp.Expr) -> str:
    """Return the regular expression of a pattern of SIMILAR TO, which matches a whole text; raises Refused."""
    text = str(node.this) if isinstance(node, exp.Literal) and node.is_string else ""
    pattern = "".join(_OF_SIMILAR.get(sign, sign) for sign in text)
    if not _SIMILAR.fullmatch(text):
        raise Refused(node, "a pattern of SIMILAR TO of this form", "It may have letters, digits, % _ | * + ? and ().")
    return read_pattern(exp.Literal.string(pattern))[0]


_OF_SIMILAR = {"%": ".*", "_": ".", **{sign: f"\\{sign}" for sign in ".^$"}}
_SIMILAR = re.compile(r"[A-Za-z0-9 %_.^$@,:;=<>&/'\"!~#*+?|()-]+", re.ASCII)
_TEXT_TYPES = TEXTS - {"bpchar"}


def searched(cell: Cell, node: exp.Expr) -> str:
    """Return the text to which a regular expression is applied; raises Refused."""
    if not cell.is_unknown and cell.type.name not in _TEXT_TYPES:
        raise Refused(node, f"a regular expression on {cell.type.shown}")
    return coerced(cell, TEXT, node).sql


def called_with_pattern(  # noqa: C901 - one case for each function
    name: str, cells: Sequence[Cell], node: exp.Expr
) -> Cell:
    """Translate a function of a text and a regular expression; raises Refused."""
    if len(cells) < 2:  # noqa: PLR2004 - the text and the pattern
        raise Refused(node, f"{name} of one argument")
    pattern, groups = read_pattern(node.expressions[1], finds=name != "regexp_like")
    of, text = searched(cells[0], node), standard_literal(pattern)
    matches = f"regexp_matches({of}, {text}, 's')"
    if name == "regexp_like" and len(cells) == 2:  # noqa: PLR2004
        return Cell(matches, BOOL)
    if re.search(pattern, ""):
        raise Refused(node, f"{name} with a pattern that matches an empty text")
    match name, cells[2:]:
        case "regexp_count", []:
            return Cell(f"cast(len(regexp_extract_all({of}, {text}, 0, 's')) as integer)", INT4)
        case "regexp_substr", []:
            return Cell(f"case when {matches} then regexp_extract({of}, {text}, 0, 's') end", TEXT)
        case "regexp_match", []:
            return Cell(f"case when {matches} then [regexp_extract({of}, {text}, {groups}, 's')] end", array(TEXT))
        case "regexp_replace", [Cell(literal=str(new))]:
            return _replaced(of, text, _replacement(new, groups, node), "s")
        case "regexp_replace", [Cell(literal=str(new)), Cell(literal="" | "g" as flags)]:
            return _replaced(of, text, _replacement(new, groups, node), f"s{flags}")
        case _:
            raise Refused(node, f"{name} of such arguments", "The replacement is a literal, and 'g' the only flag.")


def _replacement(new: str, groups: int, node: exp.Expr) -> str:
    r"""Return a replacement, in which `\&` is the whole match, as DuckDB reads it."""
    found = _REPLACEMENT.fullmatch(new)
    if found is None or (found[1] and not groups):
        raise Refused(node, "a replacement of this form", "It may have one of \\1 and \\&.")
    return new.replace("\\&", "\\0")


def _replaced(of: str, pattern: str, new: str, flags: str) -> Cell:
    call = f"regexp_replace(s[1], {pattern}, {standard_literal(new)}, '{flags}')"
    size, all_ = len(new.encode()), f"len(regexp_extract_all(s[1], {pattern}, 0, 's'))"
    return Cell(held((of,), f"strlen(s[1]) * {size} > {MOST_BYTES} and {all_} * {size} > {MOST_BYTES}", call), TEXT)


_REPLACEMENT = re.compile(r"[^\\]*(?:(\\1)|\\&)?[^\\]*")
_PARTS = "Translated are patterns without |, with one pair of parentheses at most, and nothing that repeats it."
_PATTERNS = "Translated are characters, . * + ? ( ) | ^ $ and classes such as [a-z0-9]; or use LIKE."
