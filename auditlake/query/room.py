"""How long the translation of a statement may become, whatever its form.

The text of an operand appears several times in that of its operator, such as the check of a quotient, so a chain of
twenty operators can need gigabytes. Every expression that is translated takes its characters from the room of its
statement. Pure.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHARACTERS = 32 << 20
"""Of all expressions of a statement together, also of those inside of others."""
_LONGEST = 1 << 19
"""What DuckDB plans in a second or less, in which nothing interrupts it."""


class TooLong(Exception):
    """The translation of a statement needs more room than it has."""


_left: ContextVar[list[int] | None] = ContextVar("_left", default=None)


@contextmanager
def limited() -> Iterator[None]:
    """Translate one statement in the block; raises TooLong."""
    token = _left.set([_CHARACTERS])
    try:
        yield
    finally:
        _left.reset(token)


def take(text: str) -> None:
    """Take the room of an expression; raises TooLong."""
    left = _left.get()
    if left is None:
        return
    left[0] -= len(text)
    if left[0] < 0:
        raise TooLong


def require_plannable(text: str) -> None:
    """Check the length of a whole statement; raises TooLong."""
    if len(text) > _LONGEST:
        raise TooLong
