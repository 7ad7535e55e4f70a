"""Log sequence numbers: positions in PostgreSQL's write-ahead log.

`Lsn` is the 64-bit byte position as an `int` (so it is stored as BIGINT and compared exactly), parsed and formatted
as in PostgreSQL: two hexadecimal halves, `16/B374D848`. Parsing is strict: invalid text raises and never becomes zero.

Authority: postgresql.org/docs/current/datatype-pg-lsn.html
"""

import re

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class Lsn(int):
    """A byte position in the write-ahead log."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Lsn":
        """Parse text such as `16/B374D848`; raises ValueError for any other text."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not an LSN: {text!r}, need two hexadecimal halves such as 16/B374D848")
        return cls((int(match[1], 16) << 32) | int(match[2], 16))

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn({str(self)!r})"


LAST_LSN = Lsn((1 << 63) - 1)
"""The greatest LSN that a BIGINT holds: a server would need centuries at full speed to reach it."""
