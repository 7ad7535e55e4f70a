"""Bounds of an answer: as many of its parts, in order, as have some characters, and whether others are left out.

A part is a row, an event, a change. It is returned whole or not at all, so no value of an answer is cut.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import pyarrow as pa
from pydantic import BaseModel

from auditlake.errors import NotAnswerable

ANSWER_CHARACTERS = 8 * 2**20
"""Of the values of an answer of the page: more than it shows, and the server holds several copies of each answer."""
_BESIDE = 16
"""Characters that a value counts beside its own: many short ones take memory, too."""

T = TypeVar("T")


class Room:
    """The characters that one answer may still have; `is_cut` once a part did not fit.

    At first it has `most`, by default `ANSWER_CHARACTERS`.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = self._left = ANSWER_CHARACTERS if most is None else most
        self.is_cut = False

    def takes(self, count: int) -> bool:
        """Return whether a part with so many characters fits; after one that does not, none does."""
        self._left -= count
        self.is_cut = self.is_cut or self._left < 0
        return not self.is_cut

    def fitting(self, parts: Iterable[T]) -> list[T]:
        """Return the first parts that fit."""
        found: list[T] = []
        for part in parts:
            if not self.takes(characters(part)):
                break
            found.append(part)
        return found

    def require(self, found: Sequence[object], part: str, hint: str) -> None:
        """Raise NotAnswerable if the first part, `part`, was too long alone; `hint` is how to read it."""
        if self.is_cut and not found:
            raise NotAnswerable(f"{part} has more than {self._most:,} characters", hint)


def characters(part: object) -> int:
    """Return how many characters the texts in a part of an answer have, and what its values take beside them."""
    match part:
        case str():
            return len(part) + _BESIDE
        case BaseModel():
            return sum(characters(value) for _, value in part)
        case dict():
            return sum(characters(name) + characters(value) for name, value in part.items())
        case list() | tuple():
            return sum(map(characters, part))
        case _:
            return _BESIDE


def first_fitting(entries: Iterable[T], most: int, most_characters: int) -> tuple[list[T], bool]:
    """Return the first entries that fit, and whether there are more; raises NotAnswerable if the first is too long."""
    room, following = Room(most_characters), iter(entries)
    fitting = room.fitting(islice(following, most))
    room.require(fitting, "the first entry", "Read fewer columns, or use the command line.")
    return fitting, room.is_cut or next(following, None) is not None


@dataclass(frozen=True, slots=True)
class First:
    """The first batches of an answer; `is_cut` if there are others although there is room for more rows."""

    batches: Sequence[pa.RecordBatch]
    is_cut: bool


def first_batches(batches: Iterator[pa.RecordBatch], most_rows: int) -> First:
    """Fetch the first rows, and no batch more once they have `ANSWER_CHARACTERS` bytes; end the iterator."""
    found: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            if size > ANSWER_CHARACTERS:
                return First(found, is_cut=True)
            found.append(batch.slice(0, most_rows - rows))
            rows, size = rows + found[-1].num_rows, size + found[-1].nbytes
            if rows >= most_rows:
                break
        return First(found, is_cut=False)
    finally:
        if isinstance(batches, Generator):
            batches.close()
