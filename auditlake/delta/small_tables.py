"""All rows of a small table: one of the lake's own that capture appends to, such as `relations`. No deltalake.

In an object store, one listing shows whether the table has changed since the session read it last. If it has, the
missing entries are requested at once, and then the files that are new.

Authority: Delta's PROTOCOL.md, "Action Reconciliation"
"""

import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.delta.log_entry import entry_name
from auditlake.delta.log_reader import Listing, file_path, list_newest, live_files
from auditlake.errors import LakeUnusable
from auditlake.store.files import parquet, read_each
from auditlake.store.place import Place
from auditlake.store.session import Kept, Session

_KEPT_BYTES = 256 << 20
_Files = dict[Place, pa.Table]
_Rows = tuple[tuple[int, str], _Files, pa.Table]
"""Version and mark of a table's newest entry, the rows of each file, and all of them, which share memory."""


class _Tables(Kept):
    """The rows of the tables that a session has read."""

    def __init__(self) -> None:
        super().__init__(_KEPT_BYTES)


def read_small_table(session: Session, table: Place, schema: pa.Schema) -> pa.Table:
    """Read all rows, in these columns. No rows if there is no table. Raises LakeUnusable."""
    try:
        listing, kept = list_newest(table), session.part(_Tables)
        held: _Rows | None = kept.find(table)
        if listing.newest < 0:
            return schema.empty_table()
        newest = listing.newest, _mark(table, listing)
        if held is None or held[0] != newest:
            files = _files(table, listing, schema, {} if held is None else held[1])
            held = newest, files, pa.concat_tables([schema.empty_table(), *files.values()])
            kept.put(table, held, held[2].nbytes)
    except (ValueError, KeyError, TypeError, FileNotFoundError, pa.ArrowException) as exc:
        raise LakeUnusable(f"the Delta log of {table} cannot be read: {exc}", "Restore the folder.") from exc
    return held[2]


def _mark(table: Place, listing: Listing) -> str:
    """Return the identity of the newest entry, which differs if another has taken its version."""
    if (etag := listing.entries[listing.newest]) is not None:
        return etag
    found = (table / "_delta_log" / entry_name(listing.newest)).stat()
    return f"{found.st_mtime_ns} {found.st_size}"


def _files(table: Place, listing: Listing, schema: pa.Schema, known: _Files) -> _Files:
    """Return the rows of each live file; those of known files, which never change, are not read again."""
    adds = live_files(table, listing.newest, listing.entries[listing.newest], listing)
    paths = [file_path(table, add) for add in adds]
    new = [path for path in paths if path not in known]
    read = known | dict(zip(new, read_each(table, lambda path: _file(path, schema), new), strict=True))
    return {path: read[path] for path in paths}


def _file(path: Place, schema: pa.Schema) -> pa.Table:
    rows = pq.ParquetFile(parquet(path)).read().select(schema.names)
    if any(_names(rows[field.name].type) != _names(field.type) for field in schema):
        raise ValueError(f"{path.name} has structs of other fields")  # the cast would take these for NULL
    return rows.cast(schema)


def _names(kind: pa.DataType) -> list[str]:
    """Return the names of the fields of all structs within a type, in order."""
    if pa.types.is_struct(kind):
        return [name for field in kind for name in (field.name, *_names(field.type))]
    return _names(kind.value_type) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else []
