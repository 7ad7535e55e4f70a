"""Arrow lists of text for the tuples of many rows, built column by column without a loop over rows.

Rows may be recorded in any order, table by table; the lists are in stream order. Values in stream order are in buffer
order too, so their bytes are copied in one pass at the end: given the bounds of every value, the buffer itself is a
string array of value, gap, value, gap …, and a filter keeps every second element.

Columns `old`, `new` and `unchanged` of `changes`: read a buffer's tuples, one table and message form at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from auditlake.pgoutput.batch_layout import Bools, Frames, Ints, Layout, require
from auditlake.relation import ReplicaIdentity
from auditlake.values.encoding import texts_of

_TEXT, _NULL, _UNCHANGED = ord("t"), ord("n"), ord("u")
_COUNT_BYTES, _HEADER_BYTES = 2, 5
_FIRST_NOT_ASCII = 128


class TupleColumn:
    """The tuples of one kind, old or new: a list of text per row, NULL for a row without one."""

    def __init__(self, width: Ints, present: Bools) -> None:
        """Allocate `width` values per row; a row without a tuple has width 0 and is not present."""
        self._present = present
        self._first: Ints = np.zeros(width.size + 1, np.int64)
        np.cumsum(width, out=self._first[1:])
        size = int(self._first[-1])
        self._bounds = np.empty((size, 2), np.int32)
        self._missing = np.zeros(size, np.bool_)
        self._unchanged: list[tuple[Ints, Ints]] = []

    def put(self, rows: Ints, column: int, start: Ints, end: Ints) -> None:
        """Record the bounds of one column's values in `rows`."""
        at = self._first[rows] + column
        self._bounds[at, 0] = start
        self._bounds[at, 1] = end

    def put_missing(self, rows: Ints, column: int, unchanged: Bools) -> None:
        """Record `rows` as having no value in this column, because of unchanged TOAST where `unchanged` is true."""
        self._missing[self._first[rows] + column] = True
        toasted = rows[unchanged]
        self._unchanged.append((toasted, np.full(toasted.size, column)))

    def lists(self, buffer: bytes | bytearray) -> pa.ListArray:
        """Return a list of text per row, NULL for a row without a tuple."""
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
        raw = np.frombuffer(texts.buffers()[2], np.uint8)
        return texts if raw.size == 0 or raw.max() < _FIRST_NOT_ASCII else texts_of(texts)

    def unchanged(self) -> pa.ListArray:
        """Return the positions of unchanged TOAST values per row, NULL for a row without any."""
        rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in self._unchanged)])
        columns = np.concatenate([np.empty(0, np.int64), *(columns for _, columns in self._unchanged)])
        order = np.lexsort((columns, rows))
        counts = np.bincount(rows, minlength=self._present.size)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        positions = pa.array(columns[order].astype(np.int16))
        return pa.ListArray.from_arrays(pa.array(offsets), positions, mask=pa.array(counts == 0))


class Walk:
    """Vectorized reader for rows of one table and form; `at` is the read offset in each of their messages."""

    def __init__(self, frames: Frames, rows: Ints, messages: Ints, at: Ints) -> None:
        self.frames = frames
        self.rows = rows
        self.messages = messages
        self.at = at
        self._end = frames.ends[messages]

    def tuples(self, width: int, into: TupleColumn, *, may_be_unchanged: bool) -> None:
        """Read one tuple of `width` values from every row."""
        self._fits(self.at + _COUNT_BYTES <= self._end)
        count = self.frames.u16(self.at)
        self._fits(count == width, f"the relation has {width} columns, the tuple a different number")
        self.at = self.at + _COUNT_BYTES
        for column in range(width):
            self._column(column, into, may_be_unchanged=may_be_unchanged)

    def new_tuple_follows(self) -> None:
        """Read the `N` between an old tuple and a new one."""
        self._fits(self.at < self._end)
        self._fits(self.frames.u8(self.at) == ord("N"))
        self.at = self.at + 1

    def finish(self) -> None:
        """Check that no message has bytes after its last value."""
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
        # A value that is not text has no size: read four bytes at the message's tag instead, and multiply by 0.
        size = self.frames.u32(np.where(text, self.at + 1, self.frames.starts[self.messages])) * text
        self.at = start + size  # may exceed the end: the next read or `finish` checks that
        into.put(self.rows, column, start, self.at)

    def _fits(self, fine: Bools, problem: str = "") -> None:
        require(fine, self.messages, problem)


