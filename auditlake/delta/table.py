"""deltalake's view of a table, on a disk or in an object store.

deltalake takes credentials from the same standard sources as `store`. It retries a request for three minutes by
default, which is long for a command that waits.
"""

from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from auditlake.delta.log_reader import require_entries
from auditlake.errors import ConfigError
from auditlake.store.files import local_path
from auditlake.store.objects import options
from auditlake.store.place import Place, parse_url

if TYPE_CHECKING:  # it takes a tenth of a second to import, and questions do not need it
    from deltalake import DeltaTable

_ADDRESSES = 3 << 30


def open_table(place: Place) -> "DeltaTable":
    """Open the current version; raises as deltalake."""
    return open_version(place, None)


def place_of_table(table: "DeltaTable") -> Place:
    """Return the place of a table."""
    parts = urlsplit(table.table_uri)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else parse_url(table.table_uri)


def open_version(place: Place, version: int | None) -> "DeltaTable":
    """Open a version; raises as deltalake, LakeUnusable if an entry is empty, ConfigError if addresses are limited."""
    from deltalake import DeltaTable  # noqa: PLC0415 - see above

    _require_addresses()
    if (folder := local_path(place)) is not None:
        require_entries(folder)
        return DeltaTable(folder, version=version)
    return DeltaTable(str(place), version=version, storage_options=options())


def _require_addresses() -> None:
    """Require an address space in which deltalake's threads can start; with less it waits for them for ever."""
    limit, _ = getrlimit(RLIMIT_AS)
    if limit != RLIM_INFINITY and limit < _ADDRESSES:
        raise ConfigError(
            f"the address space is limited to {limit >> 20:,} MiB (ulimit -v), need {_ADDRESSES >> 20:,}",
            "Remove that limit; what limits memory is a control group, such as systemd's MemoryMax.",
        )
