"""Log of a Delta table: entries, checkpoints, and the state at a version, by replay. No JVM.

A `remove`, or an `add` with a new deletion vector, must repeat the original `add`: its statistics and the descriptor of
its deletion vector. deltalake 1.6 exposes no descriptor, so the log is replayed here: the newest checkpoint that can be
read, then the entries after it. Supported are checkpoints of one Parquet file. If a log has others, entries are missing
and FileNotFoundError is raised; `data_files.list_any_files` then asks deltalake.

Nothing heavy is imported unless a checkpoint is read, because short commands read only the tail of a log.

In an object store, every request of a question takes as long as a small query. So entries are read at once, each by the
ETag that the listing shows, and kept by it: if a folder is deleted and created again, its versions have the same names
and other ETags, because every entry has a unique id. The last replay of a table is kept in the same way, by version and
ETag of its last entry, and continued from there.

Authority: Delta's PROTOCOL.md, "Action Reconciliation", "Checkpoints", "Add File and Remove File"
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from auditlake.delta.log_entry import entry_name, lost, parsed_entry, require_intact
from auditlake.errors import LakeUnusable
from auditlake.store.files import (
    AtOnce,
    list_versioned,
    parquet_listed,
    read_each,
    read_file,
    read_listed,
    require_files,
)
from auditlake.store.place import Place, by_requests, session_of
from auditlake.store.session import Kept

Add = Mapping[str, Any]
"""The content of an `add` action, or of a `remove`."""

AnyPlace = TypeVar("AnyPlace", bound=Place)
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_FRAMES = re.compile(r"\n\s+0: ")
"""The first frame of deltalake's threads, which its errors have below their reason."""
_TAIL_ENTRIES = 32
_PAGE = 1000
"""So many names are listed by one request."""
_REPLAYED_FILES = 50_000
"""Of all replays that a session keeps."""
_LISTED_LOGS = 64
_Adds = dict[tuple[str, ...], Add]
"""Logical files by `identity`."""
_STATE: Mapping[str, Sequence[str]] = {
    "txn": ("appId", "version"),
    "metaData": ("id", "name", "schemaString", "partitionColumns", "configuration"),
    "protocol": ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"),
}
_REPLAYED: Mapping[str, Sequence[str]] = {
    "add": ("path", "partitionValues", "size", "modificationTime", "stats", "tags", "deletionVector"),
    **_STATE,
}
"""Fields of the actions that a replay needs, by kind."""
_REMOVED: Mapping[str, Sequence[str]] = {"remove": ("path", "deletionTimestamp", "deletionVector")}
_MAPS = ("partitionValues", "tags", "configuration")


@dataclass(frozen=True, slots=True)
class Listing:
    """ETags of entries and checkpoints by version, from the version `since` on; None on a disk."""

    since: int
    entries: Mapping[int, str | None]
    checkpoints: Mapping[int, str | None]

    @property
    def newest(self) -> int:
        """The newest version; -1 if there is no table."""
        return max(self.entries, default=-1)

    def is_enough(self, version: int) -> bool:
        """Return whether a replay of a version can begin here."""
        return self.since == 0 or any(number <= version for number in self.checkpoints)


class _Logs:
    """Cache of logs in a store: the last replays and listings, and the newest version of each log."""

    def __init__(self) -> None:
        self.replays = Kept(_REPLAYED_FILES)
        self.listings = Kept(_LISTED_LOGS)
        self.newest: dict[Place, int] = {}


def live_files(table: Place, version: int, etag: str | None = None, listing: Listing | None = None) -> list[Add]:
    """List the `add` actions in force in a version.

    `etag` is that of its entry in a store, if it is known, `listing` a listing that shows it, if there is one.

    Raises FileNotFoundError if entries are missing that no supported checkpoint replaces.
    """
    return list(replay(table, version, etag, listing).files.values())


@dataclass(frozen=True, slots=True)
class Replay:
    """State of a table at a version: its files by `identity`, and the last of its other actions.

    `etag` is that of the version's entry in a store.
    """

    version: int
    etag: str | None
    files: _Adds
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Versions of application transactions."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """The columns, in Delta's JSON; raises KeyError if the log has no metadata."""
        return cast("Mapping[str, Any]", json.loads(self.metadata["schemaString"]))

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return dict(self.metadata.get("configuration") or {})

    @property
    def partition_columns(self) -> Sequence[str]:
        return self.metadata.get("partitionColumns") or ()

    def followed_by(self, version: int, etag: str | None, actions: Iterable[Mapping[str, Any]]) -> "Replay":
        """Return the state after more actions, at `version`."""
        files, transactions = dict(self.files), dict(self.transactions)
        last = {"metaData": self.metadata, "protocol": self.protocol}
        for action in actions:
            if "add" in action:
                files[identity(action["add"])] = action["add"]
            elif "remove" in action:
                files.pop(identity(action["remove"]), None)
            elif "txn" in action:
                transactions[action["txn"]["appId"]] = action["txn"]["version"]
            else:
                last.update((name, action[name]) for name in last.keys() & action)
        return Replay(version, etag, files, last["metaData"], last["protocol"], transactions)


