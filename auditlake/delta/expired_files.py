"""Files of a table that no version has had for the retention, which a vacuum deletes. No JVM.

A data file or deletion vector is expired at a moment if it was written before, the newest version does not name it, and
no version removed it since then: a reader of an older version may have pinned it until it was removed. So decides
Delta's VACUUM, with which tests compare. It is for tables without features of other programs, whose files are in the
table's folder and in the folders of its partitions.

The folder is listed before the log is read, so a file that is committed meanwhile is named. One that was written before
the moment and is committed after the log was read is the caller's concern (`lake.compaction`, `fence`).

Authority: Delta's VacuumCommand.scala; PROTOCOL.md, "Add File and Remove File"
"""

from collections.abc import Iterable, Iterator

from auditlake.delta.deletion_vectors import vector_file
from auditlake.delta.log_reader import Add, file_path, list_newest, live_files, removed_files
from auditlake.store.files import list_written, relative_name
from auditlake.store.place import Place

_HIDDEN = ("_", ".")


def expired_files(table: Place, before_s: float) -> list[Place]:
    """List the files that are expired at a moment, in seconds since 1970.

    Raises FileNotFoundError if the log has checkpoints of another kind than `log_reader` supports.
    """
    written = {name for name, written_s in list_written(table) if written_s < before_s and not _is_hidden(name)}
    newest = list_newest(table)
    etag = newest.entries[newest.newest]
    live = live_files(table, newest.newest, etag, newest)
    removed = removed_files(table, newest.newest, etag)
    pinned = (action for action in removed if action.get("deletionTimestamp", 0) >= before_s * 1000)
    return [table / name for name in sorted(written - {*named_files(table, live), *named_files(table, pinned)})]


def _is_hidden(name: str) -> bool:
    """Return whether a file is the log's, or one that its writer has not finished; `_part=…` is a partition."""
    *folders, file = name.split("/")
    return file.startswith(_HIDDEN) or any(folder.startswith(_HIDDEN) and "=" not in folder for folder in folders)


def named_files(table: Place, actions: Iterable[Add]) -> Iterator[str]:
    """Yield each action's file, and its deletion vector's, relative to the table; raises ValueError outside of it."""
    for action in actions:
        yield relative_name(file_path(table, action), table)
        if "deletionVector" in action and (file := vector_file(table, action["deletionVector"])) is not None:
            yield relative_name(file, table)
