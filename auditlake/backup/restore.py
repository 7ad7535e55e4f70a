"""Restore a backup into a new folder, which becomes a lake with the last effect.

Order of effects, under a lock on the new folder:

1. Write `restore.json`, the backup that is restored: a killed run goes on, and only with the same backup.
2. For each table: its data files and deletion vectors, then its log.
3. The small files. In a restored lake nothing expires until that is confirmed (`erasure.retention`).
4. `lake.json`. Until then there is no lake; from now on this one is complete.
5. Delete `restore.json`.

Nothing at the source is touched. If the slot was acknowledged past the backup, the next capture names the missing range
and stops (`capture.preconditions`); `resync --all` records it as a gap.
"""

import json

from auditlake.backup.pinned import MANIFEST, manifest_id
from auditlake.backup.stored import Backup, Folder
from auditlake.erasure.retention import mark_restored
from auditlake.errors import BadUsage, LakeUnusable
from auditlake.failpoints import After, reach
from auditlake.lake.layout import Lake
from auditlake.lake.records import require_record, writing_files
from auditlake.lake.stage_lock import FOLDER, Stage, hold
from auditlake.messages import Say
from auditlake.store.files import (
    UNFINISHED,
    copy_file,
    ensure_folder,
    existing_files,
    make_folder,
    read_file,
    size_bytes,
    write_new,
)
from auditlake.store.place import Place

_MARK = "restore.json"
_ANOTHER = "Restore it, or restore an earlier backup."


def restore(folder: Folder, lake: Lake, number: int | None, report: Say) -> Backup:
    """Restore a complete backup, without a number the last one, into a folder that is new, or left by a killed run.

    Raises BadUsage if there is no such backup, or the folder is among the backups; LakeUnusable if it cannot be read,
    or the folder has anything else.
    """
    folder.require_apart(lake.root)
    backup = folder.read(_chosen(folder, number))
    _require_manifest(folder, backup)
    mark = json.dumps({"lake": backup.lake, "number": backup.number, "taken": backup.taken}).encode()
    _require_ours(lake, mark)
    with writing_files(lake.root):
        ensure_folder(lake.root)
    with hold(lake, "restore", Stage.BOOTSTRAP):
        _require_ours(lake, mark)
        if not lake.manifest.exists():
            write_new(lake.root / _MARK, mark)
            for table in backup.tables:
                _restore_table(folder, backup, table, lake.root)
            _restore_records(folder, backup, lake)
            reach(After.RESTORED)
        (lake.root / _MARK).unlink(missing_ok=True)
    report(f"restored backup {backup.number} of {backup.taken}: everything up to {backup.watermark}")
    return backup


def _chosen(folder: Folder, number: int | None) -> int:
    complete = folder.complete()
    if not complete:
        raise BadUsage(f"there is no complete backup in {folder.root}", "Give the folder of auditlake backup.")
    if number is not None and number not in complete:
        raise BadUsage(f"there is no backup {number} in {folder.root}, from {complete[0]} to {complete[-1]}", "")
    return complete[-1] if number is None else number


def _require_manifest(folder: Folder, backup: Backup) -> None:
    """Require the manifest of the backup's lake, which is copied last: without it there would be none."""
    place = folder.own(folder.record(backup.number, MANIFEST))
    found = require_record(place, lambda _: manifest_id({MANIFEST: read_file(place)}), _ANOTHER)
    if found != backup.lake:
        raise LakeUnusable(f"{place} is of the lake {found}, need {backup.lake}", _ANOTHER)


def _require_ours(lake: Lake, mark: bytes) -> None:
    """Require a folder that has nothing but what a killed run of the same restore left."""
    root: Place = lake.root
    try:
        names = {place.name for place in root.iterdir() if not place.name.endswith(UNFINISHED)} - {FOLDER}
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise LakeUnusable(f"{root} is not a folder", "Use another one.") from None
    if _MARK in names and read_file(root / _MARK) == mark:
        return
    if names:
        raise LakeUnusable(
            f"{root} is not empty, and not what this restore left: it contains {min(names)}", "Use another folder."
        )


def _restore_table(folder: Folder, backup: Backup, table: str, root: Place) -> None:
    target, files = root / table, folder.files(table)
    present = existing_files(target)
    for name, stated in sorted(folder.named(backup, table).items()):
        make_folder((target / name).parent)
        copied = _copied(folder.own(files / name), target / name, present, name)
        if stated is not None and copied != stated:
            raise LakeUnusable(f"{files / name} has {copied:,} bytes, need {stated:,}", _ANOTHER)
        reach(After.FILE_RESTORED)
    log = folder.logs(backup.tables[table].log).root / table / "_delta_log"
    make_folder(target / "_delta_log")
    for name in sorted(place.name for place in log.iterdir() if not place.name.endswith(UNFINISHED)):
        _copied(folder.own(log / name), target / "_delta_log" / name, present, f"_delta_log/{name}")


def _copied(source: Place, target: Place, present: set[str], name: str) -> int:
    """Copy a file unless a killed run did; return its size."""
    if name in present:
        return size_bytes(target)
    try:
        return copy_file(source, target)
    except FileNotFoundError as exc:
        raise LakeUnusable(f"{source} is missing", _ANOTHER) from exc


def _restore_records(folder: Folder, backup: Backup, lake: Lake) -> None:
    """Write the small files, then that nothing expires until that is confirmed; lake.json last."""
    for name in sorted(backup.records, key=lambda name: (name == MANIFEST, name)):
        if name == MANIFEST:
            mark_restored(lake)
            reach(After.RECORDS_RESTORED)
        place: Place = lake.root / name
        make_folder(place.parent)
        try:
            copy_file(folder.own(folder.record(backup.number, name)), place)
        except FileNotFoundError as exc:
            raise LakeUnusable(f"{folder.record(backup.number, name)} is missing", "Restore it.") from exc
