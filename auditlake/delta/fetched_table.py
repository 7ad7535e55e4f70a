"""The log of a table in a store, with its files on this machine, for deltalake.

deltalake reads every entry since the last checkpoint several times to open a table. Here all of them are requested at
the same time, and each is requested once by a process (`store.objects`), by its ETag.

The copy is in a temporary folder that only this user can read, and is deleted when no one uses it any more, at the
latest when the process ends.
"""

import shutil
import tempfile
import weakref
from pathlib import Path

from deltalake import DeltaTable

from auditlake.delta.log_entry import entry_name, require_intact
from auditlake.delta.log_reader import Listing, checkpoint_file
from auditlake.store.files import read_each, read_listed, relative_name
from auditlake.store.place import Place, Remote


def fetch_log(place: Remote, found: Listing) -> DeltaTable | None:
    """Open the newest version in this listing without its files, for its metadata and positions.

    None if its log cannot be read here.

    deltalake reads the log again for each position that it is asked for.
    """
    named = _log_files(place, found, found.newest) if found.is_enough(found.newest) else None
    return None if named is None else _opened(place, named, found.newest)


def _log_files(place: Remote, found: Listing, version: int) -> list[tuple[Place, str | None]] | None:
    """Return the last checkpoint and the entries after it, with their ETags; None if an entry is missing."""
    log = place / "_delta_log"
    checkpoint = max((number for number in found.checkpoints if number <= version), default=-1)
    entries = range(checkpoint + 1, version + 1)
    if any(number not in found.entries for number in entries):
        return None
    named: list[tuple[Place, str | None]] = [(log / entry_name(number), found.entries[number]) for number in entries]
    if checkpoint >= 0:
        named.append((checkpoint_file(log, checkpoint), found.checkpoints[checkpoint]))
    return named


def _opened(place: Remote, files: list[tuple[Place, str | None]], version: int) -> DeltaTable | None:
    """Copy files, and open the copy; None if a file is missing, which deltalake reports when it is read."""
    folder = Path(tempfile.mkdtemp(prefix="auditlake-"))
    try:
        contents = read_each(place, _content, files)
        for (file, _), content in zip(files, contents, strict=True):
            copy = folder / relative_name(file, place)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
        table = DeltaTable(folder, version=version)
    except FileNotFoundError:
        shutil.rmtree(folder)
        return None
    except BaseException:
        shutil.rmtree(folder)
        raise
    weakref.finalize(table, shutil.rmtree, folder, ignore_errors=True)
    return table


def _content(file: tuple[Place, str | None]) -> bytes:
    place, etag = file
    if etag is None:
        return place.read_bytes()
    content = read_listed(place, etag)
    if place.name.endswith(".json"):
        require_intact(place, content)
    return content
