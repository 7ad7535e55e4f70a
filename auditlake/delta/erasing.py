"""Remove values from a Delta table for good: rewrite files, commit, then delete all that has older content. No JVM.

A deletion that keeps old files for readers, or only marks rows, leaves the values where anybody finds them. Here
nothing is kept: old data files, rows that deletion vectors mark, files that no commit ever named, and, if they may have
bounds of values, all older entries, checkpoints and checksums of the log.

Order of effects; the table is readable after each:

1. List all files of the table. Write new files without the values.
2. Commit (`ERASE`) at the next free version, unless another commit replaced one of these files; then begin again. It
   has the new files in place of the old ones, and no change of the data for streaming readers. Whoever wrote a file of
   the list and has not committed it planned an earlier version, and is refused from now on: nobody will commit it.
3. Delete the files of the list that the new version does not name (`delete_unnamed`).
4. Wait for files that were written after the list: a writer that planned before the commit may have read older ones. It
   is refused, and deletes its file; any other is committed. In an object store a file appears once it is complete,
   perhaps after this; its writer deletes it as well, or if it is killed before, the next one (`delete_uncommitted`).
5. If the log may have bounds of values: write a checkpoint, fsync it, and delete the log before it (`forget_log`).

A kill after 2 leaves old files; the next run lists them, commits again, and deletes them. In an object store, deleting
an object may leave older versions of it; those are the caller's concern (`store.object_versions`).

Authority: Delta's PROTOCOL.md, "Add File and Remove File", "Metadata Cleanup"
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.data_files import require_same_bytes, write_batches
from auditlake.delta.deletion_vectors import read_vector
from auditlake.delta.expired_files import named_files
from auditlake.delta.log_entry import entry_name
from auditlake.delta.log_reader import (
    Add,
    Replay,
    checkpoint_file,
    checkpoints,
    entry,
    file_path,
    identity,
    list_newest,
    live_files,
    removed_files,
)
from auditlake.delta.log_writer import Action, changes_table, moved, put_next, removed, without_change
from auditlake.delta.row_groups import read_batches, read_kept
from auditlake.delta.table import open_version
from auditlake.errors import LakeConflict
from auditlake.failpoints import After, reach
from auditlake.store.attempts import attempts
from auditlake.store.files import list_written, remove_durably, sync
from auditlake.store.place import Place

ERASE = "ERASE"
"""The operation of a commit that removes values; every writer goes on after it."""
Change = Callable[[pa.Table], pa.Table]
"""Returns the rows that stay, without the values that go. It is given all columns of some rows of one file."""
_LOG = "_delta_log"
_ATTEMPTS = 50
_WAIT_S = 60.0
_POLL_S = 0.05


def is_erasure(table: Place, version: int) -> bool:
    """Return whether the entry of a version is that of an erasure; False if there is none."""
    try:
        return any(action.get("commitInfo", {}).get("operation") == ERASE for action in entry(table, version))
    except FileNotFoundError:
        return False


def all_rows(table: Place) -> Iterator[pa.Table]:
    """Yield all rows of the live files of a table, those that are marked as deleted included."""
    version = list_newest(table).newest
    for add in live_files(table, version) if version >= 0 else ():
        for batch in read_batches(file_path(table, add)):
            yield pa.table(batch)


@dataclass(frozen=True, slots=True)
class ErasureTask:
    """A part of a table to erase: `concerns` is whether a file has any of it, also in rows that are deleted.

    `change` is applied to all rows of such files that are not deleted. `columns` get statistics; None for all integers.
    `positions` are set to the versions that they have, so that every commit that was planned before conflicts; `moved`
    are set to new ones.
    """

    concerns: Callable[[Add], bool]
    change: Change
    columns: Sequence[str] | None = None
    positions: Sequence[str] = ()
    moved: Mapping[str, int] = field(default_factory=dict)


def erase(table: Place, task: ErasureTask) -> int:
    """Rewrite the live files that are concerned, and delete every other content; return the version of the commit.

    Raises LakeUnusable if one is damaged, LakeConflict if other processes replace its files again and again.
    """
    for _ in attempts(_ATTEMPTS, str(table), "Run auditlake forget --resume."):
        listed = list_data_files(table)
        version = list_newest(table).newest
        actions: list[Action] = []
        for add in filter(task.concerns, live_files(table, version)):
            actions += [removed(add), *_rewritten(table, add, task)]
        actions += [*_positions(table, version, task.positions), *moved(task.moved)]
        reach(After.VALUES_REWRITTEN)
        committed = put_erasure(table, version + 1, actions)
        if committed is None:
            _delete(table, [str(action["add"]["path"]) for action in actions if "add" in action])
            continue
        reach(After.VALUES_ERASED)
        delete_unnamed(table, listed)
        reach(After.FILES_DELETED)
        _await_writers(table, listed)
        return committed
    raise AssertionError  # `attempts` ends with an error


def put_erasure(table: Place, version: int, actions: Sequence[Action]) -> int | None:
    """Commit at the next free version, and return it; the writer of the table goes on after it.

    None if another commit touched the files that are replaced, the table's own properties, or a position that is set.
    """
    ours: Sequence[Mapping[str, Any]] = actions
    replaced = {identity(each["remove"]) for each in ours if "remove" in each}
    positions = {each["txn"]["appId"]: each["txn"]["version"] for each in ours if "txn" in each}

    def conflicts(theirs: Mapping[str, Any]) -> bool:
        is_moved = theirs.get("txn", {}).get("appId") in positions
        return is_moved or changes_table(theirs) or ("remove" in theirs and identity(theirs["remove"]) in replaced)

    def conflicts_with(newest: Replay) -> bool:
        """Return whether the state lacks a replaced file or has a later position, or a new file was deleted since."""
        is_moved = any(newest.transactions.get(app, at) > at for app, at in positions.items())
        are_there = all((table / str(each["add"]["path"])).exists() for each in ours if "add" in each)
        return is_moved or not are_there or not newest.files.keys() >= replaced

    return put_next(table, version, ERASE, [*map(_unchanging, actions)], conflicts, conflicts_with)


def _unchanging(action: Action) -> Action:
    return action if "txn" in action else without_change(action)


def _positions(table: Place, version: int, apps: Sequence[str]) -> list[Action]:
    delta = open_version(table, version) if apps else None
    found = {app: at for app in apps if delta is not None and (at := delta.transaction_version(app)) is not None}
    return moved(found)


def _rewritten(table: Place, add: Add, task: ErasureTask) -> list[Action]:
    """Write what stays of a file into a new one; nothing if no row stays."""
    require_same_bytes(table, [add])
    gone = read_vector(table, add["deletionVector"]) if "deletionVector" in add else ()
    kept = (task.change(pa.table(batch)) for batch in read_kept(file_path(table, add), gone))
    batches = chain.from_iterable(rows.combine_chunks().to_batches() for rows in kept)
    return write_batches(table, batches, task.columns, dict(add["partitionValues"]))


def delete_unnamed(table: Place, listed: Iterable[str]) -> None:
    """Delete the files of a list from before the last commit of this process that the newest version does not name."""
    named = _with_checksums(named_files(table, live_files(table, list_newest(table).newest)))
    _delete(table, [name for name in listed if name not in named])


def _await_writers(table: Place, listed: Iterable[str]) -> None:
    """Wait until each file written after the list is committed or deleted; raises LakeConflict if that takes long."""
    until_s = time.monotonic() + _WAIT_S
    left = set(list_data_files(table)).difference(listed)
    while left := {name for name in left.difference(_committed(table)) if (table / name).exists()}:
        if time.monotonic() > until_s:
            raise LakeConflict(
                f"{table / min(left)} is in no commit, and may have values that are erased: its writer does not go on",
                "Run auditlake forget --resume once that process goes on or has ended.",
            )
        time.sleep(_POLL_S)


def delete_uncommitted(table: Place, listed: Iterable[str]) -> None:
    """Delete the files of a list from before the last commit of this process that no commit names."""
    committed = _committed(table)
    _delete(table, [name for name in listed if name not in committed])


def list_data_files(table: Place) -> list[str]:
    """List all files of a table but those of its log, also those that are in no commit."""
    return [name for name, _ in list_written(table) if not name.startswith(f"{_LOG}/")]


def _committed(table: Place) -> set[str]:
    """Return the files that the newest version names, or as removed."""
    newest = list_newest(table).newest
    return _with_checksums(named_files(table, [*live_files(table, newest), *removed_files(table, newest, None)]))


def _with_checksums(names: Iterable[str]) -> set[str]:
    found = set(names)
    return found | set(map(_checksum_of, found))


def _checksum_of(name: str) -> str:
    """Return the name of the checksum that Hadoop keeps beside a file on a disk."""
    return str(PurePosixPath(name).with_name(f".{PurePosixPath(name).name}.crc"))


def _delete(table: Place, names: Iterable[str]) -> None:
    remove_durably([table / name for name in names])


def forget_log(table: Place) -> None:
    """Write a checkpoint after the commit of an erasure, and delete the log before it: it may have bounds of values.

    Entries go in their order, so that a writer of before finds that its version was used (`log_writer.put_commit`).
    """
    checkpoint(table)
    log = table / _LOG
    newest = checkpoints(log)[0]
    reach(After.LOG_CHECKPOINTED)
    kept = {checkpoint_file(log, newest).name, "_last_checkpoint"}
    kept |= {entry_name(number) for number in list_newest(table).entries if number >= newest}
    for name, _ in sorted(list_written(log), key=lambda file: PurePosixPath(file[0]).name.lstrip(".")):
        if name not in kept:
            (log / name).unlink(missing_ok=True)
    sync(log)
    reach(After.LOG_FORGOTTEN)
