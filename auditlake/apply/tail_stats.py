"""Tail statistics on which the fold's plan depends.

A flag that is true without need makes the fold slower, never different.
"""

from dataclasses import dataclass

from auditlake.relation import Column


@dataclass(frozen=True, slots=True)
class TailShape:
    """Possible contents of one table's tail; `unchanged` are the columns that an UPDATE omits as TOAST, by position.

    `has_key_change`: an UPDATE has an old tuple. `old_is_whole`: all old tuples are of REPLICA IDENTITY FULL.
    """

    rows: int
    inserts_only: bool
    has_truncate: bool
    has_key_change: bool
    old_is_whole: bool
    unchanged: frozenset[int]

    @classmethod
    def anything(cls, rows: int, columns: tuple[Column, ...]) -> "TailShape":
        """Return the shape that excludes nothing."""
        return cls(
            rows=rows,
            inserts_only=False,
            has_truncate=True,
            has_key_change=True,
            old_is_whole=False,
            unchanged=frozenset(range(len(columns))),
        )
