"""One commit of an append-only Delta table: a Parquet file, and the entry in the log that makes it part of the table.

deltalake goes through what it knows of the whole table for every commit, which takes longer than to write a small file
and more with every file there is. An append needs none of that: `write_file` writes the rows, `put_commit` the entry.
The entry appears whole under its version, or not at all where that version is there already: so whoever expects to
write the next version is refused if somebody else has. A file without an entry is nobody's; a vacuum deletes it.

PostgreSQL forgets what capture acknowledges. So a commit is on the disk when these return, not only in the system's
memory: the file before its entry, the entry before its name.

Only for tables as capture makes them, without partitions and without any table feature: `see_plain` sees that.

The log tells the lowest and highest of each column of integers, by which readers pass files over. It tells none of
times, which the log rounds to milliseconds, nor of texts, which are long and in no order.

Authority: Delta's PROTOCOL.md, "Delta Log Entries", "Add File and Remove File", "Per-file Statistics"
"""

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from auditlake.errors import LakeUnusable

Action = Mapping[str, object]

_PLAIN_WRITER_VERSION = 2


def see_plain(path: Path, table: DeltaTable) -> None:
    """See that a table is one that `put_commit` may write to.

    Raises LakeUnusable.
    """
    version = table.protocol().min_writer_version
    if version > _PLAIN_WRITER_VERSION:
        raise LakeUnusable(
            f"{path} asks for Delta's writer version {version}, need {_PLAIN_WRITER_VERSION}",
            "Somebody has changed its properties; capture writes to a table as it has made it.",
        )


def write_file(path: Path, rows: pa.RecordBatch) -> Action:
    """Write rows into a new file of the table; gives the action that adds it."""
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    numbers = [field.name for field in rows.schema if pa.types.is_integer(field.type)]
    # Top-level texts are names that repeat; to look for repetition in values and numbers costs more than it saves.
    names = [field.name for field in rows.schema if pa.types.is_string(field.type)]
    pq.write_table(pa.table(rows), path / name, use_dictionary=names, write_statistics=numbers)
    _sync(path / name, path)
    return {
        "add": {
            "path": name,
            "partitionValues": {},
            "size": (path / name).stat().st_size,
            "modificationTime": _now_ms(),
            "dataChange": True,
            "stats": json.dumps(_statistics(rows, numbers)),
        }
    }


def _statistics(rows: pa.RecordBatch, numbers: Iterable[str]) -> Mapping[str, object]:
    found = {name: pc.min_max(rows[name]) for name in numbers}
    ends = {end: {name: each[end].as_py() for name, each in found.items() if each[end].is_valid} for end in _ENDS}
    nulls = {name: rows[name].null_count for name in found}
    return {"numRecords": rows.num_rows, "minValues": ends["min"], "maxValues": ends["max"], "nullCount": nulls}


_ENDS = ("min", "max")


def moved(positions: Mapping[str, int]) -> list[Action]:
    """Give the actions that set the versions of application transactions."""
    now_ms = _now_ms()
    return [{"txn": {"appId": app, "version": at, "lastUpdated": now_ms}} for app, at in positions.items()]


def put_commit(path: Path, version: int, operation: str, actions: Iterable[Action]) -> None:
    """Write the entry of a version.

    Raises FileExistsError where that version is there already.
    """
    info = {"timestamp": _now_ms(), "operation": operation, "engineInfo": "auditlake"}
    log = path / "_delta_log"
    unfinished = log / f".{uuid.uuid4()}.unfinished"
    try:
        unfinished.write_text("".join(f"{json.dumps(action)}\n" for action in ({"commitInfo": info}, *actions)))
        _sync(unfinished)
        os.link(unfinished, log / f"{version:020}.json")
        _sync(log)
    finally:
        unfinished.unlink(missing_ok=True)


def _sync(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _now_ms() -> int:
    return int(time.time() * 1000)