_NONE, _NEW, _OLD_NEW, _OLD = range(4)
"""Forms of a message, by the tuples it has. An old tuple comes first."""
_HAS_OLD = np.array([False, False, True, True])
_HAS_NEW = np.array([False, True, True, False])
_FORM = np.full((256, 256), _NONE, np.int64)
_FORM[list(b"IU"), ord("N")] = _NEW
_FORM[ord("U"), list(b"KO")] = _OLD_NEW
_FORM[ord("D"), list(b"KO")] = _OLD

_KIND_AT, _TUPLE_AT = 5, 6  # after the tag and the OID; after the kind of the first tuple


@dataclass(frozen=True, slots=True)
class Values:
    """The columns `old`, `new` and `unchanged` of `changes`."""

    old: pa.ListArray
    new: pa.ListArray
    unchanged: pa.ListArray


def read_values(layout: Layout) -> Values:
    """Read every old and new tuple of the buffer."""
    frames, rows = layout.frames, layout.rows
    form = _forms(layout)
    widths = np.array([len(version.relation.columns) for version in layout.versions] + [0], np.int64)  # last: NO_TABLE
    width = widths[layout.slots]
    old = TupleColumn(width * _HAS_OLD[form], _HAS_OLD[form])
    new = TupleColumn(width * _HAS_NEW[form], _HAS_NEW[form])
    for group in _groups(layout.slots, form):
        of = int(form[group[0]])
        messages = rows.message[group]
        walk = Walk(frames, group, messages, frames.starts[messages] + _TUPLE_AT)
        columns = int(width[group[0]])
        if _HAS_OLD[of]:
            walk.tuples(columns, old, may_be_unchanged=False)
        if of == _OLD_NEW:
            walk.new_tuple_follows()
        if _HAS_NEW[of]:
            walk.tuples(columns, new, may_be_unchanged=True)
        walk.finish()
    return Values(old.lists(frames.buffer), new.lists(frames.buffer), new.unchanged())


def _forms(layout: Layout) -> Ints:
    """Return each row's form; truncates and logical messages have no tuples."""
    frames, rows = layout.frames, layout.rows
    form = np.full(rows.count, _NONE, np.int64)
    tags = frames.tags[rows.message]
    with_tuples = np.flatnonzero((tags == ord("I")) | (tags == ord("U")) | (tags == ord("D")))
    messages = rows.message[with_tuples]
    kind = frames.u8(frames.starts[messages] + _KIND_AT)
    form[with_tuples] = _FORM[tags[with_tuples], kind]
    require(form[with_tuples] != _NONE, messages)
    full = np.array(
        [version.relation.replica_identity == ReplicaIdentity.FULL for version in layout.versions] + [False]
    )
    fits = (kind == ord("N")) | ((kind == ord("O")) == full[layout.slots[with_tuples]])
    require(fits, messages, "the kind of its old tuple does not match the relation's replica identity")
    return form


def _groups(slots: Ints, form: Ints) -> Iterator[Ints]:
    """Group the rows by relation version and form, each group in stream order."""
    key = slots * len(_HAS_OLD) + form
    rows = np.flatnonzero(form != _NONE)
    if rows.size == 0:
        return
    key = key[rows]
    if key.max() <= np.iinfo(np.uint16).max:
        key = key.astype(np.uint16)  # numpy radix-sorts 16-bit integers, ten times faster
    order = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.diff(key[order])) + 1
    yield from np.split(rows[order], edges)
