"""Take a backup of a lake, beside capture, apply and maintenance; read-only for the lake.

Order of effects, under a lock on the folder of backups:

1. Delete what a killed run left of its backup; the files that it copied stay.
2. Pin the lake (`pinned`).
3. Copy the logs of tables that have changed since the last backup: a checkpoint, and the entries after it up to the
   pinned version. Log entries are kept for an hour, so all of them come before the first data file.
4. Copy the data files and deletion vectors of these versions that no backup has yet.
5. Write the small files of the pin.
6. Write `backup.json`. From now on there is this backup; before, the one before it is the last.

A kill at any point loses at most the time since the last file. A file that was deleted before it could be copied (a
vacuum, after six hours) is not in the newest version any more: pin again; everything that was copied stays.
"""

from datetime import UTC, datetime

from auditlake.backup.pinned import Pin, PinnedLake, manifest_id, pin_lake
from auditlake.backup.stored import Backup, Folder, StoredTable
from auditlake.delta.checkpoints import is_readable
from auditlake.delta.log_entry import entry_name
from auditlake.delta.log_reader import checkpoint_file
from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.failpoints import After, reach
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.positions import read_positions
from auditlake.lake.stage_lock import Stage, hold
from auditlake.messages import Say
from auditlake.store.files import copy_file, existing_files, make_folder, put_if_absent, read_file, remove_folder
from auditlake.store.place import Place

_ATTEMPTS = 5


class _Gone(Exception):
    """A file of the pin was deleted before it was copied."""


def back_up(lake: Lake, folder: Folder, report: Say) -> Backup:
    """Take the next backup of a lake into a folder; raises LakeUnusable, LakeConflict, BadUsage if they overlap."""
    require_manifest(lake)
    folder.require_apart(lake.root)
    folder.numbers()  # refuses a folder of something else before anything is written there
    with hold(Lake(folder.root), "backup", Stage.BACKUP):  # type: ignore[arg-type] # as `Lake` has it
        for _ in range(_ATTEMPTS):
            try:
                return _attempt(lake, folder, report)
            except _Gone:
                report("files were replaced before they were copied; trying again with those of now")
    raise LakeConflict(
        f"files of {lake.root} were deleted before they could be copied, {_ATTEMPTS} times",
        "Run this again: it goes on with what is copied already. A faster disk, or a longer retention, helps.",
    )


def _attempt(lake: Lake, folder: Folder, report: Say) -> Backup:
    done = folder.complete()
    for number in folder.numbers():
        if number not in done:
            remove_folder(folder.of(number))
    last = folder.read(done[-1]) if done else None
    pinned = pin_lake(lake)
    if last is not None and last.lake != manifest_id(pinned.records):
        raise LakeUnusable(f"{folder.root} has backups of another lake", "Give a folder of its own to each lake.")
    return _copy(lake, folder, pinned, last, report)


def _copy(lake: Lake, folder: Folder, pinned: PinnedLake, last: Backup | None, report: Say) -> Backup:
    number = last.number + 1 if last else 1
    tables = {pin.name: StoredTable(pin.version, _log_of(folder, pin, last) or number) for pin in pinned.pins}
    changed = [pin for pin in pinned.pins if tables[pin.name].log == number]
    for pin in changed:
        _copy_log(lake, folder.logs(number), pin)
    reach(After.LOGS_BACKED_UP)
    backup = _described(folder, number, tables, pinned)
    copied = [_copy_files(lake, folder, backup, pin.name) for pin in changed]
    try:
        for name, content in pinned.records.items():
            place = folder.record(number, name)
            make_folder(place.parent)
            put_if_absent(place, content)
        reach(After.RECORDS_BACKED_UP)
        put_if_absent(folder.manifest(number), backup.encoded())
    except FileExistsError:  # this process was suspended for longer than a lease lasts
        raise LakeConflict(f"another process has written backup {number} to {folder.root}", "Run this again.") from None
    reach(After.BACKED_UP)
    files, size_bytes = (sum(each) for each in zip((0, 0), *copied, strict=True))
    report(f"backup {number} has everything up to {backup.watermark}: copied {files:,} files, {size_bytes:,} bytes")
    return backup


def _described(folder: Folder, number: int, tables: dict[str, StoredTable], pinned: PinnedLake) -> Backup:
    of_changes = tables.get("changes")
    positions = read_positions(folder.logs(of_changes.log)) if of_changes else None
    if positions is None:
        raise LakeUnusable("the bootstrap of this lake ended before it created the log", "Run it again.")
    taken = datetime.now(UTC).isoformat(timespec="seconds")
    lsns = positions.watermark, positions.acknowledged
    return Backup(number, manifest_id(pinned.records), taken, *lsns, tables, tuple(sorted(pinned.records)))


def _log_of(folder: Folder, pin: Pin, last: Backup | None) -> int | None:
    """Return the number of the backup that has this version already, also its checkpoint; None if none has.

    An erasure writes one, and deletes the entries before it, which may have bounds of values.
    """
    stored = last.tables.get(pin.name) if last else None
    if stored is None or stored.version != pin.version:
        return None
    log: Place = folder.logs(stored.log).root / pin.name / "_delta_log"
    if pin.version in pin.listing.checkpoints and not checkpoint_file(log, pin.version).exists():
        return None
    return stored.log if read_file(log / entry_name(pin.version)) == pin.id else None


def _copy_log(lake: Lake, logs: Lake, pin: Pin) -> None:
    """Copy what a reader of the pinned version needs; raises LakeUnusable if the log does not have it."""
    log: Place = lake.root / pin.name / "_delta_log"
    target: Place = logs.root / pin.name / "_delta_log"
    usable = sorted((number for number in pin.listing.checkpoints if number <= pin.version), reverse=True)
    begin = next((number for number in usable if is_readable(checkpoint_file(log, number))), None)
    entries = range(0 if begin is None else begin, pin.version + 1)
    if missing := [number for number in entries if number not in pin.listing.entries]:
        raise LakeUnusable(
            f"{log} lacks the entry {missing[0]}, and has no checkpoint of one file that replaces it",
            "Run auditlake maintain, which writes one; or restore the file.",
        )
    make_folder(target)
    names = [checkpoint_file(target, begin).name] if begin is not None else []
    for name in (*names, *(entry_name(number) for number in entries)):
        _copied(log / name, target / name)
    if read_file(target / entry_name(pin.version)) != pin.id:
        raise _Gone  # the table was dropped and created again


def _copied(source: Place, target: Place) -> int:
    try:
        return copy_file(source, target)
    except FileNotFoundError as exc:
        raise _Gone from exc


def _copy_files(lake: Lake, folder: Folder, backup: Backup, table: str) -> tuple[int, int]:
    """Copy the files of a table that no backup has; return their number and size."""
    target = folder.files(table)
    present = existing_files(target)
    copied = []
    for name in sorted(folder.named(backup, table).keys() - present):
        make_folder((target / name).parent)
        copied.append(_copied(lake.root / table / name, target / name))
        reach(After.FILE_BACKED_UP)
    return len(copied), sum(copied)
