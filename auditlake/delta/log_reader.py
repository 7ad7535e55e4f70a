"""Log of a Delta table: its entries, its checkpoints, and the data files of a version by replay of both. No JVM.

A `remove`, or an `add` with a new deletion vector, must repeat the original `add`: its statistics and the descriptor of
its deletion vector. deltalake 1.6 exposes no descriptor, so the log is replayed here: the newest checkpoint that can be
read, then the entries after it. Supported are checkpoints of one Parquet file. If a log has others, entries are missing
and FileNotFoundError is raised; `data_files.list_any_files` then asks deltalake.

Nothing heavy is imported unless a checkpoint is read, because short commands read only the tail of a log.

Authority: Delta's PROTOCOL.md, "Action Reconciliation", "Checkpoints", "Add File and Remove File"
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from auditlake.store.files import list_from, parquet
from auditlake.store.place import Place

Add = Mapping[str, Any]
"""The content of an `add` action."""

AnyPlace = TypeVar("AnyPlace", bound=Place)
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_TAIL_ENTRIES = 32
_FIELDS = ("path", "partitionValues", "size", "modificationTime", "stats", "tags", "deletionVector")


def live_files(table: Place, version: int) -> list[Add]:
    """List the `add` actions in force in a version.

    Raises FileNotFoundError if entries are missing that no supported checkpoint replaces.
    """
    start, files = _newest_readable(table / "_delta_log", version)
    for number in range(start + 1, version + 1):
        for action in entry(table, number):
            if "add" in action:
                files[_identity(action["add"])] = action["add"]
            elif "remove" in action:
                files.pop(_identity(action["remove"]), None)
    return list(files.values())


def entry(table: Place, version: int) -> Iterator[Mapping[str, Any]]:
    """Read the actions of one version, each under its kind."""
    for line in (table / "_delta_log" / f"{version:020}.json").read_text().splitlines():
        yield json.loads(line)


def file_path(table: AnyPlace, add: Add) -> AnyPlace:
    """Return the path of a data file; the log has it URL-encoded."""
    return cast("AnyPlace", table / unquote(add["path"]))


def checkpoint_file(log: AnyPlace, version: int) -> AnyPlace:
    """Return the path of a checkpoint of one file."""
    return cast("AnyPlace", log / f"{version:020}.checkpoint.parquet")


def checkpoints(log: Place) -> list[int]:
    """List the versions that have a checkpoint of one file, newest first."""
    return _versions(log, _CHECKPOINT)


def tail_transactions(table: Place, apps: Collection[str]) -> tuple[int, dict[str, int]] | None:
    """Read the table's version, and the versions of application transactions, from the last entries of the log.

    Returns None if these lack one of `apps`, or there is no table.
    """
    log, versions = table / "_delta_log", dict[str, int]()
    try:
        numbers = _versions(log, _ENTRY, max(0, _hinted(log) - _TAIL_ENTRIES))
        for number in numbers[:_TAIL_ENTRIES]:
            # A later entry overrides an older one, which is read only if the later ones lack a position.
            versions = {**dict(_transactions(log / f"{number:020}.json")), **versions}
            if versions.keys() >= set(apps):
                return numbers[0], versions
    except FileNotFoundError:  # no table, or the entry was deleted after a checkpoint
        return None
    return None


def _transactions(entry_file: Place) -> Iterator[tuple[str, int]]:
    with entry_file.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"txn"'):
                transaction = json.loads(line)["txn"]
                yield transaction["appId"], transaction["version"]


def _versions(log: Place, pattern: re.Pattern[str], since: int = 0) -> list[int]:
    """List the versions from `since` on that have such a file, newest first."""
    names = (file.name for file in log.iterdir()) if isinstance(log, Path) else list_from(log, f"{since:020}")
    matches = (pattern.fullmatch(name) for name in names)
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def _hinted(log: Place) -> int:
    """Return the version of the last checkpoint in an object store, where a listing of the whole log is slow."""
    if isinstance(log, Path):
        return 0
    try:
        return int(json.loads((log / "_last_checkpoint").read_text())["version"])
    except (FileNotFoundError, ValueError, KeyError):
        return 0


def _identity(action: Add) -> tuple[str, ...]:
    """Return the key of a logical file: its path and its deletion vector."""
    vector = action.get("deletionVector")
    marks = () if vector is None else (vector["storageType"], vector["pathOrInlineDv"], f"{vector.get('offset')}")
    return (action["path"], *marks)


def _newest_readable(log: Place, version: int) -> tuple[int, dict[tuple[str, ...], Add]]:
    """Read the newest checkpoint that can be read, with its version; no files and -1 if there is none."""
    import pyarrow as pa  # noqa: PLC0415 - readers of the tail do not need it

    hinted = _hinted(log)
    for number in _versions(log, _CHECKPOINT, hinted if hinted <= version else 0):
        if number <= version:
            try:
                return number, {_identity(add): add for add in _checkpointed(checkpoint_file(log, number))}
            except (pa.ArrowException, OSError):
                continue  # entries are kept since an older checkpoint
    return -1, {}


def _checkpointed(checkpoint: Place) -> Iterator[Add]:
    import pyarrow.compute as pc  # noqa: PLC0415 - as above
    import pyarrow.parquet as pq  # noqa: PLC0415

    rows = pq.ParquetFile(parquet(checkpoint)).read(columns=[f"add.{field}" for field in _FIELDS])["add"]
    for row in rows.filter(pc.is_valid(rows)).to_pylist():
        add = {name: value for name, value in row.items() if value is not None}
        yield {**add, **{name: dict(add[name]) for name in ("partitionValues", "tags") if name in add}}
