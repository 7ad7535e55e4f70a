"""Operators of json: each result is a part of the text as it was written. Pure.

The text is valid, because PostgreSQL has read it. Of members with one name the last one counts.

Authority: src/backend/utils/adt/jsonfuncs.c, `get_worker`
"""

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from auditlake.cancellation import cancellable_loop
from auditlake.query.postgres.documents import PLACE
from auditlake.values.numeric_text import Failed

_STRING = r'"(?:[^"\\]++|\\.)*+"'  # possessive: to go back would take 130 bytes for each character
_TOKEN = re.compile(rf"{_STRING}|[{{}}\[\],]")
_NAMED = re.compile(rf"({_STRING})\s*:\s*")
_BLANKS = " \t\n\r"


def _string(written: str) -> str:
    """Return the text that a string means; raises Failed."""
    text: str = json.loads(written)
    if "\0" in text or any("\ud800" <= each <= "\udfff" for each in text):
        raise Failed("unsupported Unicode escape sequence")
    return text


def _parts(text: str) -> list[str]:
    """Divide an object or an array at the commas that are not in a part of it; a scalar has no parts."""
    depth, cuts = 0, []
    for found in cancellable_loop(_TOKEN.finditer(text)):
        mark = found[0]
        if mark[0] == '"':
            continue
        depth -= mark in "}]"
        if depth == (mark == ","):
            cuts.append(found.span())
        depth += mark in "{["
    parts = [text[end:start].strip(_BLANKS) for (_, end), (start, _) in pairwise(cuts)]
    return [] if parts == [""] else parts


def _member(text: str, key: str) -> str | None:
    if not text.startswith("{"):
        return None
    named = ((found, part) for part in _parts(text) if (found := _NAMED.match(part)))
    return {_string(found[1]): part[found.end() :] for found, part in named}.get(key)


def _element(text: str, place: int) -> str | None:
    parts = _parts(text) if text.startswith("[") else []
    return parts[place] if -len(parts) <= place < len(parts) else None


def _at(text: str, path: Sequence[str]) -> str | None:
    found: str | None = text
    for step in cancellable_loop(path):
        if found is None:
            return None
        if found.startswith("["):
            found = _element(found, int(step)) if PLACE.fullmatch(step) else None
        else:
            found = _member(found, step)
    return found


def _text(found: str | None) -> str | None:
    if found is None or found == "null":
        return None
    return _string(found) if found.startswith('"') else found


def _operator(step: Callable[[str, Any], str | None], shown: Callable[[str | None], str | None]) -> Callable[..., Any]:
    def found(text: str, by: Any) -> str | None:  # noqa: ANN401 - a key, a place or a path
        for escaped in cancellable_loop(_TOKEN.finditer(text) if "\\u" in text else ()):
            if "\\u" in escaped[0]:  # PostgreSQL reads the strings of the whole text
                _string(escaped[0])
        return shown(step(text.strip(_BLANKS), by))

    return found


def _unless_null(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator that does not read the text if its path has a NULL."""

    def found(text: str, path: Sequence[str | None]) -> str | None:
        return None if None in path else operator(text, path)

    return found


def _same(found: str | None) -> str | None:
    return found


member, member_text = (_operator(_member, shown) for shown in (_same, _text))
"""`->` and `->>` with a key."""
element, element_text = (_operator(_element, shown) for shown in (_same, _text))
"""`->` and `->>` with a place."""
at_path, at_path_text = (_unless_null(_operator(_at, shown)) for shown in (_same, _text))
"""`#>` and `#>>`."""
