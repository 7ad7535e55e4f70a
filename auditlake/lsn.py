"""Log sequence numbers: positions in PostgreSQL's write-ahead log.

`Lsn` is the 64-bit byte position as an `int` (so it stores as BIGINT and compares exactly) that reads and prints
the way PostgreSQL does: two hexadecimal halves, `16/B374D848`. Parsing is strict; nothing turns into zero.

Authority: postgresql.org/docs/current/datatype-pg-lsn.html
"""

import re

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class Lsn(int):
    """A byte position in the write-ahead log."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Lsn":
        """Read `16/B374D848`.

        Raises ValueError for anything else.
        """
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not an LSN: {text!r}, need two hexadecimal halves such as 16/B374D848")
        return cls((int(match[1], 16) << 32) | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn({str(self)!r})"
