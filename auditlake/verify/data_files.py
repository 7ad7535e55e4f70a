"""Check the data files of a Delta table against its transaction log: existence, size, number of rows. No JVM.

Deletion vectors are read, which checks their checksums; they must mark as many rows as the log records, all within the
file. Rows are not decoded: a file replaced by another of the same size and number of rows is found by the comparison of
rows.
"""

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.delta.deletion_vectors import read_vector
from auditlake.delta.log_reader import Add, file_path, live_files
from auditlake.store.files import parquet
from auditlake.store.place import Place
from auditlake.verify.report import Finding


def check_files(table: Place, version: int) -> tuple[Finding, ...]:
    """Check all files of a version of a table without foreign table features."""
    try:
        adds = live_files(table, version)
    except (OSError, ValueError, pa.ArrowException) as exc:
        detail = f"version {version} cannot be listed: {type(exc).__name__}"
        return (Finding("unreadable log", file="_delta_log", detail=detail),)
    return tuple(finding for add in adds for finding in _problems(table, add))


def _problems(table: Place, add: Add) -> Iterator[Finding]:
    file, shown = file_path(table, add), str(add["path"])
    try:
        size_bytes = file.stat().st_size
    except OSError as exc:
        yield Finding("missing file", file=shown, detail=exc.strerror)
        return
    if size_bytes != add["size"]:
        yield Finding("file size", file=shown, detail=f"{size_bytes} bytes, the log has {add['size']}")
    try:
        rows = pq.read_metadata(parquet(file)).num_rows
    except (OSError, pa.ArrowException) as exc:
        yield Finding("unreadable file", file=shown, detail=type(exc).__name__)
        return
    recorded = json.loads(add.get("stats") or "{}").get("numRecords", rows)
    if rows != recorded:
        yield Finding("row count", file=shown, detail=f"{rows} rows, the log has {recorded}")
    yield from _vector_problems(table, add, rows)


def _vector_problems(table: Place, add: Add, rows: int) -> Iterator[Finding]:
    vector, shown = add.get("deletionVector"), str(add["path"])
    if vector is None:
        return
    try:
        marked = read_vector(table, vector)
    except (OSError, ValueError) as exc:
        yield Finding("deletion vector", file=shown, detail=f"unreadable: {type(exc).__name__}")
        return
    if len(marked) != vector["cardinality"]:
        detail = f"marks {len(marked)} rows, the log has {vector['cardinality']}"
        yield Finding("deletion vector", file=shown, detail=detail)
    if len(marked) and marked.max() >= rows:
        yield Finding("deletion vector", file=shown, detail=f"marks row {marked.max()} of {rows}")