def replay(table: Place, version: int, etag: str | None = None, listing: Listing | None = None) -> Replay:
    """Return the state at a version; arguments and exceptions are those of `live_files`."""
    known: Replay | None = session_of(table).part(_Logs).replays.find(table)
    if known is not None and (known.version, known.etag) == (version, etag):
        return known
    log = table / "_delta_log"
    start, listing = _continued(log, known, version) or _from_checkpoint(log, version, listing, _REPLAYED)
    since = {number: listing.entries.get(number) for number in range(start.version + 1, version + 1)}
    found = start.followed_by(version, listing.entries.get(version), read_actions(table, since))
    if found.etag is not None:
        session_of(table).part(_Logs).replays.put(table, found, len(found.files))
    return found


def read_newest_state(table: Place, *, again: bool = True) -> Replay | None:
    """Return the state at the newest version, without its files; None if there is no table.

    It is tried `again` after an error: a copy that starts again deletes the folder of its history.

    Raises LakeUnusable.
    """
    listing = list_newest(table)
    if (version := listing.newest) < 0:
        return None
    etag = listing.entries[version]
    known: Replay | None = session_of(table).part(_Logs).replays.find(table)
    if known is not None and (known.version, known.etag) == (version, etag):
        return known
    try:
        start, listing = _from_checkpoint(table / "_delta_log", version, listing, _STATE)
        since = {number: listing.entries.get(number) for number in range(start.version + 1, version + 1)}
        found = start.followed_by(version, etag, read_actions(table, since))
        found.metadata["schemaString"]  # a KeyError if the log has none
        return found  # noqa: TRY300
    except (ValueError, KeyError, TypeError, OSError) as exc:
        if again:
            return read_newest_state(table, again=False)
        raise unreadable_log(table, exc) from exc


def unreadable_log(table: Place, error: Exception) -> LakeUnusable:
    """Return the error for a log that cannot be read."""
    reason = " ".join(_FRAMES.split(str(error))[0].split())
    return LakeUnusable(f"the Delta log of {table} cannot be read: {reason}", "Restore the folder.")


def _continued(log: Place, known: Replay | None, version: int) -> tuple[Replay, Listing] | None:
    """Return the last replay of the table, if the log still has its entry, and this version is not an earlier one."""
    if known is None or known.version > version:
        return None
    listing = _list_since(log, known.version)
    return (known, listing) if listing.entries.get(known.version) == known.etag else None


def removed_files(table: Place, version: int, etag: str | None) -> list[Add]:
    """List the `remove` actions of the newest checkpoint up to a version, and of the entries after it.

    A checkpoint has those of the retention of the table. `etag` is that of the version's entry in a store.

    Raises FileNotFoundError as `live_files`.
    """
    log = table / "_delta_log"
    start, actions, listing = _read_checkpoint(log, version, list_with(table, version, etag), _REMOVED)
    entries = read_actions(table, {number: listing.entries.get(number) for number in range(start + 1, version + 1)})
    return [action["remove"] for action in chain(actions, entries) if "remove" in action]


def _from_checkpoint(
    log: Place, version: int, listing: Listing | None, kinds: Mapping[str, Sequence[str]]
) -> tuple[Replay, Listing]:
    """Return the newest checkpoint that can be read; an empty one of the version -1 if there is none."""
    number, actions, listing = _read_checkpoint(log, version, listing, kinds)
    return Replay(-1, None, {}).followed_by(number, listing.entries.get(number), actions), listing


def _read_checkpoint(
    log: Place, version: int, listing: Listing | None, kinds: Mapping[str, Sequence[str]]
) -> tuple[int, list[Mapping[str, Any]], Listing]:
    """Read the actions of these kinds from the newest checkpoint that can be read; none and -1 if there is none."""
    import pyarrow as pa  # noqa: PLC0415 - readers of the tail do not need it

    listing = listing if listing is not None and listing.is_enough(version) else _list_log(log, version)
    for number in sorted(listing.checkpoints, reverse=True):
        if number <= version:
            try:
                return number, list(_checkpointed(log, number, listing.checkpoints[number], kinds)), listing
            except (pa.ArrowException, OSError):
                continue  # entries are kept since an older checkpoint
    return -1, [], listing


