"""Turn a tail's keys into a few literal ranges on the target, the only predicate by which Delta skips files.

Delta does not compare keys in the source of a write with the statistics of the target's files, and treats a list of
values as the range from its least to its greatest. So the keys are split at their largest gaps into a few ranges,
written as literals. Only for whole numbers: other types may have values outside their column. And only if enough files
are skipped: random keys gain nothing, and Spark compiles a plan again for other literals.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from auditlake.lake.history import whole_number_keys
from auditlake.relation import Column
from auditlake.sql_names import spark_identifier

Ranges = Sequence[tuple[int, int]]
"""First and last value of each range, or of each file's statistics; both inclusive."""

_RANGES = 8
_MIN_SKIPPED = 0.25
"""Share of the files that a range condition must skip to be used."""


def conditions(tail_keys: pa.Table, columns: Sequence[Column], files: Mapping[str, Ranges]) -> list[str]:
    """Return conditions on the target `t` that are true for every key of the tail and skip enough of the `files`."""
    sql = []
    for column in whole_number_keys(columns) if tail_keys.num_rows else ():
        ranges, statistics = key_ranges(tail_keys[column.stored].to_numpy()), files.get(column.stored, ())
        if statistics and skipped(ranges, statistics) >= _MIN_SKIPPED * len(statistics):
            name = f"t.{spark_identifier(column.stored)}"
            sql.append("(" + " or ".join(f"{name} between {low} and {high}" for low, high in ranges) + ")")
    return sql


def key_ranges(values: np.ndarray) -> Ranges:
    """Return at most _RANGES ranges that contain all values, separated by the largest gaps."""
    ordered = np.unique(values)
    # As floats: the difference of two bigints may overflow.
    gaps = np.diff(ordered.astype(np.float64))
    cuts = np.sort(np.argsort(gaps, kind="stable")[max(0, len(gaps) - _RANGES + 1) :]) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(ordered, cuts)]


def skipped(ranges: Ranges, files: Ranges) -> int:
    """Return the number of files without a value in any of the ranges."""
    return sum(all(last < low or first > high for low, high in ranges) for first, last in files)
