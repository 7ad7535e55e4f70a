"""Session of a lake: what a process keeps of it from one question, batch or commit to the next.

A command, the page, the Python API or the MCP server begins a session when it opens a lake. The lake has it, and in an
object store every place in the lake has it. A module keeps its own part there, an instance of a class of its own, and
keeps nothing of a lake anywhere else:

    lake.session.part(_Asked)

An answer never depends on it: a session that is copied or sent to another process is an empty one.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

_Part = TypeVar("_Part")
_Value = TypeVar("_Value")
_NOTHING: tuple[None, int] = (None, 0)


class Session:
    """One part of each class; threads may share it. `identity` is equal to that of no other session."""

    def __init__(self) -> None:
        self.identity = object()
        self._parts: dict[type, object] = {}
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type["Session"], tuple[()]]:
        return Session, ()

    def part(self, kind: type[_Part], make: Callable[[], _Part] | None = None) -> _Part:
        """Return the part of a class; `make` makes it the first time, by default without arguments."""
        if kind not in self._parts:
            with self._lock:
                if kind not in self._parts:
                    self._parts[kind] = (make or kind)()
        return cast("_Part", self._parts[kind])

    def forget(self) -> None:
        """Become the session that another process would begin."""
        with self._lock:
            self._parts.clear()


class Kept:
    """The values used last, up to a total weight; one above `most_each` is not kept. Threads may share it."""

    def __init__(self, most: int, most_each: int | None = None) -> None:
        self._most, self._most_each = most, most if most_each is None else most_each
        self._weight = 0
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> Any | None:  # noqa: ANN401 - of the caller's type
        """Return what is kept under a key; None if nothing is."""
        return self._used(key)[0]

    def _used(self, key: Hashable) -> tuple[Any, int]:
        with self._lock:
            if key not in self._values:
                return _NOTHING
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Hashable, value: object, weight: int) -> None:
        """Keep a value in the place of any other under this key."""
        with self._lock:
            self._weight -= self._values.pop(key, _NOTHING)[1]
            if weight > self._most_each:
                return
            self._values[key] = value, weight
            self._weight += weight
            while self._weight > self._most:
                self._weight -= self._values.popitem(last=False)[1][1]

    def get(self, key: Hashable, make: Callable[[], _Value], weigh: Callable[[_Value], int]) -> _Value:
        """Return the value kept under a key; else make one, and keep it."""
        if (used := self._used(key)) is not _NOTHING:
            return cast("_Value", used[0])
        made = make()
        self.put(key, made, weigh(made))
        return made
