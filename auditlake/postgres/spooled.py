"""One streamed transaction in the spool: its plain messages in order, the first of them in a file, the rest in memory.

The file is made when the first messages leave memory, has no name, and shrinks when a rollback cuts the transaction.
Messages are numbered from 0.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from auditlake.errors import InvariantBroken, LakeUnusable
from auditlake.pgoutput.descriptions import Descriptions
from auditlake.pgoutput.frames import Ints
from auditlake.pgoutput.streamed import Segment, join

_OVERHEAD_BYTES = 512
_PER_FRAME_BYTES = 24
_PIECE_BYTES = 4 << 20
"""What is written and read at a time: large beside a seek, small beside the memory of capture."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Messages from `first` on; in the file at `offset` where `segment` is None. `newest`: highest sub up to here."""

    first: int
    count: int
    newest: int
    segment: Segment | None
    offset: int = 0
    data_bytes: int = 0

    @property
    def memory_bytes(self) -> int:
        if self.segment is None:
            return 0
        return len(self.segment.data) + _PER_FRAME_BYTES * self.count + _OVERHEAD_BYTES


class SpooledTransaction:
    """The messages of one transaction that have not been rolled back."""

    def __init__(self, xid: int, folder: Path) -> None:
        self.xid = xid
        self.memory_bytes = 0
        self.descriptions = Descriptions()
        self._folder = folder
        self._pieces: list[_Piece] = []
        self._file: IO[bytes] | None = None

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self._pieces[-1].first + self._pieces[-1].count if self._pieces else 0

    @property
    def file_bytes(self) -> int:
        """How large the file is."""
        return 0 if self._file is None else self._file.seek(0, os.SEEK_END)

    def add(self, segment: Segment) -> None:
        """Append messages."""
        if not segment.count:
            return
        newest = int(segment.subs.max())
        if self._pieces:
            newest = max(newest, self._pieces[-1].newest)
        piece = _Piece(self.count, segment.count, newest, segment)
        self.memory_bytes += piece.memory_bytes
        self._pieces.append(piece)

    def cut(self, sub: int) -> None:
        """Drop everything from the first message of the subtransaction `sub` on."""
        found: tuple[int, int] | None = None
        for place in reversed(range(len(self._pieces))):
            if self._pieces[place].newest < sub:
                break  # nor is it in those before
            hits = np.flatnonzero(self._subs(self._pieces[place]) == sub)
            if hits.size:
                found = place, int(hits[0])
        if found is not None:
            self._cut_at(*found)

    def _cut_at(self, place: int, keep: int) -> None:
        dropped = self._pieces[place:]
        kept = self._read(dropped[0]).head(keep)
        del self._pieces[place:]
        self.memory_bytes -= sum(piece.memory_bytes for piece in dropped)
        if dropped[0].segment is None and self._file is not None:
            self._file.truncate(dropped[0].offset)
        self.descriptions.cut(dropped[0].first + keep)
        self.add(kept)

    def spill(self) -> None:
        """Move what is in memory to the file.

        Raises LakeUnusable where it cannot be written.
        """
        in_memory = [piece for piece in self._pieces if piece.segment is not None]
        del self._pieces[len(self._pieces) - len(in_memory) :]
        self.memory_bytes = 0
        group: list[_Piece] = []
        for piece in in_memory:
            group.append(piece)
            if sum(each.memory_bytes for each in group) >= _PIECE_BYTES:
                self._pieces.append(self._write(group))
                group = []
        if group:
            self._pieces.append(self._write(group))

    def _write(self, group: list[_Piece]) -> _Piece:
        segment = join([piece.segment for piece in group if piece.segment is not None])
        try:
            if self._file is None:
                # Unbuffered: pieces are large, and nothing is left to fail when it is closed.
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  # `close` does
            offset = self._file.seek(0, os.SEEK_END)
            for part in (segment.data, *map(_packed, (segment.starts, segment.ends, segment.subs))):
                _write_all(self._file, part)
        except OSError as exc:
            raise not_writable(self._folder, exc) from exc
        return _Piece(group[0].first, segment.count, group[-1].newest, None, offset, len(segment.data))

    def _read(self, piece: _Piece) -> Segment:
        if piece.segment is not None:
            return piece.segment
        data = self._at(piece.offset, piece.data_bytes)
        numbers = self._numbers(piece, 0, 3).reshape(3, piece.count)
        return Segment(data, *numbers)

    def _subs(self, piece: _Piece) -> Ints:
        return piece.segment.subs if piece.segment is not None else self._numbers(piece, 2, 1)

    def _numbers(self, piece: _Piece, skip: int, columns: int) -> Ints:
        """Read the columns `starts`, `ends` and `subs`, or some of them, which stand behind the data."""
        size = 4 * piece.count
        raw = self._at(piece.offset + piece.data_bytes + skip * size, columns * size)
        return np.frombuffer(raw, np.uint32).astype(np.int64)

    def _at(self, offset: int, size: int) -> bytes:
        assert self._file is not None  # noqa: S101  # a piece without a segment is in the file
        self._file.seek(offset)
        parts = [self._file.read(size)]
        while left := size - sum(map(len, parts)):
            if not parts[-1]:
                raise InvariantBroken(f"the spool's file has {size - left} bytes at {offset}, need {size}")
            parts.append(self._file.read(left))
        return b"".join(parts)

    def segments(self) -> Iterator[Segment]:
        """Give all messages, in order, and forget each as it is given."""
        pieces, self._pieces = self._pieces[::-1], []
        while pieces:
            yield self._read(pieces.pop())
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._pieces.clear()
        self.memory_bytes = 0
        if self._file is not None:
            self._file.close()
            self._file = None


def _packed(numbers: Ints) -> bytes:
    return numbers.astype(np.uint32).tobytes()


def _write_all(file: IO[bytes], data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def not_writable(folder: Path, problem: OSError) -> LakeUnusable:
    """Build the error for a spool folder that cannot be used."""
    return LakeUnusable(
        f"spool folder {folder} cannot be written: {problem.strerror}",
        "Free space there, name another folder with --spool, or set --streaming off.",
    )
