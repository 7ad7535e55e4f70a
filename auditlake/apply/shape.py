"""What a tail holds, as far as the plan of the fold depends on it.

Every flag may be true without need: the fold is then slower, never different.
"""

from dataclasses import dataclass

from auditlake.relation import Column


@dataclass(frozen=True, slots=True)
class TailShape:
    """What may be in the tail of one table; `unchanged` are positions of columns that an UPDATE left out as TOAST.

    `has_key_change`: an UPDATE came with an old tuple. `old_is_whole`: all old tuples are of REPLICA IDENTITY FULL.
    """

    rows: int
    inserts_only: bool
    has_truncate: bool
    has_key_change: bool
    old_is_whole: bool
    unchanged: frozenset[int]

    @classmethod
    def anything(cls, rows: int, columns: tuple[Column, ...]) -> "TailShape":
        """The shape that promises nothing."""
        return cls(
            rows=rows,
            inserts_only=False,
            has_truncate=True,
            has_key_change=True,
            old_is_whole=False,
            unchanged=frozenset(range(len(columns))),
        )