def entry(table: Place, version: int) -> Iterator[Mapping[str, Any]]:
    """Read the actions of one version, each under its kind."""
    yield from _actions(table / "_delta_log", version, None)


def _actions(log: Place, version: int, etag: str | None) -> list[Mapping[str, Any]]:
    path = log / entry_name(version)
    return parsed_entry(path, read_listed(path, etag))


def require_entries(table: Path) -> None:
    """Require that no entry since the newest checkpoint is missing, empty or changed.

    To deltalake, an empty entry is a commit without actions, and it knows no checksum of an entry.

    Raises LakeUnusable, NotAFile.
    """
    log = table / "_delta_log"
    try:
        names = os.listdir(log)  # noqa: PTH208 - a third of the time, with thousands of entries
    except (FileNotFoundError, NotADirectoryError):
        return
    require_files(log / name for name in names if "checkpoint" in name)
    begin = max((name[:20] for name in names if ".checkpoint." in name and name[:20].isdigit()), default="")
    since = {int(name[:20]) for name in names if name[:20] > begin and _ENTRY.fullmatch(name)}
    for version in range(int(begin) + 1 if begin else 0, max(since, default=-1) + 1):
        path = log / entry_name(version)
        try:
            require_intact(path, read_file(path))
        except FileNotFoundError:
            if path.name not in names:  # else the folder of a history was deleted by a copy that starts again
                raise lost(path, "is missing") from None


def statistics(add: Add) -> Mapping[str, Any]:
    """Return the statistics of a data file that the log has; raises LakeUnusable if they are no statistics."""
    try:
        found = json.loads(add.get("stats") or "{}")
    except ValueError:
        found = None
    parts = ("minValues", "maxValues", "nullCount") if isinstance(found, dict) else ()
    if not parts or not all(isinstance(found.get(part) or {}, dict) for part in parts):
        raise LakeUnusable(
            f"the statistics of {add['path']} in its Delta log are damaged",
            "auditlake verify --no-source names the table and all damage. Restore its folder.",
        )
    return cast("Mapping[str, Any]", found)


def file_path(table: AnyPlace, add: Add) -> AnyPlace:
    """Return the path of a data file; the log has it URL-encoded."""
    return cast("AnyPlace", table / unquote(add["path"]))


def checkpoint_file(log: AnyPlace, version: int) -> AnyPlace:
    """Return the path of a checkpoint of one file."""
    return cast("AnyPlace", log / f"{version:020}.checkpoint.parquet")


def checkpoints(log: Place) -> list[int]:
    """List the versions that have a checkpoint of one file, newest first."""
    return sorted(_list_since(log, 0).checkpoints, reverse=True)


def entries_since(table: Place, version: int) -> Mapping[int, str | None]:
    """List the versions from this one on, each with the ETag of its entry in a store."""
    entries = _list_since(table / "_delta_log", version).entries
    return {number: etag for number, etag in entries.items() if number >= version}


def read_actions(table: Place, entries: Mapping[int, str | None]) -> list[Mapping[str, Any]]:
    """Read the actions of these versions, given with the ETags of their entries, in order."""
    log = table / "_delta_log"
    found = read_each(log, lambda version: _actions(log, version, entries[version]), sorted(entries))
    return [action for actions in found for action in actions]


def list_all(log: Place) -> Listing:
    """List a whole log; raises FileNotFoundError if there is none on a disk."""
    return _list_since(log, 0)


def list_newest(table: Place) -> Listing:
    """List at least the last entries of a log; nothing if there is no table."""
    try:
        return _list_newest(table / "_delta_log")
    except (FileNotFoundError, NotADirectoryError):
        return Listing(0, {}, {})


def list_with(table: Place, version: int, etag: str | None) -> Listing | None:
    """List a log from a checkpoint or its first entry on, up to a version at least; None if it begins later.

    `etag` is that of the version's entry in a store. The last listing that shows it is used, if there is one.
    """
    log = table / "_delta_log"
    last: Listing | None = session_of(log).part(_Logs).listings.find(log)
    if last is None or last.entries.get(version) != etag or not last.is_enough(version):
        last = _list_log(log, version)
    return last if last.is_enough(version) else None


@dataclass(frozen=True, slots=True)
class TailTransactions:
    """A table's version, the ETag of its entry in a store, and versions of application transactions.

    `requires` is what the last of these commits recorded of other tables, which were written before it.
    """

    version: int
    etag: str | None = field(compare=False)
    transactions: Mapping[str, int]
    requires: Mapping[str, int] = field(default_factory=dict)


