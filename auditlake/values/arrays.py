r"""Text of one-dimensional arrays in PostgreSQL's output format: parse and format. Pure.

    {1,2,NULL}   {"a b","say \"hi\"",""}   {}      parsed by `elements`, formatted by `array_text`
    {{1},{2}}    [0:1]={1,2}                       None: several dimensions, a lower bound other than 1

An element is quoted if it is empty, the word NULL, or contains a brace, comma, quote, backslash or white space.

psycopg's loader parses eight times as fast (80,000 arrays in 0.10 s instead of 0.74 s; 2026-11-22, bench/own_code.py).
It is not used, because this package is pure and the audit commands, which start without a driver, parse few arrays.

Authority: postgresql.org/docs/current/arrays.html, "Array Input and Output Syntax"; src/backend/utils/adt/arrayfuncs.c
"""

import re
from collections.abc import Iterable

_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TO_ESCAPE = re.compile(r'(["\\])')
_TO_QUOTE = re.compile(r'[{},"\\ \t\n\r\v\f]')


def elements(text: str) -> list[str | None] | None:
    """Parse an array's text; None unless it has one dimension and the lower bound 1."""
    if text[0] != "{" or text[1] == "{":
        return None
    matches = _ELEMENT.finditer(text, 1, len(text) - 1)
    return [_element(quoted, plain) for quoted, plain in (match.groups() for match in matches)]


def _element(quoted: str | None, plain: str | None) -> str | None:
    if quoted is None:
        return None if plain == "NULL" else plain
    return _ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted


def array_text(texts: Iterable[str | None]) -> str:
    """Format an array of elements' texts."""
    return "{" + ",".join("NULL" if text is None else _quoted(text) for text in texts) + "}"


def _quoted(text: str) -> str:
    if text and text.upper() != "NULL" and not _TO_QUOTE.search(text):
        return text
    return '"' + _TO_ESCAPE.sub(r"\\\1", text) + '"'
