"""Data files of a history at one Delta version, and their deleted rows. No JVM.

The log is replayed without Spark (`delta.data_files`). `lake.history_rows` reads the rows in Spark, `audit.state` in
DuckDB; both skip files by their statistics, and rows that deletion vectors mark by their positions.

`find_files` returns None for a history that another program has given table features: Delta must read that one.

Authority: Delta's PROTOCOL.md, "Deletion Vectors", "Per-file Statistics"
"""

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from auditlake.delta.data_files import DataFile, fetch_files, list_any_files, list_files, require_same_bytes
from auditlake.delta.deletion_vectors import Descriptor, write_vectors
from auditlake.delta.log_reader import file_path
from auditlake.delta.log_writer import Action, removed
from auditlake.lake.history import OPEN_PART, HistoryTable

READ_AGAIN = "An erasure, retention or maintain replaced it: run this again, in Python from Lake.as_of on."
"""The hint for files that are gone since they were listed."""


def part_of(file: DataFile) -> str:
    """Return the partition of a file."""
    return str(file.add["partitionValues"]["_part"])


def is_open(file: DataFile) -> bool:
    """Return whether a file is in the open partition."""
    return part_of(file) == OPEN_PART


def overlap(one: DataFile, other: DataFile) -> bool:
    """Return whether the ranges of `_from_lsn` overlap by more than a tenth of the shorter one.

    Clustered files that follow each other may share a little: Delta cuts them by a sample of rows.
    """
    bounds, others = one.bounds("_from_lsn"), other.bounds("_from_lsn")
    if bounds is None or others is None:
        return False
    shared = min(bounds[1], others[1]) - max(bounds[0], others[0])
    shorter = min(bounds[1] - bounds[0], others[1] - others[0])
    return bool(10 * shared > shorter)


def data_files(table: HistoryTable) -> list[DataFile]:
    """List the files of the table's Delta version, whatever table features it has."""
    return list_any_files(table.path, table.delta_version, table.etag)


def open_rows(table: HistoryTable) -> int:
    """Estimate the rows in the open partition, by which a plan is chosen; files without statistics count as empty."""
    return sum(file.rows for file in data_files(table) if is_open(file) and file.is_counted)


def open_bounds(table: HistoryTable, columns: Iterable[str]) -> dict[str, list[tuple[Any, Any]]]:
    """Return the bounds of each file of the open partition, for the columns that have them in every file."""
    files = [file for file in data_files(table) if is_open(file)]
    bounds = {name: [bound for file in files if (bound := file.bounds(name))] for name in columns}
    return {name: of_files for name, of_files in bounds.items() if len(of_files) == len(files)}


@dataclass(frozen=True, slots=True)
class Files:
    """Data files of `table` at its Delta version, by name."""

    table: HistoryTable
    by_name: Mapping[str, DataFile]

    def which(self, condition: Callable[[DataFile], bool]) -> "Files":
        """Return the files that meet a condition."""
        return replace(self, by_name={name: file for name, file in self.by_name.items() if condition(file)})

    def of_part(self, part: str) -> "Files":
        """Return the files of a partition."""
        return self.which(lambda file: part_of(file) == part)

    def named(self, names: Container[str]) -> "Files":
        """Return the files of these names."""
        return self.which(lambda file: file.name in names)

    def gone(self, name: str) -> BitMap64:
        """Return the positions of the deleted rows of a file."""
        return self.by_name[name].deleted_positions(self.table.path)

    def fetch(self) -> None:
        """Read small files and deletion vectors in a store at the same time, as far as they are kept in memory."""
        fetch_files(self.table.path, list(self.by_name.values()))

    def require_same_bytes(self) -> None:
        """Require that no file is damaged, before its rows are written anew. Raises LakeUnusable, OSError."""
        require_same_bytes(self.table.path, [file.add for file in self.by_name.values()])

    @property
    def paths(self) -> list[Path]:
        return [file_path(self.table.path, file.add) for file in self.by_name.values()]

    @property
    def rows(self) -> int:
        """Return the number of rows, deleted ones included."""
        return sum(file.rows for file in self.by_name.values())

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.by_name.values())


def find_files(table: HistoryTable) -> Files | None:
    """List the table's files; None if its features, its checkpoints or its statistics are another program's."""
    if not table.as_made:
        return None
    try:
        files = list_files(table.path, table.delta_version, table.etag)
    except FileNotFoundError:
        return None
    counted = all(file.is_counted for file in files)
    return Files(table, {file.name: file for file in files}) if counted else None


def deleted_places(files: Files) -> pa.Table | None:
    """Return `place`, the file and the position from 0, of every deleted row; None if there is none."""
    deleted = {name: np.fromiter(files.gone(name), np.int64) for name in files.by_name}
    names = np.repeat(list(deleted), [len(rows) for rows in deleted.values()])
    if not len(names):
        return None
    rows = np.concatenate(list(deleted.values()))
    place = pa.StructArray.from_arrays([pa.array(names, pa.string()), pa.array(rows)], names=["file", "row"])
    return pa.table({"place": place})


def marked(files: Files, places: Mapping[str, BitMap64]) -> list[Action]:
    """Return the actions that mark these rows as deleted, and remove files without any rows left."""
    gone = {name: rows | files.gone(name) for name, rows in places.items()}
    left = [name for name, rows in gone.items() if len(rows) < files.by_name[name].rows]
    vectors = write_vectors(files.table.path, [gone[name] for name in left]) if left else []
    kept = [_with_vector(files.by_name[name], vector) for name, vector in zip(left, vectors, strict=True)]
    return [*(removed(files.by_name[name].add) for name in places), *kept]


def _with_vector(file: DataFile, vector: Descriptor) -> Action:
    """Return the `add`; statistics are no longer tight, as rows with the least or greatest value may be deleted."""
    stats = json.dumps({**file.stats, "tightBounds": False})
    return {"add": {**file.add, "dataChange": True, "stats": stats, "deletionVector": vector}}
