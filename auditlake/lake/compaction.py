"""Compaction and clustering of a history: replace data files by others with the same rows, without changing data.

**Compaction.** `join` rewrites small files of one partition without deleted rows. An OPTIMIZE of ten small files costs
as much as ten batches, and a JVM. Open versions are written while they are read, in any number; closed ones are sorted
in memory, and more than `HELD_BYTES` of them are left to Spark.

**Clustering.** `cluster` sorts the closed versions of a month by `_from_lsn`, and splits them into files by age. An
as-of query at L reads from each later month only the versions that began by L: usually a few long-lived ones. Sorting
puts these first. If they share a file with short-lived versions, every query between their LSNs has to decode that
file's LSN columns. So files are also split by age, the distance in WAL from `_from_lsn` to the end of the month, in
classes that double. Then the statistics of most files show that all of their versions are valid at L, or none.

Spark writes the sorted files into a temporary folder in the table, from which one commit that changes no data adopts
them. If the process is killed, the folder remains and no log entry names it. VACUUM ignores parts of it, because Spark
hides unfinished files, so `delete_abandoned` deletes it.

The caller requires before that the files are not damaged (`data_files.require_same_bytes`).

**Commit.** `rearrange` commits the replacement. It takes the next free version, unless a version since the files were
listed removes or marks one of them, or changes the table's metadata: then nothing is committed, and the files are
compacted later. So no commit of another process is lost.

**Vacuum.** A process may be suspended before its commit for longer than the retention. A vacuum then takes the files
that it has written for those of a killed process. So `fence` commits before anything is deleted: every commit that was
planned before is refused, or planned again, as after any other commit that it conflicts with.

Authority: Delta's PROTOCOL.md, "Add File and Remove File": `dataChange`; "Delta Log Entries";
spark.apache.org/docs/4.2.0/sql-data-sources-parquet.html
"""

from __future__ import annotations  # types of Spark are imported for mypy only

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from auditlake.delta.erasing import ERASE
from auditlake.delta.log_writer import Action, changes_table, moved, put_next, removed, without_change
from auditlake.delta.row_groups import held_bytes, read_kept, row_groups
from auditlake.delta.table import open_table
from auditlake.lake.history import LSNS, OPEN_PART, HistoryTable, adopt_rows, history_schema, write_row_batches
from auditlake.lake.history_files import Files, part_of
from auditlake.lake.history_rows import read_rows
from auditlake.lake.layout import HISTORY_APP
from auditlake.spark import functions as F  # noqa: N812 - the usual name
from auditlake.spark.log_store import FENCE
from auditlake.store.files import modified_s, remove_folder

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import SparkSession

_FILE_BYTES = 16 << 20
_FOLDER = "unordered-"
_ABANDONED_S = 24 * 3600.0
_UNITS = 64
AGES = _UNITS.bit_length() + 1
"""Maximum number of age classes."""
# LSNs are distinct: a reader of one page would have to read a dictionary of a megabyte.
_PLAIN = {f"parquet.enable.dictionary#{name}": "false" for name in LSNS}


def fence(table: HistoryTable) -> bool:
    """Commit the position again, so that all planned commits conflict; False if another commit set one meanwhile."""
    delta = open_table(table.path)
    position = delta.transaction_version(HISTORY_APP)
    assert position is not None  # noqa: S101 - a table without one is in no list of histories
    again = moved({HISTORY_APP: position})
    return put_next(table.path, delta.version() + 1, FENCE, again, lambda theirs: "txn" in theirs) is not None


def rearrange(files: Files, added: Sequence[Action]) -> bool:
    """Replace files by others; return False, without a commit, if another commit touched them."""
    replaced = (removed(file.add) for file in files.by_name.values())
    actions = [without_change(action) for action in (*replaced, *added)]
    paths = {file.add["path"] for file in files.by_name.values()}

    def conflicts(theirs: Mapping[str, Any]) -> bool:
        """Return whether an action removes one of the files, marks rows of it, changes the table, or fences."""
        fences = theirs.get("commitInfo", {}).get("operation") in {FENCE, ERASE}
        return fences or changes_table(theirs) or theirs.get("remove", {}).get("path") in paths

    return put_next(files.table.path, files.table.delta_version + 1, "OPTIMIZE", actions, conflicts) is not None


_LARGE_ROW_BYTES = 1 << 20
HELD_BYTES = 96 << 20
"""Maximum size, before compression, of the rows compacted in memory; there they need several times as much."""


