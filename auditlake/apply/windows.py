"""Windows: cut a backlog of changes at commit LSNs into pieces that fit into memory.

A window is (`after`, `upto`] of all tables together. Its size is the uncompressed size of all changes in it. Each
table's share is unknown without reading values, but no tail is larger than the window. A transaction is never split,
because a position is a commit LSN: a transaction above the limit gets a window of its own.

The files written by capture are consecutive, so nearly all cuts follow from their statistics in the transaction log.
Within a file, a row group's size is assumed to be spread evenly over its rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from auditlake.delta.row_groups import held_bytes, row_groups
from auditlake.lsn import Lsn
from auditlake.store.files import parquet
from auditlake.store.place import Place

WINDOW_BYTES = 96 << 20
"""Uncompressed size of the changes applied at a time; they are in memory several times."""


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A data file of `changes`, with its least and greatest LSN."""

    path: Place
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Window:
    """The changes up to `upto`; `held_bytes` is their estimated size in memory.

    `more`: changes above `upto` exist.
    """

    upto: Lsn
    held_bytes: int
    more: bool


def cut(files: Iterable[ChangeFile], after: Lsn, limit: Lsn, most_bytes: int) -> Window:
    """Return the largest window in (`after`, `limit`] within `most_bytes`, or with a single transaction."""
    due = sorted((file for file in files if file.last > after and file.first <= limit), key=lambda file: file.first)
    total = 0
    for number, file in enumerate(due):
        total += held_within(file, after, limit)
        if total > most_bytes:
            return _cut_inside(due, number + 1, (after, limit), most_bytes)
    return Window(limit, total, more=False)


def held_within(file: ChangeFile, after: Lsn, limit: Lsn) -> int:
    """Estimate the size in memory of a file's changes in (`after`, `limit`]."""
    if after < file.first and file.last <= limit:
        return held_bytes([file.path])
    lsns, sizes = _weighed(file.path)
    return int(sizes[(lsns > after) & (lsns <= limit)].sum())


def _cut_inside(due: Sequence[ChangeFile], count: int, within: tuple[Lsn, Lsn], most_bytes: int) -> Window:
    """Cut at an LSN in the first `count` files, which together exceed the limit."""
    weighed = [_weighed(file.path) for file in due[:count]]
    lsns, sizes = (np.concatenate(column) for column in zip(*weighed, strict=True))
    wanted = (lsns > within[0]) & (lsns <= within[1])
    commits, place = np.unique(lsns[wanted], return_inverse=True)
    needed = sum(file.first <= commits[0] for file in due)
    if needed > count:  # more files have parts of the first transaction
        return _cut_inside(due, needed, within, most_bytes)
    totals = np.cumsum(np.bincount(place, sizes[wanted], len(commits)))
    # The next file, which was not read, must begin above the cut.
    beyond = due[count].first if count < len(due) else within[1] + 1
    fitting = min(np.searchsorted(totals, most_bytes, side="right"), np.searchsorted(commits, beyond))
    last = max(0, int(fitting) - 1)
    return Window(Lsn(int(commits[last])), int(totals[last]), more=True)


def _weighed(path: Place) -> tuple[np.ndarray, np.ndarray]:
    """Return the LSN and the estimated size of every row of a file."""
    groups = row_groups(path)
    lsns = pq.ParquetFile(parquet(path)).read(columns=["lsn"])["lsn"].to_numpy()
    sizes = np.repeat([group.held_bytes / max(1, group.rows) for group in groups], [group.rows for group in groups])
    return lsns, sizes
