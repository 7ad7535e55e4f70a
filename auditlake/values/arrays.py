r"""The text of a one-dimensional array, as PostgreSQL prints it: taken apart and put together. Pure.

    {1,2,NULL}   {"a b","say \"hi\"",""}   {}      read by `elements`, written by `array_text`
    {{1},{2}}    [0:1]={1,2}                       None: more dimensions, another lower bound

An element is quoted where it is empty, the word NULL, or has a brace, comma, quote, backslash or space in it.

Authority: postgresql.org/docs/current/arrays.html, "Array Input and Output Syntax"; src/backend/utils/adt/arrayfuncs.c
"""

import re
from collections.abc import Iterable

_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TO_ESCAPE = re.compile(r'(["\\])')
_TO_QUOTE = re.compile(r'[{},"\\ \t\n\r\v\f]')


def elements(text: str) -> list[str | None] | None:
    """Take an array's text apart; None where it is not one-dimensional from 1."""
    if text[0] != "{" or text[1] == "{":
        return None
    found = _ELEMENT.finditer(text, 1, len(text) - 1)
    return [_element(quoted, plain) for quoted, plain in (match.groups() for match in found)]


def _element(quoted: str | None, plain: str | None) -> str | None:
    if quoted is None:
        return None if plain == "NULL" else plain
    return _ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted


def array_text(texts: Iterable[str | None]) -> str:
    """Put the texts of the elements together."""
    return "{" + ",".join("NULL" if text is None else _quoted(text) for text in texts) + "}"


def _quoted(text: str) -> str:
    if text and text.upper() != "NULL" and not _TO_QUOTE.search(text):
        return text
    return '"' + _TO_ESCAPE.sub(r"\\\1", text) + '"'
