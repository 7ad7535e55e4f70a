"""Folder of backups: its layout, which backups are complete, and the checks of one.

    <folder>/files/<table>/<file>               data files and deletion vectors of all backups, each copied once
    <folder>/<number>/logs/<table>/_delta_log/  the log of a table, if it has changed since the backup before
    <folder>/<number>/records/<file>            the small files
    <folder>/<number>/backup.json               written last: without it there is no such backup

`backup.json` has the number of the backup with each table's log. The disk of a backup may have been in other hands, so
every name in it, and in a log, is required to stay in the folder that it belongs to, and so is every file: no link
leads out of the folder of backups.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from auditlake.backup.pinned import MANIFEST
from auditlake.delta.expired_files import named_files
from auditlake.delta.log_reader import Add, live_files
from auditlake.errors import BadUsage, LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.records import require_record
from auditlake.lake.stage_lock import FOLDER
from auditlake.lsn import Lsn
from auditlake.store.files import full_name, leads_out
from auditlake.store.place import Place

FORMAT_VERSION = 1
_ANOTHER = "Restore an earlier one with --number, or use another folder."


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table of a backup: its version, and the number of the backup that has its log."""

    version: int
    log: int


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup: `lake` distinguishes the lake, everything up to `watermark` is in it.

    `acknowledged` is where the slot has to be, at the latest, so that a restored lake can go on.
    """

    number: int
    lake: str
    taken: str
    watermark: Lsn
    acknowledged: Lsn
    tables: Mapping[str, StoredTable]
    records: tuple[str, ...]

    def encoded(self) -> bytes:
        """Return the content of backup.json."""
        lsns = {"watermark": str(self.watermark), "acknowledged": str(self.acknowledged)}
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self), **lsns}).encode()


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of backups."""

    root: Place

    def files(self, table: str) -> Place:
        return self.root / "files" / table

    def of(self, number: int) -> Place:
        """Return the folder of one backup."""
        return self.root / f"{number:08}"

    def logs(self, number: int) -> Lake:
        """Return the logs of a backup; they have the layout of a lake, so positions can be read from them."""
        return Lake(self.of(number) / "logs")  # type: ignore[arg-type] # as `Lake` has it

    def record(self, number: int, name: str) -> Place:
        return self.of(number) / "records" / name

    def manifest(self, number: int) -> Place:
        return self.of(number) / "backup.json"

    def numbers(self) -> list[int]:
        """List the numbers of all backups, incomplete ones too; raises LakeUnusable if anything else is there."""
        try:
            names = [place.name for place in self.root.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = sorted(int(name) for name in names if name.isascii() and name.isdigit())
        known = {"files", FOLDER, *(self.of(number).name for number in found)}
        if others := sorted(set(names) - known):
            raise LakeUnusable(
                f"{self.root} is not a folder of backups: it contains {others[0]}",
                "Give a new or empty folder, or one of auditlake backup.",
            )
        return found

    def complete(self) -> list[int]:
        """List the numbers of the complete backups, ascending."""
        return [number for number in self.numbers() if self.manifest(number).exists()]

    def read(self, number: int) -> Backup:
        """Read a complete backup; raises LakeUnusable."""
        place = self.manifest(number)

        def backup_of(content: dict[str, Any]) -> Backup:
            if content.pop("format_version") != FORMAT_VERSION:
                raise LakeUnusable(
                    f"{place} has another format version than {FORMAT_VERSION}", "Use the version that wrote it."
                )
            tables = {name: StoredTable(**table) for name, table in content.pop("tables").items()}
            content |= {name: Lsn.parse(content[name]) for name in ("watermark", "acknowledged")}
            records = tuple(content.pop("records"))
            return Backup(tables=tables, records=records, **content)

        backup = require_record(place, backup_of, _ANOTHER)
        _require_sound(place, number, backup)
        _require_inside(place, (*backup.tables, *backup.records))
        return backup

    def require_apart(self, lake: Place) -> None:
        """Require that neither of the folders of a lake and of its backups is in the other; raises BadUsage."""
        one, other = (f"{full_name(place)}/" for place in (lake, self.root))
        if one.startswith(other) or other.startswith(one):
            raise BadUsage(f"{self.root} and {lake} are in each other", "Give a folder outside the lake.")

    def own(self, file: Place) -> Place:
        """Return a file of a backup, which may be missing; raises LakeUnusable if a link leads out of the folder."""
        if leads_out(file, self.root):
            raise LakeUnusable(f"{file} is a link out of the folder of backups", "It was not written by auditlake.")
        return file

    def live(self, backup: Backup, table: str) -> list[Add]:
        """List the `add` actions of a table's version in a backup; raises LakeUnusable."""
        stored = backup.tables[table]
        log = self.logs(stored.log).root / table
        try:
            return live_files(log, stored.version)
        except (OSError, ValueError) as exc:
            raise LakeUnusable(f"the log of {log} cannot be read: {type(exc).__name__}", _ANOTHER) from exc

    def named(self, backup: Backup, table: str) -> dict[str, int | None]:
        """Return the names of a table's files in a backup, with the sizes of data files; raises LakeUnusable."""
        return names_of(self.logs(backup.tables[table].log).root / table, self.live(backup, table))


def names_of(table: Place, live: Iterable[Add]) -> dict[str, int | None]:
    """Return names and sizes of the files of `add` actions; raises LakeUnusable outside of the table's folder."""
    found: dict[str, int | None] = {}
    for add in live:
        try:
            names = list(named_files(table, [add]))
        except ValueError as exc:
            raise LakeUnusable(f"{table} has files outside its folder", "Copy such a table by other means.") from exc
        found |= dict.fromkeys(names[1:]) | {names[0]: add["size"]}
    _require_inside(table, found)
    return found


def _require_sound(place: Place, number: int, backup: Backup) -> None:
    """Require what `encoded` writes: types, a log of this backup or an earlier one, and the manifest of a lake.

    Raises LakeUnusable.
    """
    tables = backup.tables.values()
    numbers = [backup.number, *(each.log for each in tables), *(each.version for each in tables)]
    sound = all(type(each) is int and each >= 0 for each in numbers) and backup.number == number
    sound = sound and all(1 <= each.log <= number for each in tables)
    sound = sound and all(isinstance(each, str) for each in (backup.lake, backup.taken, *backup.records))
    if not (sound and MANIFEST in backup.records):
        raise LakeUnusable(f"{place} is not as auditlake writes it", _ANOTHER)


def _require_inside(place: Place, names: Iterable[str]) -> None:
    for name in names:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\0" in name:
            raise LakeUnusable(f"{place} names a file outside its folder", "It was not written by auditlake.")
