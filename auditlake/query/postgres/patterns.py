"""Patterns of LIKE as regular expressions, which DuckDB matches in a time that grows with text and pattern. Pure.

Its LIKE tries every place for each `%`, and nothing interrupts it within a row.

Authority: src/backend/utils/adt/like_match.c
"""

import re
from collections.abc import Iterator

from auditlake.query.postgres.numbers import Failed

_TAIL = re.compile(r"%*$")
_RUNS = re.compile(r"%+")


def has_few_places(pattern: str) -> bool:
    """Return whether DuckDB's LIKE goes through a text once: `%` is at the end, and in one other place at most."""
    return len(_RUNS.findall(_TAIL.sub("", pattern))) <= 1


def regular(pattern: str, escape: str) -> str:
    """Return the regular expression of a pattern; `escape` is empty if there is none.

    Raises Failed.
    """
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


def lowered(text: str) -> str:
    """Return a text as DuckDB's lower does: a character becomes one character."""
    return "".join(each.lower()[0] for each in text)
