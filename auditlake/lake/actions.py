"""The data files of a Delta table at one version, with all that the log says of each. No JVM.

Who takes a file out of a table, or marks rows of it, must name it as it was added: its statistics and its deletion
vector too, which deltalake does not tell. So the log is read here: the last checkpoint, then the commits after it.

Only logs as Delta writes them without further table features, a checkpoint being one file: of any other, entries are
missing where they are looked for.

Authority: Delta's PROTOCOL.md, "Action Reconciliation", "Checkpoints", "Add File and Remove File"
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.compute as pc
import pyarrow.parquet as pq

Add = Mapping[str, Any]
"""What an `add` action says of its file."""

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_FIELDS = ("path", "partitionValues", "size", "modificationTime", "stats", "tags", "deletionVector")


def live_files(path: Path, version: int) -> list[Add]:
    """List the files of a version.

    Raises FileNotFoundError where the log is kept in another way.
    """
    log = path / "_delta_log"
    checkpoints = (int(found[1]) for each in log.iterdir() if (found := _CHECKPOINT.fullmatch(each.name)))
    begin = max((number for number in checkpoints if number <= version), default=-1)
    files = {} if begin < 0 else {_identity(add): add for add in _checkpointed(log, begin)}
    for number in range(begin + 1, version + 1):
        for action in entry(path, number):
            if "add" in action:
                files[_identity(action["add"])] = action["add"]
            elif "remove" in action:
                files.pop(_identity(action["remove"]), None)
    return list(files.values())


def entry(path: Path, version: int) -> Iterator[Mapping[str, Any]]:
    """Give the actions of one version, each under its kind."""
    for line in (path / "_delta_log" / f"{version:020}.json").read_text().splitlines():
        yield json.loads(line)


def file_path(table: Path, add: Add) -> Path:
    """Say where the file is."""
    return table / unquote(add["path"])


def _identity(action: Add) -> tuple[str, ...]:
    """One file with another deletion vector is another one to the log."""
    vector = action.get("deletionVector")
    marks = () if vector is None else (vector["storageType"], vector["pathOrInlineDv"], f"{vector.get('offset')}")
    return (action["path"], *marks)


def _checkpointed(log: Path, version: int) -> Iterator[Add]:
    wanted = [f"add.{field}" for field in _FIELDS]
    rows = pq.ParquetFile(log / f"{version:020}.checkpoint.parquet").read(columns=wanted)["add"]
    for add in rows.filter(pc.is_valid(rows)).to_pylist():
        said = {name: value for name, value in add.items() if value is not None}
        yield {**said, **{name: dict(said[name]) for name in ("partitionValues", "tags") if name in said}}
