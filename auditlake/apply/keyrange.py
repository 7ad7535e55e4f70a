"""Where the keys of a tail lie, as SQL on the target alone: by that, and only by that, Delta leaves files out.

Delta does not push keys from the source of a write to the statistics of the target's files, and takes a list of
values for the range from its least to its greatest. So the keys are cut at their largest gaps into a few ranges,
written as literals. Only whole numbers: other types may have values outside their column. And only where that leaves
out files: random keys gain nothing, and Spark compiles a plan with other literals anew.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from auditlake.lake.history import whole_number_keys
from auditlake.literals import spark_name
from auditlake.relation import Column

Ranges = Sequence[tuple[int, int]]
"""First and last value of each range, or of each file; both inclusive."""

_RANGES = 8
_WORTH_IT = 0.25


def conditions(known: pa.Table, columns: Sequence[Column], files: Mapping[str, Ranges]) -> list[str]:
    """Conditions on the rows `t` that hold for every key in `known`, as far as they leave out enough of the `files`."""
    found = []
    for column in whole_number_keys(columns) if known.num_rows else ():
        ranges, bounds = key_ranges(known[column.stored].to_numpy()), files.get(column.stored, ())
        if bounds and spared(ranges, bounds) >= _WORTH_IT * len(bounds):
            name = f"t.{spark_name(column.stored)}"
            found.append("(" + " or ".join(f"{name} between {low} and {high}" for low, high in ranges) + ")")
    return found


def key_ranges(values: np.ndarray) -> Ranges:
    """At most _RANGES ranges that hold all values, with the largest gaps between them."""
    ordered = np.unique(values)
    # As floats: the distance of two bigints may be no bigint.
    gaps = np.diff(ordered.astype(np.float64))
    cuts = np.sort(np.argsort(gaps, kind="stable")[max(0, len(gaps) - _RANGES + 1) :]) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(ordered, cuts)]


def spared(ranges: Ranges, files: Ranges) -> int:
    """How many files hold no value in any of the ranges."""
    return sum(all(last < low or first > high for low, high in ranges) for first, last in files)
