"""Check the data files of a Delta table against its transaction log: existence, size, number of rows. No JVM.

Deletion vectors are read, which checks their checksums; they must mark as many rows as the log records, all within the
file. Rows are not decoded: a file replaced by another of the same size and number of rows is found by the comparison of
rows.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.delta.deletion_vectors import read_vector
from auditlake.delta.log_reader import Add, file_path, live_files
from auditlake.store.files import parquet
from auditlake.store.place import Place


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem of a data file, or of the log itself."""

    kind: str
    file: str
    detail: str


def check_files(table: Place, version: int) -> tuple[FileProblem, ...]:
    """Check all files of a version of a table without foreign table features."""
    try:
        adds = live_files(table, version)
    except (OSError, ValueError, pa.ArrowException) as exc:
        detail = f"version {version} cannot be listed: {type(exc).__name__}"
        return (FileProblem("unreadable log", "_delta_log", detail),)
    return tuple(problem for add in adds for problem in file_problems(table, add))


def file_problems(table: Place, add: Add) -> Iterator[FileProblem]:
    """Yield the problems of one file."""
    file, shown = file_path(table, add), str(add["path"])
    try:
        size_bytes = file.stat().st_size
    except OSError as exc:
        yield FileProblem("missing file", shown, exc.strerror or "")
        return
    if size_bytes != add["size"]:
        yield FileProblem("file size", shown, f"{size_bytes} bytes, the log has {add['size']}")
    try:
        rows = pq.read_metadata(parquet(file)).num_rows
    except (OSError, pa.ArrowException) as exc:
        yield FileProblem("unreadable file", shown, type(exc).__name__)
        return
    recorded = json.loads(add.get("stats") or "{}").get("numRecords", rows)
    if rows != recorded:
        yield FileProblem("row count", shown, f"{rows} rows, the log has {recorded}")
    yield from _vector_problems(table, add, rows)


def _vector_problems(table: Place, add: Add, rows: int) -> Iterator[FileProblem]:
    vector, shown = add.get("deletionVector"), str(add["path"])
    if vector is None:
        return
    try:
        marked = read_vector(table, vector)
    except (OSError, ValueError) as exc:
        yield FileProblem("deletion vector", shown, f"unreadable: {type(exc).__name__}")
        return
    if len(marked) != vector["cardinality"]:
        detail = f"marks {len(marked)} rows, the log has {vector['cardinality']}"
        yield FileProblem("deletion vector", shown, detail)
    if len(marked) and marked.max() >= rows:
        yield FileProblem("deletion vector", shown, f"marks row {marked.max()} of {rows}")