def tail_transactions(table: Place, apps: Collection[str]) -> TailTransactions | None:
    """Read version and application transactions from the last entries; None if these lack one of `apps`."""
    log, versions, requires = table / "_delta_log", dict[str, int](), dict[str, int]()
    try:
        entries = _list_newest(log).entries
        numbers = sorted(entries, reverse=True)
        for number in numbers[:_TAIL_ENTRIES]:
            # A later entry overrides an older one, which is read only if the later ones lack a position.
            found, recorded = _transactions(log / entry_name(number), entries[number])
            versions, requires = {**found, **versions}, {**recorded, **requires}
            if versions.keys() >= set(apps):
                return TailTransactions(numbers[0], entries[numbers[0]], versions, requires)
    except FileNotFoundError:  # no table, or the entry was deleted after a checkpoint
        return None
    return None


def _transactions(entry_file: Place, etag: str | None) -> tuple[dict[str, int], dict[str, int]]:
    """Return the application transactions in an entry, and the versions of other tables that it requires."""
    content = read_listed(entry_file, etag)
    require_intact(entry_file, content)
    first, *lines = content.split(b"\n")
    requires = json.loads(first)["commitInfo"].get("requires", {}) if b'"requires"' in first else {}
    found = [json.loads(line)["txn"] for line in (first, *lines) if line.startswith(b'{"txn"')]
    return {transaction["appId"]: transaction["version"] for transaction in found}, requires


def _list_newest(log: Place) -> Listing:
    """List at least the last `_TAIL_ENTRIES` entries; in a store, from where the newest one was the last time."""
    logs = session_of(log).part(_Logs)
    seen = logs.newest.get(log)
    listing = Listing(0, {}, {}) if seen is None else _list_since(log, max(0, seen - _TAIL_ENTRIES))
    if not listing.entries:  # not listed before, or created again
        listing = _list_log(log)
    if by_requests(log) and listing.entries:
        logs.newest[log] = listing.newest
        logs.listings.put(log, listing, 1)
    return listing


def _list_log(log: Place, upto: int | None = None) -> Listing:
    """List a log; a long one in a store from the last checkpoint on, if that is not later than `upto`."""
    if not by_requests(log):
        return _list_since(log, 0)
    with AtOnce(log) as at_once:
        hint = at_once.start(_hinted, log)
        first = list(islice(list_versioned(log, ""), _PAGE))
    if len(first) < _PAGE:
        return _listing(0, first)
    hinted = hint.result()
    return _list_since(log, max(0, hinted - _TAIL_ENTRIES) if upto is None or hinted <= upto else 0)


def _list_since(log: Place, version: int) -> Listing:
    """List the files of a version and those after it; on a disk, of all versions."""
    return _listing(version if by_requests(log) else 0, list_versioned(log, f"{version:020}"))


def _listing(since: int, names: Iterable[tuple[str, str | None]]) -> Listing:
    entries, checkpointed = dict[int, str | None](), dict[int, str | None]()
    for name, etag in names:
        if match := _ENTRY.fullmatch(name):
            entries[int(match[1])] = etag
        elif match := _CHECKPOINT.fullmatch(name):
            checkpointed[int(match[1])] = etag
    return Listing(since, entries, checkpointed)


def _hinted(log: Place) -> int:
    """Return the version of the last checkpoint in an object store, where a listing of the whole log is slow."""
    try:
        return int(json.loads(read_file(log / "_last_checkpoint"))["version"])
    except (FileNotFoundError, ValueError, KeyError):
        return 0


def identity(action: Add) -> tuple[str, ...]:
    """Return the key of a logical file: its path and its deletion vector."""
    vector = action.get("deletionVector")
    marks = () if vector is None else (vector["storageType"], vector["pathOrInlineDv"], f"{vector.get('offset')}")
    return (action["path"], *marks)


def _checkpointed(
    log: Place, version: int, etag: str | None, kinds: Mapping[str, Sequence[str]]
) -> Iterator[Mapping[str, Any]]:
    import pyarrow.compute as pc  # noqa: PLC0415 - as above
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = [f"{kind}.{name}" for kind, names in kinds.items() for name in names]
    rows = pq.ParquetFile(parquet_listed(checkpoint_file(log, version), etag)).read(columns=columns)
    for kind in kinds:
        if kind not in rows.column_names:
            continue
        for row in rows[kind].filter(pc.is_valid(rows[kind])).to_pylist():
            action = {name: value for name, value in row.items() if value is not None}
            yield {kind: {**action, **{name: dict(action[name]) for name in _MAPS if name in action}}}
