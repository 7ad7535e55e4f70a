"""Check a Delta log against itself: no entry missing or damaged, and every checkpoint equal to a replay of the entries.

Entries are replayed from the oldest checkpoint, or from the first one, to each later checkpoint. Of the oldest
checkpoint, whose entries have expired, only readability is checked. Two losses leave no trace in a log: that of its
last entry, which leaves the table as it was before that commit, and that of entries that are about to expire.

A table may be written meanwhile, and its expired entries deleted, so a problem is one that is found twice. Checkpoints
of several files are another program's, and not read.

Authority: Delta's PROTOCOL.md, "Action Reconciliation", "Checkpoints"
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.delta.data_files import FileProblem
from auditlake.delta.log_entry import entry_name, parsed_entry
from auditlake.delta.log_reader import Listing, checkpoint_file, identity, list_all, statistics
from auditlake.errors import LakeUnusable
from auditlake.store.failures import NotAFile
from auditlake.store.files import parquet, read_each, read_file
from auditlake.store.place import Place

Action = Mapping[str, Any]
_HINT = "_last_checkpoint"
_NO_ACTION = (ValueError, KeyError, TypeError, AttributeError)
"""Exceptions of reading an action that is not as Delta defines it."""


def log_problems(table: Place) -> list[FileProblem]:
    """Return the problems of a table's log; one if there is none."""
    # Only a problem that is found twice counts: entries may be written and expire meanwhile.
    return list(_problems(table)) and list(_problems(table))


def _problems(table: Place) -> Iterator[FileProblem]:
    log = table / "_delta_log"
    try:
        listing = list_all(log)
    except (FileNotFoundError, NotADirectoryError):
        listing = Listing(0, {}, {})
    if not listing.entries:
        yield FileProblem("missing log", "_delta_log", "it has no entry")
        return
    begin = min(listing.entries)
    if not _may_begin(begin, sorted(listing.checkpoints)):
        yield _missing(begin - 1)
    yield from _replayed(log, listing, begin)
    yield from _hint_problems(log, listing)


def _may_begin(begin: int, checkpoints: list[int]) -> bool:
    """Return whether all entries before this one may have expired: none from the second newest checkpoint on does."""
    return begin == 0 or begin in checkpoints[:1] or begin <= max(checkpoints[:-1], default=0)


def _hint_problems(log: Place, listing: Listing) -> Iterator[FileProblem]:
    """Check the file with the version of the last checkpoint, if there is one."""
    try:
        hint = json.loads(read_file(log / _HINT))
        if "parts" not in hint and "v2Checkpoint" not in hint and hint["version"] not in listing.checkpoints:
            yield FileProblem("missing checkpoint", _name(hint["version"]), f"{_HINT} names it")
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as exc:
        yield FileProblem("unreadable file", f"_delta_log/{_HINT}", type(exc).__name__)


def _missing(version: int) -> FileProblem:
    return FileProblem("missing log entry", f"_delta_log/{entry_name(version)}", "its commit is lost")


def _replayed(log: Place, listing: Listing, begin: int) -> Iterator[FileProblem]:
    """Replay all entries, and compare each checkpoint on the way."""
    state = _State() if begin == 0 else None
    versions = range(begin, max([listing.newest, *listing.checkpoints]) + 1)
    entries = read_each(log, lambda version: _entry(log, listing, version), versions)
    for version, (actions, problem) in zip(versions, entries, strict=True):
        if problem is not None:
            yield problem
            state = None  # until the next checkpoint
        elif state is not None:
            state.apply(actions)
        if version in listing.checkpoints:
            found = _checkpoint(log, version)
            if isinstance(found, FileProblem):
                yield found
                continue
            if state is not None and (differing := found.differs_in(state)):
                yield FileProblem("checkpoint", _name(version), f"differs from the entries in {differing}")
            state = state or found


def _entry(log: Place, listing: Listing, version: int) -> tuple[list[Action], FileProblem | None]:
    place = log / entry_name(version)
    problem = partial(FileProblem, "log entry", f"_delta_log/{place.name}")
    try:
        if version not in listing.entries:
            return [], _missing(version)
        actions = parsed_entry(place, read_file(place))
        _State().apply(actions)
    except FileNotFoundError:
        return [], _missing(version)
    except LakeUnusable as exc:
        return [], problem(exc.message.removeprefix(f"{place} "))
    except (NotAFile, *_NO_ACTION) as exc:
        return [], problem(f"an action cannot be read: {type(exc).__name__}")
    if not any("commitInfo" in action for action in actions):
        return [], problem("it has no commitInfo")
    return actions, None


def _checkpoint(log: Place, version: int) -> "_State | FileProblem":
    state = _State()
    try:
        rows = pq.ParquetFile(parquet(checkpoint_file(log, version))).read()
        state.apply(
            {kind: _without_null(row[kind])} for row in rows.to_pylist() for kind in row if row[kind] is not None
        )
    except (pa.ArrowException, OSError, LakeUnusable, *_NO_ACTION) as exc:
        return FileProblem("checkpoint", _name(version), f"unreadable: {type(exc).__name__}")
    return state


def _without_null(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}


def _name(version: int) -> str:
    return f"_delta_log/{version:020}.checkpoint.parquet"


@dataclass
class _State:
    """What a log says: files, positions, columns and properties."""

    files: dict[tuple[str, ...], object] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    table: tuple[object, ...] = ()

    def apply(self, actions: "Iterator[Action] | list[Action]") -> None:
        """Apply the actions of an entry or of a checkpoint."""
        for action in actions:
            if (add := action.get("add")) is not None:
                self.files[identity(add)] = _facts(add)
            elif (gone := action.get("remove")) is not None:
                self.files.pop(identity(gone), None)
            elif (txn := action.get("txn")) is not None:
                self.positions[txn["appId"]] = txn["version"]
            elif (metadata := action.get("metaData")) is not None:
                self.table = (metadata["id"], metadata["schemaString"], dict(metadata["configuration"]))

    def differs_in(self, other: "_State") -> str:
        """Name what differs."""
        names = ("files", "positions", "table")
        return ", ".join(name for name in names if getattr(self, name) != getattr(other, name))


def _facts(add: Action) -> object:
    vector = add.get("deletionVector") or {}
    rows = statistics(add).get("numRecords")
    return add["size"], dict(add["partitionValues"]), dict(add.get("tags") or {}), vector.get("cardinality"), rows
