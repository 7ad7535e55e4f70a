"""The data files of a history at one Delta version, by the statistics in its log. No JVM; no data file is opened."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from auditlake.lake.history import OPEN_PART, HistoryTable

_FACTS = ("path", "partition._part", "size_bytes", "num_records", "min._from_lsn", "max._from_lsn")


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of the partition `part`; `rows` counts those too that a deletion vector marks.

    Its versions began in `[least_from, most_from]`, LSNs; None where the log does not tell.
    """

    name: str
    part: str
    size_bytes: int
    rows: int
    least_from: int | None = None
    most_from: int | None = None

    def overlaps(self, other: "DataFile") -> bool:
        """Whether versions of each began between those of the other, in more than a tenth of the shorter stretch.

        A little may be shared by files that were laid in order beside each other: Delta cuts them by a sample of rows.
        """
        bounds = (self.least_from, self.most_from, other.least_from, other.most_from)
        if None in bounds:
            return False
        least, most, others_least, others_most = cast("tuple[int, int, int, int]", bounds)
        shared = min(most, others_most) - max(least, others_least)
        shorter = min(most - least, others_most - others_least)
        return 10 * shared > shorter


def data_files(table: HistoryTable) -> list[DataFile]:
    """List the files of the table's Delta version."""
    actions = pa.table(DeltaTable(table.path, version=table.delta_version).get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    nothing = [None] * actions.num_rows
    columns = (actions[name].to_pylist() if name in actions.column_names else nothing for name in _FACTS)
    return [
        DataFile(PurePosixPath(path).name, part, size, rows or 0, least, most)
        for path, part, size, rows, least, most in zip(*columns, strict=True)
    ]


def open_rows(table: HistoryTable) -> int:
    """Say how large the open partition is: its rows, and those that ended and are only marked so."""
    return sum(file.rows for file in data_files(table) if file.part == OPEN_PART)


def open_bounds(table: HistoryTable, columns: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """Least and greatest value in each file of the open partition, for the columns that have them in every file."""
    actions = pa.table(DeltaTable(table.path, version=table.delta_version).get_add_actions(flatten=True))
    found = {}
    for name in columns:
        if {f"min.{name}", f"max.{name}"} <= set(actions.column_names):
            in_part = actions.filter(pc.equal(actions["partition._part"], OPEN_PART))
            least, greatest = (in_part[f"{bound}.{name}"] for bound in ("min", "max"))
            if not (least.null_count or greatest.null_count):
                found[name] = list(zip(least.to_pylist(), greatest.to_pylist(), strict=True))
    return found
