"""Column names in a history: PostgreSQL's names, except for a few that Delta does not support.

Delta and Spark do not distinguish `Name` from `name`, a history has columns of its own (`_from_lsn`, `_raw`, …), and
MERGE fails for a column name with a backtick, or with a name that it gives to a column of its own. Only in these cases
bytes are escaped as `~` and two hex digits: letters that differ only in case, the first letter of a name that is
reserved for the history or for MERGE, and the backtick. A `~` that looks like the start of an escape is escaped too.
All other names are stored unchanged, with any characters.

    "Name", name        ~4eame, name
    _part               ~5fpart
    "a`b"               a~60b
    "~5fpart"           ~7e5fpart

A history keeps the columns of the past. A column whose stored name is taken by an earlier one gets a number:

    a, dropped and added again, or of another type      a, a~2

The Delta field's metadata has the source's name (`auditlake.name`). Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from auditlake.lake.history import RESERVED
from auditlake.lsn import Lsn
from auditlake.relation import Column, in_order

_ESCAPED = re.compile("(?:~[0-9a-f]{2})+")
_OF_MERGE = frozenset(
    {
        *("deletionvectorid", "dvfilepath", "filepath", "rowindexcol", "_file_name_", "_metadata"),
        *("_row_dropped_", "_row_id_", "_source_row_present_", "_target_row_present_"),
    }
)
"""Names for which MERGE or REPLACE ON of Delta 4.4 fails as ambiguous, in lower case (`test_names_of_merge`)."""
_LIKE_AN_ESCAPE = re.compile("~(?=[0-9a-f]{2})")


def as_stored(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Set the stored name of every column."""
    all_columns = tuple(columns)
    occurrences = Counter(column.name.casefold() for column in all_columns)
    return tuple(replace(column, stored_as=_stored(column.name, occurrences, RESERVED)) for column in all_columns)


def stored_beside(name: str, others: Sequence[Column], reserved: frozenset[str] = RESERVED) -> str | None:
    """Return the stored name of an added column beside the history's; None if it is the source's name."""
    taken = {column.stored.casefold() for column in others}
    occurrences = Counter({name.casefold(): 2 if name.casefold() in taken else 1})
    stored = _stored(name, occurrences, reserved)
    if (stored or name).casefold() in taken:  # all lower case, so no letter was escaped, and the name is taken
        stored = _first_escaped(_unambiguous(name))
    if (stored or name).casefold() in taken or name in {_unescaped(column.stored) for column in others}:
        return next(each for n in count(2) if (each := f"{_unambiguous(name)}~{n}").casefold() not in taken)
    return stored


def shown_as(columns: Sequence[Column]) -> dict[str, str]:
    """Return the name of each column in queries, by stored name, escaped only if Spark would refuse it."""
    occurrences = Counter(column.name.casefold() for column in columns)
    shown = {
        column.stored: column.name if _is_of_merge(column.name, occurrences) else column.stored
        for column in columns
        if _unescaped(column.stored) == column.name
    }
    for column in columns:
        if column.stored not in shown:
            beside = [Column(name, 0, 0, key=False) for name in shown.values()]
            shown[column.stored] = stored_beside(column.name, beside) or column.name
    return {column.stored: shown[column.stored] for column in columns}


def shown_in_state(columns: Sequence[Column], *, raw: bool) -> dict[str, str]:
    """Return the name under which a state shows each of its columns, by stored name; `raw`: beside `_raw`.

    It is the source's name, because a state has no columns of the period. It is escaped only if it has a backtick, or
    differs from another one in case alone, which Spark would not accept.
    """
    occurrences = Counter(column.name.casefold() for column in columns)
    reserved = frozenset({"_raw"} if raw else ())
    occurrences.update(reserved)
    names = {c.stored: c.name for c in columns if "`" not in c.name and occurrences[c.name.casefold()] == 1}
    for column in columns:
        if column.stored not in names:
            beside = [Column(name, 0, 0, key=False) for name in names.values()]
            taken = {name.casefold() for name in names.values()}
            is_free = _unescaped(column.stored) == column.name and column.stored.casefold() not in taken
            other = column.stored if is_free else stored_beside(column.name, beside, reserved)
            names[column.stored] = other or column.name
    return {column.stored: names[column.stored] for column in columns}


def columns_of_versions(physical: Sequence[Column], lsn: Lsn) -> tuple[tuple[Column, ...], dict[str, str]]:
    """Return the columns that versions up to `lsn` have, and the name of each by stored name.

    First those that the table has at `lsn`, as `shown_as` names them, then those of the past under their last name,
    with a number if that is taken.
    """
    known = [column.at(lsn) for column in physical if column.since is None or column.since <= lsn]
    now = in_order([column for column in known if column.exists_at(lsn)])
    names = shown_as(now)
    past = [column for column in known if not column.exists_at(lsn)]
    for column in past:
        beside = [Column(name, 0, 0, key=False) for name in names.values()]
        names[column.stored] = stored_beside(column.name, beside) or column.name
    return (*now, *past), names


def _stored(name: str, occurrences: Counter[str], reserved: frozenset[str]) -> str | None:
    stored = _unambiguous(name)
    if occurrences[name.casefold()] > 1:
        stored = "".join(char if char.casefold() == char else _escaped(char) for char in stored)
    if name.casefold() in reserved | _OF_MERGE:
        stored = _first_escaped(stored)
    return None if stored == name else stored


def _is_of_merge(name: str, occurrences: Counter[str]) -> bool:
    return name.casefold() in _OF_MERGE and occurrences[name.casefold()] == 1


def _unambiguous(name: str) -> str:
    """Escape backticks, and each `~` that looks like the start of an escape."""
    return _LIKE_AN_ESCAPE.sub("~7e", name).replace("`", _escaped("`"))


def _first_escaped(stored: str) -> str:
    return _escaped(stored[0]) + stored[1:]


def _escaped(character: str) -> str:
    return "".join(f"~{byte:02x}" for byte in character.encode())


def _unescaped(stored: str) -> str:
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace("~", "")).decode(errors="replace"), stored)
