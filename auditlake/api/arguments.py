"""Arguments of the Python API: their types, checked before the lake is read.

A number in the place of a text would select nothing, and an empty answer looks like a true one. Errors name the
argument and its type, not its value, which may be one of a row.
"""

from collections.abc import Iterable
from typing import Any

from auditlake.errors import BadUsage

_MOST = 2**63
Condition = tuple[str, str] | tuple[str, str, Any]


def require_texts(**given: object) -> None:
    """Require that arguments are texts; raises BadUsage."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise wrong_type(name, value, "a text")


def require_texts_or_none(**given: object) -> None:
    """Require that arguments are texts or None; raises BadUsage."""
    require_texts(**{name: value for name, value in given.items() if value is not None})


def require_count(name: str, count: object) -> None:
    """Require a number of entries, or None, which is all; raises BadUsage."""
    if count is None:
        return
    if not isinstance(count, int) or isinstance(count, bool):
        raise wrong_type(name, count, "a whole number or None")
    if not 0 <= count < _MOST:  # Python does not print every number
        raise BadUsage(f"{name} is too large or negative, need a number from 0 to 2^63 - 1", "A limit of None is all.")


def require_flags(**given: object) -> None:
    """Require that arguments are True or False: any text would be true. Raises BadUsage."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise wrong_type(name, value, "True or False")


def given_names(name: str, names: object) -> tuple[str, ...]:
    """Return names: a text is one, not one for each of its characters. Raises BadUsage."""
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Iterable):
        raise wrong_type(name, names, "a text or several")
    found = tuple(names)
    require_texts(**{f"{name}[{number}]": each for number, each in enumerate(found)})
    return found


def given_conditions(where: object) -> tuple[Condition, ...]:
    """Return conditions (column, op, value), without a value for `is null`; raises BadUsage."""
    found = tuple(where) if isinstance(where, Iterable) else (where,)
    for number, each in enumerate(found):
        if not isinstance(each, tuple | list) or len(each) not in {2, 3}:
            raise wrong_type(f"where[{number}]", each, "(column, op, value)")
        require_texts(**{f"where[{number}][{place}]": each[place] for place in (0, 1)})
    return found


def wrong_type(name: str, value: object, needed: str) -> BadUsage:
    """Return the error for an argument of another type than is needed."""
    return BadUsage(f"{name} is of type {type(value).__name__}, need {needed}", "docs/api.md has the arguments.")
