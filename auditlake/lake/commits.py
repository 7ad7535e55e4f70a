"""One commit of a Delta table: its Parquet files, and the entry in the log that makes them part of the table.

deltalake goes through what it knows of the whole table for every commit, which takes longer than to write a small file
and more with every file there is; Spark plans some ten jobs to merge ten rows. Who knows what changes needs none of
that: `write_file` writes rows, `put_commit` the entry.
The entry appears whole under its version, or not at all where that version is there already: so whoever expects to
write the next version is refused if somebody else has. A file without an entry is nobody's; a vacuum deletes it.

PostgreSQL forgets what capture acknowledges. So a commit is on the disk when these return, not only in the system's
memory: the file before its entry, the entry before its name.

Only for tables as they were made here: `see_plain` sees that capture's tables have no table feature, and
`has_own_features` that a history has no other than its own.

The log tells the lowest and highest of each column of integers, by which readers pass files over. It tells none of
times, which the log rounds to milliseconds, nor of texts, which are long and in no order.

Authority: Delta's PROTOCOL.md, "Delta Log Entries", "Add File and Remove File", "Per-file Statistics"
"""

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from auditlake.errors import LakeUnusable

Action = Mapping[str, Mapping[str, object]]

_PLAIN_WRITER_VERSION = 2
_OWN_FEATURES = frozenset({"appendOnly", "invariants", "deletionVectors", "timestampNtz"})
_APPEND_ONLY = "delta.appendOnly"


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


def has_own_features(table: DeltaTable) -> bool:
    """Whether a history asks of its writers no more than it did when it was made."""
    features = frozenset(table.protocol().writer_features or ())
    return features <= _OWN_FEATURES and table.metadata().configuration.get(_APPEND_ONLY) != "true"


def write_file(path: Path, rows: pa.RecordBatch) -> Action:
    """Write rows into a new file of the table; gives the action that adds it."""
    return _write_file(path, rows, [field.name for field in rows.schema if pa.types.is_integer(field.type)], {})


def write_part(path: Path, rows: pa.Table, numbers: Sequence[str], part: Mapping[str, str]) -> Action:
    """Write rows into a new file of a partition: `part` names its column, which is not in `rows`, and the value there.

    `numbers` are the columns, of integers, whose bounds are told. Gives the action that adds the file.
    """
    folder = path / "/".join(f"{name}={value}" for name, value in part.items())
    if not folder.exists():
        folder.mkdir(exist_ok=True)
        sync(path)
    return _write_file(path, rows, numbers, part)


def adopt_file(path: Path, file: Path, numbers: Sequence[str], part: Mapping[str, str]) -> Action:
    """Move a Parquet file, as somebody else has written it, into a partition that is there; as `write_part`."""
    own = path / _file_name(part)
    sync(file)
    file.rename(own)
    sync(own.parent)
    return _added(path, own, part, _footer_statistics(pq.read_metadata(own), numbers))


def _write_file(path: Path, rows: pa.RecordBatch | pa.Table, numbers: Sequence[str], part: Mapping[str, str]) -> Action:
    file = path / _file_name(part)
    # Top-level texts are names that repeat; to look for repetition in values and numbers costs more than it saves.
    names = [field.name for field in rows.schema if pa.types.is_string(field.type)]
    # Of files in partitions, which are histories', a question reads the pages that it needs, if the file says where.
    pages = bool(part)
    pq.write_table(pa.table(rows), file, use_dictionary=names, write_statistics=list(numbers), write_page_index=pages)
    sync(file, file.parent)
    return _added(path, file, part, _statistics(rows, numbers))


def _file_name(part: Mapping[str, str]) -> str:
    name = "/".join([*(f"{column}={value}" for column, value in part.items()), f"part-00000-{uuid.uuid4()}"])
    return f"{name}-c000.snappy.parquet"


def _added(path: Path, file: Path, part: Mapping[str, str], statistics: Mapping[str, object]) -> Action:
    return {
        "add": {
            "path": str(file.relative_to(path)),
            "partitionValues": dict(part),
            "size": file.stat().st_size,
            "modificationTime": _now_ms(),
            "dataChange": True,
            "stats": json.dumps(statistics),
        }
    }


def _statistics(rows: pa.RecordBatch | pa.Table, numbers: Iterable[str]) -> Mapping[str, object]:
    found = {name: pc.min_max(rows[name]) for name in numbers}
    ends = {end: {name: each[end].as_py() for name, each in found.items() if each[end].is_valid} for end in _ENDS}
    nulls = {name: rows[name].null_count for name in found}
    return {"numRecords": rows.num_rows, "minValues": ends["min"], "maxValues": ends["max"], "nullCount": nulls}


def _footer_statistics(footer: pq.FileMetaData, numbers: Iterable[str]) -> Mapping[str, object]:
    """The same, from what a file says of itself."""
    groups = [footer.row_group(number).to_dict()["columns"] for number in range(footer.num_row_groups)]
    found = {
        name: [c["statistics"] for group in groups for c in group if c["path_in_schema"] == name] for name in numbers
    }
    least, most, nulls = {}, {}, {}
    for name, each in found.items():
        nulls[name] = sum(one["null_count"] for one in each)
        if told := [one for one in each if one["has_min_max"]]:
            least[name], most[name] = min(one["min"] for one in told), max(one["max"] for one in told)
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


_ENDS = ("min", "max")


def removed(add: Mapping[str, object]) -> Action:
    """Give the action that takes a file out, from the one that added it, as the log tells it."""
    same = {name: add[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in add}
    return {"remove": {**same, "deletionTimestamp": _now_ms(), "dataChange": True, "extendedFileMetadata": True}}


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
        sync(unfinished)
        os.link(unfinished, log / f"{version:020}.json")
        sync(log)
    finally:
        unfinished.unlink(missing_ok=True)


def sync(*paths: Path) -> None:
    """Bring files, or the names in folders, to the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _now_ms() -> int:
    return int(time.time() * 1000)
