"""deltalake's view of a table, on a disk or in an object store.

deltalake takes credentials from the same standard sources as `store`. It retries a request for three minutes by
default, which is long for a command that waits.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable

from auditlake.delta.log_reader import require_entries
from auditlake.store.objects import options
from auditlake.store.place import Place, parse_url


def open_table(place: Place) -> DeltaTable:
    """Open the current version.

    Raises as deltalake.
    """
    return open_version(place, None)


def place_of(table: DeltaTable) -> Place:
    """Return the place of a table."""
    parts = urlsplit(table.table_uri)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else parse_url(table.table_uri)


def open_version(place: Place, version: int | None) -> DeltaTable:
    """Open a version.

    Raises as deltalake, and LakeUnusable if an entry is empty.
    """
    if isinstance(place, Path):
        require_entries(place)
        return DeltaTable(place, version=version)
    return DeltaTable(str(place), version=version, storage_options=options())
