"""The values of many rows as Arrow lists of text, column by column without a loop over rows.

Rows are written in any order, table by table; they come out in stream order. Since values of rows in stream order are
in buffer order too, all their bytes are collected at once at the end: with the bounds of every value known, the buffer
itself is a string array of value, gap, value, gap …, and every second element is taken.
"""

import numpy as np
import pyarrow as pa

from auditlake.pgoutput.frames import Bools, Frames, Ints, Refused, require

_TEXT, _NULL, _UNCHANGED = ord("t"), ord("n"), ord("u")
_COUNT_BYTES, _HEADER_BYTES = 2, 5
_FIRST_NOT_ASCII = 128


class TupleColumn:
    """The tuples of one kind, old or new: a list of text for each row that has one."""

    def __init__(self, messages: Ints, width: Ints, present: Bools) -> None:
        """Make room for `width` values in each row; a row without a tuple has width 0 and is not present."""
        self._messages = messages
        self._present = present
        self._first: Ints = np.zeros(width.size + 1, np.int64)
        np.cumsum(width, out=self._first[1:])
        size = int(self._first[-1])
        self._bounds = np.empty((size, 2), np.int32)
        self._missing = np.zeros(size, np.bool_)
        self._unchanged: list[tuple[Ints, Ints]] = []

    def put(self, rows: Ints, column: int, start: Ints, end: Ints) -> None:
        """Say where the values of one column of `rows` are."""
        at = self._first[rows] + column
        self._bounds[at, 0] = start
        self._bounds[at, 1] = end

    def put_missing(self, rows: Ints, column: int, unchanged: Bools) -> None:
        """Say which rows have no value in this column, and which of them because it is unchanged TOAST."""
        self._missing[self._first[rows] + column] = True
        toasted = rows[unchanged]
        self._unchanged.append((toasted, np.full(toasted.size, column)))

    def lists(self, buffer: bytes | bytearray) -> pa.ListArray:
        """All rows: a list of text, NULL where there is no tuple."""
        offsets = pa.array(self._first.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, self._values(buffer), mask=pa.array(~self._present))

    def _values(self, buffer: bytes | bytearray) -> pa.StringArray:
        size = len(self._bounds)
        if size == 0:
            return pa.array([], pa.string())
        sliced = pa.StringArray.from_buffers(2 * size - 1, pa.py_buffer(self._bounds), pa.py_buffer(buffer))
        every_second = np.zeros(2 * size - 1, np.bool_)
        every_second[::2] = True
        _, offsets, values = sliced.filter(pa.array(every_second)).buffers()
        valid = pa.py_buffer(np.packbits(~self._missing, bitorder="little"))
        texts = pa.StringArray.from_buffers(size, offsets, values, valid)
        self._check_utf8(texts)
        return texts

    def _check_utf8(self, texts: pa.StringArray) -> None:
        raw = np.frombuffer(texts.buffers()[2], np.uint8)
        if raw.size == 0 or raw.max() < _FIRST_NOT_ASCII:
            return
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            bad = next(i for i, value in enumerate(texts.cast(pa.binary())) if not _is_utf8(value.as_py()))
            raise Refused(int(self._messages[np.searchsorted(self._first, bad, side="right") - 1])) from None

    def unchanged(self) -> pa.ListArray:
        """All rows: the positions of unchanged TOAST values, NULL where there are none."""
        rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in self._unchanged)])
        columns = np.concatenate([np.empty(0, np.int64), *(columns for _, columns in self._unchanged)])
        order = np.lexsort((columns, rows))
        counts = np.bincount(rows, minlength=self._present.size)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        positions = pa.array(columns[order].astype(np.int16))
        return pa.ListArray.from_arrays(pa.array(offsets), positions, mask=pa.array(counts == 0))


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


class Walk:
    """Reads rows of one table and form, all at once; `at` is how far each of their messages is read."""

    def __init__(self, frames: Frames, rows: Ints, messages: Ints, at: Ints) -> None:
        self.frames = frames
        self.rows = rows
        self.messages = messages
        self.at = at
        self._end = frames.ends[messages]

    def tuples(self, width: int, into: TupleColumn, *, may_be_unchanged: bool) -> None:
        """Read one tuple of `width` values of every row."""
        self._fits(self.at + _COUNT_BYTES <= self._end)
        count = self.frames.u16(self.at)
        self._fits(count == width, f"the relation has {width} columns, the tuple another number")
        self.at = self.at + _COUNT_BYTES
        for column in range(width):
            self._column(column, into, may_be_unchanged=may_be_unchanged)

    def new_tuple_follows(self) -> None:
        """Read the `N` between an old tuple and a new one."""
        self._fits(self.at < self._end)
        self._fits(self.frames.u8(self.at) == ord("N"))
        self.at = self.at + 1

    def finish(self) -> None:
        """Check that every message ends where its last value does."""
        self._fits(self.at == self._end)

    def _column(self, column: int, into: TupleColumn, *, may_be_unchanged: bool) -> None:
        self._fits(self.at < self._end)
        kind = self.frames.u8(self.at)
        text = kind == _TEXT
        if not text.all():
            unchanged = kind == _UNCHANGED
            self._fits(text | (kind == _NULL) | (unchanged & may_be_unchanged))
            into.put_missing(self.rows[~text], column, unchanged[~text])
        start = self.at + np.where(text, _HEADER_BYTES, 1)
        self._fits(start <= self._end)
        # Where there is no size to read, read the tag's four bytes instead and drop them.
        size = self.frames.u32(np.where(text, self.at + 1, self.frames.starts[self.messages])) * text
        self.at = start + size  # may be past the end: whatever is read next finds that, or `finish`
        into.put(self.rows, column, start, self.at)

    def _fits(self, fine: Bools, problem: str = "") -> None:
        require(fine, self.messages, problem)