def may_hold(files: Files) -> bool:
    """Whether `join` may hold the rows of these files."""
    return held_bytes(files.paths) <= HELD_BYTES


def fitting(files: Files) -> Files:
    """Choose the smallest of these files, as many as `join` may hold."""
    sizes = {name: held_bytes([path]) for name, path in zip(files.by_name, files.paths, strict=True)}
    names = sorted(sizes, key=sizes.__getitem__)
    totals = np.cumsum([sizes[name] for name in names])
    return files.named(names[: int(np.searchsorted(totals, HELD_BYTES, side="right"))])


def has_large_row_groups(files: Files) -> bool:
    """Whether some row group is larger than `HELD_BYTES` because of few rows."""
    groups = (group for path in files.paths for group in row_groups(path))
    return any(group.size_bytes > max(HELD_BYTES, group.rows * _LARGE_ROW_BYTES) for group in groups)


def join(files: Files) -> bool:
    """Replace files of one partition by one file; return False if another commit touched them.

    Closed versions are sorted by `_from_lsn`, in memory. Open ones are written while they are read.
    """
    (part,) = {part_of(file) for file in files.by_name.values()}
    rows = _kept_rows(files)
    if part != OPEN_PART:
        held = pa.Table.from_batches(rows, history_schema(files.table.columns))
        rows = iter(held.sort_by([("_from_lsn", "ascending"), ("_to_lsn", "ascending")]).to_batches())
    return rearrange(files, write_row_batches(files.table, part, rows))


def bins(files: Files, limit_bytes: int) -> list[Files]:
    """Divide files so that those of each part have at most this size together, or one of them is larger alone."""
    parts, names, size_bytes = list[Files](), list[str](), 0
    for name, file in files.by_name.items():
        if names and size_bytes + file.size_bytes > limit_bytes:
            parts.append(files.named(names))
            names, size_bytes = [], 0
        names.append(name)
        size_bytes += file.size_bytes
    return [*parts, files.named(names)] if names else parts


def _kept_rows(files: Files) -> Iterator[pa.RecordBatch]:
    """Read the rows that are not deleted, in the columns of the table; holds those of one row group."""
    schema = history_schema(files.table.columns)
    for (name, _), path in zip(files.by_name.items(), files.paths, strict=True):
        yield from (_with_schema(batch, schema) for batch in read_kept(path, files.gone(name)))


def _with_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Add as NULL the columns that were added to the table after the file was written."""
    existing = frozenset(rows.schema.names)
    columns = [
        rows[field.name].cast(field.type) if field.name in existing else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def has_bounds(files: Files) -> bool:
    """Return whether the log has the bounds of both LSN columns of every file."""
    return all(file.bounds(name) is not None for file in files.by_name.values() for name in LSNS)


def cluster(spark: SparkSession, files: Files) -> bool:
    """Replace files with bounds of one closed partition by clustered ones; False if another commit touched them."""
    (part,) = {part_of(file) for file in files.by_name.values()}
    folder = files.table.path / f"{_FOLDER}{uuid.uuid4()}"
    count = -(-files.size_bytes // _FILE_BYTES)
    rows = read_rows(spark, files).withColumn("_part", _age(files))  # temporary folders are age classes
    clustered = rows.repartitionByRange(count, *LSNS).sortWithinPartitions("_part", *LSNS)
    try:
        clustered.write.partitionBy("_part").options(**_PLAIN).parquet(str(folder))
        added = adopt_rows(files.table, part, sorted(folder.glob("_part=*/*.parquet"), key=str))
    finally:
        with suppress(OSError):  # `delete_abandoned` deletes the rest
            remove_folder(folder)
    return rearrange(files, added)


def delete_abandoned(table: HistoryTable) -> None:
    """Delete temporary folders that are older than a day: their processes were killed."""
    before_s = time.time() - _ABANDONED_S
    for folder in table.path.glob(f"{_FOLDER}*"):
        if modified_s(folder) < before_s:
            remove_folder(folder)


def _age(files: Files) -> Expression:
    """Return the age class of a version: 0 up to the length of the month in WAL, n up to 2ⁿ times that."""
    begins, ends = ([bounds for file in files.by_name.values() if (bounds := file.bounds(name))] for name in LSNS)
    end = max(high for _, high in ends)
    length, reach = end - min(low for low, _ in ends), end - min(low for low, _ in begins)
    unit = max(length, -(-reach // _UNITS), 1)
    units = F.expr(f"({end} - _from_lsn) div {unit}")
    return F.when(units == 0, 0).otherwise(F.length(F.bin(units)))
