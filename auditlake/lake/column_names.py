"""Column names in a history: PostgreSQL's names, except for a few that Delta does not support.

Delta and Spark do not distinguish `Name` from `name`, a history has columns of its own (`_from_lsn`, `_raw`, …), and
MERGE fails for a column name with a backtick. Only in these cases bytes are escaped as `~` and two hex digits: letters
that differ only in case, the first letter of a name that is reserved for the history, and the backtick. A `~` that
looks like the start of an escape is escaped too. All other names are stored unchanged, with any characters.

    "Name", name        ~4eame, name
    _part               ~5fpart
    "a`b"               a~60b
    "~5fpart"           ~7e5fpart

The Delta field's metadata has the source's name (`auditlake.name`). Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from auditlake.relation import Column

_LIKE_AN_ESCAPE = re.compile("~(?=[0-9a-f]{2})")


def as_stored(columns: Iterable[Column], reserved: frozenset[str]) -> tuple[Column, ...]:
    """Set the stored name of every column; `reserved` are the names of the history's own columns."""
    all_columns = tuple(columns)
    occurrences = Counter(column.name.casefold() for column in all_columns)
    return tuple(replace(column, stored_as=_stored(column.name, occurrences, reserved)) for column in all_columns)


def stored_beside(name: str, others: Iterable[Column], reserved: frozenset[str]) -> str | None:
    """Return the stored name of an added column; the history's other columns keep theirs.

    Returns None if the stored name is the source's name.
    """
    taken = {column.stored.casefold() for column in others}
    occurrences = Counter({name.casefold(): 2 if name.casefold() in taken else 1})
    stored = _stored(name, occurrences, reserved)
    if (stored or name).casefold() in taken:  # all lower case, so no letter was escaped, and the name is taken
        stored = _first_escaped(_unambiguous(name))
    return stored


def _stored(name: str, occurrences: Counter[str], reserved: frozenset[str]) -> str | None:
    stored = _unambiguous(name)
    if occurrences[name.casefold()] > 1:
        stored = "".join(char if char.casefold() == char else _escaped(char) for char in stored)
    if name.casefold() in reserved:
        stored = _first_escaped(stored)
    return None if stored == name else stored


def _unambiguous(name: str) -> str:
    """Escape backticks, and each `~` that looks like the start of an escape."""
    return _LIKE_AN_ESCAPE.sub("~7e", name).replace("`", _escaped("`"))


def _first_escaped(stored: str) -> str:
    return _escaped(stored[0]) + stored[1:]


def _escaped(character: str) -> str:
    return "".join(f"~{byte:02x}" for byte in character.encode())
