"""Many pgoutput payloads in one buffer, read by numpy at many places at once.

The gathers (`u8` … `i64`) take offsets into the buffer and trust them: whoever reads has checked that the bytes belong
to the message, through `require`. A violation names the first message at fault by raising `Refused`, which `columnar`
turns into a DecodeError; nothing here raises IndexError for bad bytes.

A buffer must be smaller than 2 GiB: offsets into it become Arrow's 32-bit ones.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from auditlake.errors import InvariantBroken

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Bools: TypeAlias = npt.NDArray[np.bool_]

_MAX_BUFFER_BYTES = 2**31 - 1


class Refused(Exception):  # not an error yet: it becomes a DecodeError with the message's place
    """The message with this number breaks the protocol; without `problem`, in itself."""

    def __init__(self, number: int, problem: str = "") -> None:
        super().__init__(number, problem)
        self.number = number
        self.problem = problem


class Frames:
    """Payload `i` is `buffer[starts[i]:ends[i]]`; payloads are in stream order and do not overlap."""

    def __init__(
        self, buffer: bytes | bytearray, starts: npt.NDArray[np.integer], ends: npt.NDArray[np.integer]
    ) -> None:
        self.buffer = buffer
        self.bytes: Bytes = np.frombuffer(buffer, np.uint8)
        self.starts: Ints = starts.astype(np.int64)
        self.ends: Ints = ends.astype(np.int64)
        self._check_bounds()
        require(self.starts < self.ends, np.arange(self.count))
        self.tags = self.u8(self.starts)

    def _check_bounds(self) -> None:
        size = len(self.buffer)
        if size > _MAX_BUFFER_BYTES:
            raise InvariantBroken(f"buffer of {size} bytes, need at most {_MAX_BUFFER_BYTES}")
        edges = np.stack([self.starts, self.ends], axis=1).ravel()
        inside = edges.size == 0 or (edges[0] >= 0 and edges[-1] <= size)
        if not inside or (edges[1:] < edges[:-1]).any():
            raise InvariantBroken(f"payload bounds are not in order inside the buffer of {size} bytes")

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self.starts.size

    def payload(self, number: int) -> bytes:
        """One whole message."""
        return bytes(self.buffer[self.starts[number] : self.ends[number]])

    def u8(self, at: Ints) -> Bytes:
        """Read one byte at each offset."""
        return self.bytes[at]

    def u16(self, at: Ints) -> Ints:
        """Read two bytes at each offset."""
        return self._gather(">u2", at)

    def u32(self, at: Ints) -> Ints:
        """Read four bytes at each offset."""
        return self._gather(">u4", at)

    def i64(self, at: Ints) -> Ints:
        """Read eight bytes at each offset; an LSN past 2^63 comes out negative."""
        return self._gather(">i8", at)

    def _gather(self, form: str, at: Ints) -> Ints:
        if at.size == 0:
            return np.empty(0, np.int64)
        # A view of the number that begins at every single byte; no copy.
        places = self.bytes.size - np.dtype(form).itemsize + 1
        view = np.ndarray((places,), form, self.bytes, strides=(1,))
        return view[at].astype(np.int64)


def require(fine: Bools, numbers: Ints, problem: str = "") -> None:
    """Refuse the first of the messages `numbers` where `fine` is false."""
    if not fine.all():
        raise Refused(int(numbers[int(np.argmin(fine))]), problem)
