"""A place in one payload: every read checks its bounds.

A read returns a value and moves on, or raises DecodeError with the message's tag, the offset, and what was needed
there. Bytes of rows never get into an error.
"""

import struct
from datetime import UTC, datetime, timedelta

from auditlake.errors import DecodeError
from auditlake.lsn import Lsn

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Zero of the times on the wire, which count microseconds."""
MIN_TIME_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
MAX_TIME_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
MAX_LSN = 2**63 - 1
"""LSNs are BIGINT in the lake; a server would need centuries at full speed to get past this."""

_U8, _U16, _U32, _I32, _U64, _I64 = (struct.Struct(f) for f in (">B", ">H", ">I", ">i", ">Q", ">q"))


class Cursor:
    """Reads one message from its tag to its last byte."""

    __slots__ = ("_data", "_offset")

    def __init__(self, payload: bytes) -> None:
        self._data = payload
        self._offset = 0

    def error(self, problem: str) -> DecodeError:
        """Build the error that says `problem` about this message at this place."""
        tag = ascii(chr(self._data[0])) if self._data else "without a tag"
        return DecodeError(f"pgoutput message {tag} at offset {self._offset}: {problem}")

    def take(self, size: int) -> bytes:
        """Read `size` bytes."""
        end = self._offset + size
        if end > len(self._data):
            raise self.error(f"need {size} bytes, have {self.left}")
        taken = self._data[self._offset : end]
        self._offset = end
        return taken

    @property
    def left(self) -> int:
        """How many bytes follow."""
        return len(self._data) - self._offset

    def finish(self) -> None:
        """Check that nothing is left."""
        if self.left:
            raise self.error(f"need the end of the message, have {self.left} more bytes")

    def _number(self, form: struct.Struct) -> int:
        (number,) = form.unpack(self.take(form.size))
        return int(number)

    def u8(self) -> int:
        return self._number(_U8)

    def u16(self) -> int:
        return self._number(_U16)

    def u32(self) -> int:
        return self._number(_U32)

    def i32(self) -> int:
        return self._number(_I32)

    def kind(self) -> str:
        """Read one byte that stands for a letter."""
        return chr(self.u8())

    def flags(self, known: int) -> int:
        """Read a byte of flags, none of them unknown."""
        flags = self.u8()
        if flags & ~known:
            raise self.error(f"need no flags beside {known:#04x}, have {flags:#04x}")
        return flags

    def lsn(self) -> Lsn:
        """Read a position in the write-ahead log."""
        lsn = self._number(_U64)
        if lsn > MAX_LSN:
            raise self.error(f"need an LSN of at most {Lsn(MAX_LSN)}, have {Lsn(lsn)}")
        return Lsn(lsn)

    def time(self) -> datetime:
        """Read a time; one outside the years 1 to 9999 cannot be a commit's."""
        microseconds = self._number(_I64)
        if not MIN_TIME_US <= microseconds <= MAX_TIME_US:
            raise self.error(f"need a time in the years 1 to 9999, have {microseconds} us since 2000")
        return EPOCH + timedelta(microseconds=microseconds)

    def text(self, size: int) -> str:
        """Read `size` bytes of UTF-8."""
        raw = self.take(size)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            # from None: the codec's error quotes the value.
            raise self.error(f"need UTF-8 in the {size} bytes before it") from None

    def name(self) -> str:
        """Read text that ends in a zero byte."""
        end = self._data.find(b"\0", self._offset)
        if end < 0:
            raise self.error("need a zero byte after a name, have none")
        name = self.text(end - self._offset)
        self._offset = end + 1
        return name
