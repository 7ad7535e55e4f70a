"""Open versions of a history that a fold ends or needs: the files that may have them, and contradictions. Pure."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.delta.data_files import DataFile
from auditlake.fold.net import RowKind
from auditlake.lake.history import whole_number_keys
from auditlake.relation import Column

BEGIN = ("_from_lsn", "_ordinal")
"""Columns that identify a version in a table without a key."""
_CONTRADICTION = "they contradict the history: "
OPENED_TWICE = f"{_CONTRADICTION}a key is opened that has an open version"
CLOSED_WITHOUT_OPEN = f"{_CONTRADICTION}a key is closed that has no open version"


class TooLarge(Exception):
    """The rows to hold exceed the memory limit; nothing was committed."""


def key_of(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the key columns, in column order."""
    return tuple(column for column in columns if column.key)


def may_have_key_of(edges: pa.Table, columns: Sequence[Column]) -> Callable[[DataFile], bool]:
    """Return a condition: the statistics of a file admit a row with the key of an edge, in a table of these columns."""
    names = [column.stored for column in whole_number_keys(columns)] if key_of(columns) else ["_from_lsn"]
    values = {name: np.unique(edges[name].to_numpy()) for name in names}
    return lambda file: edges.num_rows > 0 and all(_reaches(file, name, each) for name, each in values.items())


def _reaches(file: DataFile, column: str, values: npt.NDArray[np.integer]) -> bool:
    bounds = file.bounds(column)
    if bounds is None:
        return True
    low, high = bounds
    return bool(np.searchsorted(values, low, "left") < np.searchsorted(values, high, "right"))


def contradiction(expected: pa.ChunkedArray, met: pa.ChunkedArray) -> str | None:
    """Return how a fold contradicts the history, or None.

    `expected` are the kinds of the fold's edges (closes and births), `met` those whose key has an open version.
    """
    if pc.any(pc.equal(met, RowKind.BIRTH)).as_py():
        return OPENED_TWICE
    if len(met) != (pc.sum(pc.equal(expected, RowKind.CLOSE)).as_py() or 0):
        return f"{CLOSED_WITHOUT_OPEN}, or several"
    return None
