"""The Relation messages of one streamed transaction: which of them still count, and when they came.

A transaction's descriptions of a relation are stacked, because a rollback of a subtransaction takes the newest away.
The *epoch* of a description grows whenever another transaction has described something in between; so of two that are
in different transactions the one with the greater epoch came later.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Description:
    """A plain Relation message, its OID, its number among the transaction's messages, and when it came."""

    number: int
    epoch: int
    oid: int
    payload: bytes


class Descriptions:
    """The Relation messages of one transaction."""

    def __init__(self) -> None:
        self._in_order: list[Description] = []
        self._of: dict[int, list[Description]] = {}

    def add(self, described: Description) -> None:
        """Take the next one; a mere repetition is not kept, for the server repeats itself after every rollback."""
        stack = self._of.setdefault(described.oid, [])
        if stack and (stack[-1].epoch, stack[-1].payload) == (described.epoch, described.payload):
            return
        stack.append(described)
        self._in_order.append(described)

    def cut(self, number: int) -> None:
        """Forget those from message `number` on."""
        while self._in_order and self._in_order[-1].number >= number:
            self._of[self._in_order.pop().oid].pop()

    def latest(self) -> Iterator[Description]:
        """Give the last one of each relation."""
        return (stack[-1] for stack in self._of.values() if stack)
