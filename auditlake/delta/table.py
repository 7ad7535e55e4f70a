"""deltalake's view of a table, on a disk or in an object store.

deltalake takes credentials from the same standard sources as `store`. It retries a request for three minutes by
default, which is long for a command that waits. It reads every entry since the last checkpoint several times to open a
table; `open_entry` therefore opens a version of a table in a store once.
"""

from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable

from auditlake.delta.fetched_table import fetch_table
from auditlake.delta.log_reader import require_entries
from auditlake.store.objects import options
from auditlake.store.place import Place, Remote, parse


def open_table(place: Place) -> DeltaTable:
    """Open the current version.

    Raises as deltalake.
    """
    return open_version(place, None)


def place_of(table: DeltaTable) -> Place:
    """Return the place of a table."""
    parts = urlsplit(table.table_uri)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else parse(table.table_uri)


def open_version(place: Place, version: int | None) -> DeltaTable:
    """Open a version.

    Raises as deltalake, and LakeUnusable if an entry is empty.
    """
    if isinstance(place, Path):
        require_entries(place)
        return DeltaTable(place, version=version)
    return DeltaTable(str(place), version=version, storage_options=options())


def open_entry(place: Place, version: int, etag: str | None) -> DeltaTable:
    """Open the version whose entry has this ETag in a store, for reading only: another caller may have the same object.

    Raises as deltalake.
    """
    return open_version(place, version) if etag is None else _open_once(place, version, etag)


@lru_cache(maxsize=32)
def _open_once(place: Place, version: int, etag: str) -> DeltaTable:
    fetched = fetch_table(place, version, etag) if isinstance(place, Remote) else None
    return open_version(place, version) if fetched is None else fetched
