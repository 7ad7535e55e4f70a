"""Pin a lake: one version of each of its tables, and its small files, that belong together, while stages write it.

A pinned lake is a state that a kill of all stages could have left, except that histories may be further behind, which
the next apply makes up for. Order:

1. Read the small files (records), except those that are only informational or a cache.
2. The ledger: blocks, then entries. A block is never in a pin without its entries, or without the changes it seals.
3. Histories. `changes`, which is read after them, has every commit up to their positions.
4. `changes`: its version is that of the whole lake.
5. `added`, `relations`, `transactions`, `gaps` and whatever else is a table. A writer appends to them before `changes`,
   so they have everything that `changes` refers to. `transactions` is pinned at its last version without rows of a
   later batch; rows that were erased or have expired since are not in it.
6. Read the small files again. If one has changed, a table was parked, a schema changed or a block was begun meanwhile:
   pin again.

Nothing is written. A pin takes milliseconds, a second for thousands of tables. `delta.checkpoints` keeps the
pinned data files for six hours, the log entries for one.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from auditlake.delta.log_entry import entry_name
from auditlake.delta.log_reader import Listing, entry, list_newest, list_with
from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.lake.layout import CHANGES_APP, TRANSACTIONS_APP, Lake
from auditlake.lake.stage_lock import FOLDER
from auditlake.store.files import UNFINISHED, list_written, local_path, read_file
from auditlake.store.place import Place

MANIFEST = "lake.json"
_LOG = "_delta_log"
_LEFT_OUT = frozenset({FOLDER, "resync", "histories.json"})
"""Locks, copies that are being compared, a cache."""
_INFORMATIONAL = {"capture.json": b"", "apply.json": b""}
"""Read before the pin, so that the recorded publication is no later than the changes."""
_CHANGES, _TRANSACTIONS = "changes", "transactions"
_ATTEMPTS = 50
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Pin:
    """A version of the table in a folder of the lake; `id` is the content of its entry, which no other has."""

    name: str
    version: int
    id: bytes
    listing: Listing


@dataclass(frozen=True, slots=True)
class PinnedLake:
    """Versions of tables, in the order in which they were pinned, and the content of small files by their names."""

    pins: tuple[Pin, ...]
    records: Mapping[str, bytes]


def pin_lake(lake: Lake) -> PinnedLake:
    """Pin the current state; raises LakeConflict if records keep changing, LakeUnusable."""
    for _ in range(_ATTEMPTS):
        found = _pin_once(lake)
        if found is not None:
            return found
        time.sleep(_PAUSE_S)
    raise LakeConflict(
        f"the tables of {lake.root} change their shape, or are copied, all the time",
        "Run this again when that is done.",
    )


def _pin_once(lake: Lake) -> PinnedLake | None:
    """Return None if something changed meanwhile that a pin must not mix."""
    try:
        tables, files = _walk(lake.root)
        records = _read(lake.root, files)
        pins = tuple(_pin_in_order(lake, tables))
        again = _read(lake.root, _walk(lake.root)[1])
    except FileNotFoundError:  # a record was removed, or a copy that starts again deletes its folder
        return None
    if records | _INFORMATIONAL != again | _INFORMATIONAL:
        return None
    return PinnedLake(pins, records)


def _walk(root: Place) -> tuple[list[str], list[str]]:
    """Return the folders of all tables, and all files that are not part of a table, by their names in the lake."""
    if (folder := local_path(root)) is not None:
        found = list(_walk_folder(folder, ""))
    else:
        names = [name for name, _ in list_written(root)]
        tables = {name.partition(f"/{_LOG}/")[0] for name in names if f"/{_LOG}/" in name}
        inside = tuple(f"{table}/" for table in tables)
        found = [(table, True) for table in tables]
        found += [(name, False) for name in names if not name.startswith(inside)]
    kept = [(name, table) for name, table in found if name.partition("/")[0] not in _LEFT_OUT]
    return sorted(name for name, table in kept if table), sorted(name for name, table in kept if not table)


def _walk_folder(folder: Path, name: str) -> Iterator[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        children = list(entries)
    if any(child.name == _LOG for child in children):
        yield name, True
        return
    for child in children:
        below = f"{name}/{child.name}" if name else child.name
        if child.is_dir():
            if below not in _LEFT_OUT:
                yield from _walk_folder(folder / child.name, below)
        elif not child.name.endswith(UNFINISHED):
            yield below, False


def _read(root: Place, names: list[str]) -> dict[str, bytes]:
    return {name: read_file(root / name) for name in names}


def _pin_in_order(lake: Lake, tables: list[str]) -> Iterator[Pin]:
    watermark = None
    for name in sorted(tables, key=lambda name: (_rank(name), name)):
        version = None
        if name == _TRANSACTIONS and watermark is not None:
            version = _last_complete(lake.transactions, watermark)
        if (pin := _pin(lake.root / name, name, version)) is None:
            continue
        if name == _CHANGES:
            watermark = _last_position(lake.changes, pin, CHANGES_APP)
        yield pin


def _rank(name: str) -> int:
    ordered = ("ledger/blocks", "ledger/entries")
    if name in ordered:
        return ordered.index(name)
    return 2 if name.startswith("history/") else 3 if name == _CHANGES else 4


def _pin(table: Place, name: str, version: int | None) -> Pin | None:
    """Pin a version, without one the newest; None if nothing was committed to the table yet."""
    newest = list_newest(table)
    if newest.newest < 0:
        return None
    chosen = newest.newest if version is None else version
    listing = list_with(table, chosen, newest.entries.get(chosen))
    if listing is None or chosen not in listing.entries:
        raise LakeUnusable(f"the log of {table} has no entry of version {chosen}", "Restore the folder.")
    content = read_file(table / _LOG / entry_name(chosen))
    return Pin(name, chosen, content, listing)


def _last_complete(table: Place, watermark: int) -> int | None:
    """Return the last version with the first position from the watermark on; None if no entry sets such a one."""
    listing, found = list_newest(table), None
    moved = listing.newest + 1
    for version in sorted(listing.entries, reverse=True):
        position = _position(table, version, TRANSACTIONS_APP)
        if position is None:
            continue
        if position < watermark:
            break
        moved, found = version, moved - 1
    return found


def _last_position(table: Place, pin: Pin, app: str) -> int | None:
    """Return a position as of a pin; None if no entry sets it: it has not begun, or is in a checkpoint only."""
    versions = sorted((version for version in pin.listing.entries if version <= pin.version), reverse=True)
    found = (_position(table, version, app) for version in versions)
    return next((position for position in found if position is not None), None)


def _position(table: Place, version: int, app: str) -> int | None:
    """Return a position that the entry of a version sets; None if it sets none."""
    transactions = (action["txn"] for action in entry(table, version) if "txn" in action)
    return next((int(each["version"]) for each in transactions if each["appId"] == app), None)


def manifest_id(records: Mapping[str, bytes]) -> str:
    """Return what distinguishes a lake from all others: its source, and when it was created."""
    content = json.loads(records[MANIFEST])
    return f"{content.get('system_identifier')}/{content.get('database')}/{content.get('created')}"
