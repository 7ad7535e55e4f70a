"""Read the tuples of all row changes of a buffer, group by group: one table and one form of message at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from auditlake.pgoutput.frames import Ints, require
from auditlake.pgoutput.tables import Placed
from auditlake.pgoutput.tuples import TupleColumn, Walk

_NONE, _NEW, _OLD_NEW, _OLD = range(4)
"""Forms of a message: what tuples it has. An old tuple comes first."""
_HAS_OLD = np.array([False, False, True, True])
_HAS_NEW = np.array([False, True, True, False])
_FORM = np.full((256, 256), _NONE, np.int64)
_FORM[list(b"IU"), ord("N")] = _NEW
_FORM[ord("U"), list(b"KO")] = _OLD_NEW
_FORM[ord("D"), list(b"KO")] = _OLD

_KIND_AT, _TUPLE_AT = 5, 6  # after the tag and the OID; after the kind of the first tuple


@dataclass(frozen=True, slots=True)
class Values:
    """Three columns of `changes`."""

    old: pa.ListArray
    new: pa.ListArray
    unchanged: pa.ListArray


def read_values(placed: Placed) -> Values:
    """Read every old and new tuple."""
    frames, rows = placed.frames, placed.rows
    form = _forms(placed)
    widths = np.array([len(each.relation.columns) for each in placed.known] + [0], np.int64)  # last: NO_TABLE
    width = widths[placed.slots]
    old = TupleColumn(rows.message, width * _HAS_OLD[form], _HAS_OLD[form])
    new = TupleColumn(rows.message, width * _HAS_NEW[form], _HAS_NEW[form])
    for group in _groups(placed.slots, form):
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


def _forms(placed: Placed) -> Ints:
    """Find each row's form; a truncated table and a logical message have no tuples."""
    frames, rows = placed.frames, placed.rows
    form = np.full(rows.count, _NONE, np.int64)
    tags = frames.tags[rows.message]
    with_tuples = np.flatnonzero((tags == ord("I")) | (tags == ord("U")) | (tags == ord("D")))
    messages = rows.message[with_tuples]
    kind = frames.u8(frames.starts[messages] + _KIND_AT)
    form[with_tuples] = _FORM[tags[with_tuples], kind]
    require(form[with_tuples] != _NONE, messages)
    full = np.array([each.relation.replica_identity == "f" for each in placed.known] + [False])
    fits = (kind == ord("N")) | ((kind == ord("O")) == full[placed.slots[with_tuples]])
    require(fits, messages, "its old tuple is not of the kind that the relation's replica identity calls for")
    return form


def _groups(slots: Ints, form: Ints) -> Iterator[Ints]:
    """Rows of one slot and form at a time, each group in stream order."""
    key = slots * len(_HAS_OLD) + form
    rows = np.flatnonzero(form != _NONE)
    if rows.size == 0:
        return
    key = key[rows]
    if key.max() <= np.iinfo(np.uint16).max:
        key = key.astype(np.uint16)  # numpy sorts these by radix, ten times faster
    order = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.diff(key[order])) + 1
    yield from np.split(rows[order], edges)
