"""Deliberate damage of a history: rows of a file, and entries of the log, replaced in place."""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.delta.data_files import file_statistics, statistics_json
from auditlake.delta.log_entry import ENGINE, entry_bytes
from auditlake.delta.log_writer import CHECKSUM_TAG
from auditlake.lake.history import HistoryTable
from auditlake.lake.history_files import find_files
from auditlake.store.files import parquet
from tests.s3_server import overwrite


def flipped(content: bytes, place: int) -> bytes:
    """Return the content with one bit of the byte at a place flipped."""
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def file_of(table: HistoryTable, number: int, part: str = "open") -> Path:
    """Return the file with the version of an id that is not marked as deleted."""
    files = find_files(table)
    assert files is not None
    for name, file in files.of_part(part).by_name.items():
        path = table.path / f"_part={part}" / name
        ids = pq.ParquetFile(parquet(path)).read(["id"])["id"].to_pylist()
        if any(each == number and place not in files.gone(name) for place, each in enumerate(ids)):
            assert file.size_bytes == path.stat().st_size
            return path
    raise AssertionError(f"no version of {number}")


def rewrite(table: HistoryTable, path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Replace the rows of a file, and its size and statistics in the log."""
    content = BytesIO()
    pq.write_table(change(pq.ParquetFile(parquet(path)).read()), content)
    overwrite(path, content.getvalue())
    footer = pq.read_metadata(content)

    def corrected(add: dict[str, Any]) -> dict[str, Any]:
        if Path(add["path"]).name != path.name:
            return add
        before = json.loads(add["stats"])
        statistics = before | file_statistics(footer, before.get("minValues", ()))
        return with_file(add, content.getvalue(), statistics_json(statistics))

    edit_log(table, corrected)


def summed(name: str, actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the log entry of this name with these actions; if the writer's had a checksum, with the right one."""
    first, *others = actions
    if first.get("commitInfo", {}).get("engineInfo") != ENGINE:
        return "".join(f"{json.dumps(action)}\n" for action in (first, *others)).encode()
    return entry_bytes(
        int(name.removesuffix(".json")),
        {k: v for k, v in first["commitInfo"].items() if k not in {"engineInfo", "crc32"}},
        others,
    )


def with_file(add: Mapping[str, Any], content: bytes, statistics: str) -> dict[str, Any]:
    """Return the `add` of a file that now has this content."""
    tags = {"tags": {CHECKSUM_TAG: f"{zlib.crc32(content):08x}"}} if CHECKSUM_TAG in (add.get("tags") or {}) else {}
    return {**add, "size": len(content), "stats": statistics, **tags}


def edit_log(table: HistoryTable, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Replace the `add` actions of every entry of the log."""
    for entry in (table.path / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        changed = [{**action, "add": change(action["add"])} if "add" in action else action for action in actions]
        overwrite(entry, summed(entry.name, changed))


def as_ours(table: Path) -> None:
    """Add the checksums that auditlake writes to the entries and files of a table that deltalake wrote."""
    for entry in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        actions.sort(key=lambda action: "commitInfo" not in action)
        actions[0]["commitInfo"]["engineInfo"] = ENGINE
        for action in actions:
            if "add" in action:
                content = (table / unquote(action["add"]["path"])).read_bytes()
                action["add"]["tags"] = {CHECKSUM_TAG: f"{zlib.crc32(content):08x}"}
        overwrite(entry, summed(entry.name, actions))
