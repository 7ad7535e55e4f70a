"""What a source's columns are called in a history: as in PostgreSQL, but for a few that Delta cannot have so.

Delta and Spark do not tell `Name` from `name`, a history's own columns (`_from_lsn`, `_raw`, …) are beside the
source's, and no MERGE can name a column with a backtick. There, and only there, bytes are written as `~` and two hex
digits: the letters whose case is the difference, the first letter of a name that the history needs itself, the
backtick. A name that could be read as such a spelling has its `~` written so too. Every other name, whatever
characters are in it, stays as it is.

    "Name", name        ~4eame, name
    _part               ~5fpart
    "a`b"               a~60b
    "~5fpart"           ~7e5fpart

The field's metadata keeps the source's own name (`auditlake.name`). Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from auditlake.relation import Column

_LIKE_AN_ESCAPE = re.compile("~(?=[0-9a-f]{2})")


def as_stored(columns: Iterable[Column], reserved: frozenset[str]) -> tuple[Column, ...]:
    """Give every column the name it has in a history; `reserved` are those that the history keeps for itself."""
    given = tuple(columns)
    spellings = Counter(column.name.casefold() for column in given)
    return tuple(replace(column, stored_as=_stored(column.name, spellings, reserved)) for column in given)


def stored_beside(name: str, others: Iterable[Column], reserved: frozenset[str]) -> str | None:
    """Give a column that was added its name beside those that the history has, whose names stay as they are.

    None where it is the source's own.
    """
    taken = {column.stored.casefold() for column in others}
    spellings = Counter({name.casefold(): 2 if name.casefold() in taken else 1})
    stored = _stored(name, spellings, reserved)
    if (stored or name).casefold() in taken:  # in lower case throughout: another spelling has taken it
        stored = _first_escaped(_unambiguous(name))
    return stored


def _stored(name: str, spellings: Counter[str], reserved: frozenset[str]) -> str | None:
    stored = _unambiguous(name)
    if spellings[name.casefold()] > 1:
        stored = "".join(each if each.casefold() == each else _escaped(each) for each in stored)
    if name.casefold() in reserved:
        stored = _first_escaped(stored)
    return None if stored == name else stored


def _unambiguous(name: str) -> str:
    """The name without what looks like an escape, or would end a quoted name."""
    return _LIKE_AN_ESCAPE.sub("~7e", name).replace("`", _escaped("`"))


def _first_escaped(stored: str) -> str:
    return _escaped(stored[0]) + stored[1:]


def _escaped(character: str) -> str:
    return "".join(f"~{byte:02x}" for byte in character.encode())
