"""Transaction log of a Delta table: write one entry, and the actions in it, without deltalake and without Spark.

deltalake rebuilds table state for every commit, at a cost that grows with the number of files; Spark plans some ten
jobs to merge ten rows. If the changed files are known, neither is needed. deltalake does not fsync either, and adds the
feature `variantType` to every table with deletion vectors; readers without it must refuse the table. So tables are
created here too, with exactly the table features that they use.

Every commit to a table of a lake goes through one primitive, put-if-absent: from Python `put_commit`, from Spark
log stores that keep the same invariants I1 to I3 (`spark/log_store.py`):

I1  An entry is linked to its name, or put into an object store if the key is absent. If the name exists, the commit is
    refused; nothing is ever replaced.
I2  Files, then deletion vectors, then the entry reach the disk before the entry gets its name, and the name before
    `put_commit` returns. PostgreSQL forgets what capture acknowledges, so nothing may exist only in memory. Files
    without an entry are orphans, which a vacuum deletes.
I3  An entry carries a unique id, `txnId` in its `commitInfo`. If an error is reported although the entry was written (a
    request that was repeated because the reply was lost), it is recognized as our own by its content.
I4  A version is used once. If a process is suspended before its commit for longer than entries are kept, the entry of
    the version that it planned may be deleted by then (`checkpoints`). The late entry would take that name, and no
    reader would see it, because a later checkpoint exists. Entries are deleted in order, so the entry before it is
    missing, too: `put_commit` looks for that one, and withdraws its own if it is not in effect, also if an older copy
    of the table, whose log ends earlier, was put in its place. Capture's commits (`put_entry`) look only on a disk,
    where it costs nothing: another process that made later commits took the slot, so nothing can be acknowledged.
    Spark's do not look: a merge or a compaction without effect is made again, because every batch begins with what is
    in the history.

Write only to tables created here: `require_plain` checks that capture's tables have no table feature,
`has_own_features` that a history has no other than its own.

Authority: Delta's PROTOCOL.md, "Delta Log Entries", "Actions", "Table Features"
"""

import errno
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from auditlake.delta.log_entry import entry_bytes, entry_name
from auditlake.delta.log_reader import Replay, checkpoint_file, entries_since, entry, list_newest, replay
from auditlake.errors import LakeUnusable
from auditlake.store.files import make_folder, put_if_absent
from auditlake.store.place import Place, by_requests

if TYPE_CHECKING:  # as in `delta.table`
    from deltalake import DeltaTable, Field, Schema

Action = Mapping[str, Mapping[str, object]]

_READER_VERSION, _WRITER_VERSION = 3, 7
_PLAIN_READER_VERSION, _PLAIN_WRITER_VERSION = 1, 2
_DELETION_VECTORS, _TIMESTAMP_NTZ = "deletionVectors", "timestampNtz"
# Writer version 2, expressed as table features.
_PLAIN_WRITER_FEATURES = ("appendOnly", "invariants")
_OWN_FEATURES = frozenset({*_PLAIN_WRITER_FEATURES, _DELETION_VECTORS, _TIMESTAMP_NTZ})
_APPEND_ONLY = "delta.appendOnly"
CHECKSUM_TAG = "auditlake.crc32"
"""Tag of an `add`: the CRC-32 of its file, as eight hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class Creation:
    """Properties of a new table; without `deletion_vectors` it has no table feature."""

    name: str | None
    schema: "Schema"
    partition_by: tuple[str, ...]
    configuration: Mapping[str, str]
    deletion_vectors: bool = True


def create_table(path: Place, creation: Creation) -> None:
    """Write the commit that creates the table; raises FileExistsError if the table exists."""
    make_folder(path / "_delta_log")
    put_commit(path, 0, "CREATE TABLE", _creation_actions(creation))


def recreate_table(path: Place, version: int, replaced: Iterable[Mapping[str, object]], creation: Creation) -> None:
    """Commit after `version`: remove these files, create the table again. Raises FileExistsError if overtaken."""
    actions = [*_creation_actions(creation), *map(removed, replaced)]
    put_commit(path, version + 1, "CREATE OR REPLACE TABLE", actions)


def put_commit(path: Place, version: int, operation: str, actions: Iterable[Action]) -> None:
    """Write the entry of a version.

    Raises FileExistsError if another commit has that version, or had it. After any other OSError the commit may or may
    not have been made: read the log again before going on.
    """
    _put(path, version, operation, actions, {})
    _withdraw_late(path, version)


def put_next(  # noqa: PLR0913, PLR0917 - a commit, and what it must not meet
    path: Place,
    version: int,
    operation: str,
    actions: Sequence[Action],
    conflicts: Callable[[Mapping[str, Any]], bool],
    conflicts_with: Callable[[Replay], bool] = lambda _: True,
) -> int | None:
    """Write the entry of the first free version from `version` on, and return that.

    None, without an entry, if an action of another one since `version` conflicts. If such an entry was deleted, because
    the commit was planned for longer than entries are kept, the newest state decides: by default it conflicts.
    """
    while True:
        try:
            put_commit(path, version, operation, actions)
        except FileExistsError:
            try:
                refused = any(map(conflicts, entry(path, version)))
            except FileNotFoundError:
                version = list_newest(path).newest
                refused = conflicts_with(replay(path, version))
            if refused:
                return None
            version += 1
        else:
            return version


def changes_table(action: Mapping[str, Any]) -> bool:
    """Return whether an action changes the columns, the properties or the features of its table."""
    return "metaData" in action or "protocol" in action


def _withdraw_late(path: Place, version: int) -> None:
    """Take an entry back that is not in effect, because another commit had its version; raises FileExistsError then.

    So it does if the entry before was never there: an older copy was put in the place of the table.
    """
    log = path / "_delta_log"
    late = FileExistsError(errno.EEXIST, "Another commit had this version", str(_entry_place(log, version)))
    if version == 0:  # the entries of a table are deleted after its second checkpoint
        if (log / "_last_checkpoint").exists():
            raise late
    elif not _entry_place(log, version - 1).exists() and (
        entries_since(path, version + 1) or not checkpoint_file(log, version - 1).exists()
    ):
        _entry_place(log, version).unlink(missing_ok=True)
        raise late


def put_entry(
    path: Place, version: int, operation: str, actions: Iterable[Action], requires: Mapping[str, int] | None = None
) -> None:
    """Write the entry of a version as `put_commit`, by a process that makes all commits of the table.

    `requires` is recorded in its `commitInfo`: what other tables had before (`log_reader.TailTransactions`).
    """
    _put(path, version, operation, actions, {} if requires is None else {"requires": dict(requires)})
    if not by_requests(path):
        _withdraw_late(path, version)


def _put(
    path: Place, version: int, operation: str, actions: Iterable[Action], more: Mapping[str, Mapping[str, int]]
) -> None:
    info = {"timestamp": _now_ms(), "operation": operation, "txnId": str(uuid.uuid4()), **more}
    put_if_absent(_entry_place(path / "_delta_log", version), entry_bytes(version, info, actions))


def _entry_place(log: Place, version: int) -> Place:
    return log / entry_name(version)


def require_plain(path: Place, table: "DeltaTable") -> None:
    """Require that the table has no table feature, so that `put_commit` may append to it; raises LakeUnusable."""
    version = table.protocol().min_writer_version
    if version > _PLAIN_WRITER_VERSION:
        raise LakeUnusable(
            f"{path} asks for Delta's writer version {version}, need {_PLAIN_WRITER_VERSION}",
            "Its properties were changed by another program; capture writes only to tables as it created them.",
        )


def has_own_features(history: Replay) -> bool:
    """Return whether a history requires no more of its writers than when it was created."""
    features = frozenset(history.protocol.get("writerFeatures") or ())
    return features <= _OWN_FEATURES and history.configuration.get(_APPEND_ONLY) != "true"


def added_file(
    name: str, partition: Mapping[str, str], size_bytes: int, statistics: str, crc32: int | None = None
) -> Action:
    """Return the action that adds a file, which must be on the disk; `name` is relative to the table.

    The CRC-32 of its content is recorded as a tag; checkpoints and later actions on the file keep it.
    """
    return {
        "add": {
            "path": quote(name, safe="/="),
            "partitionValues": dict(partition),
            "size": size_bytes,
            "modificationTime": _now_ms(),
            "dataChange": True,
            "stats": statistics,
            **({} if crc32 is None else {"tags": {CHECKSUM_TAG: f"{crc32:08x}"}}),
        }
    }


def removed(add: Mapping[str, object]) -> Action:
    """Return the action that removes a file, from the `add` in force."""
    same = {name: add[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in add}
    return {"remove": {**same, "deletionTimestamp": _now_ms(), "dataChange": True, "extendedFileMetadata": True}}


def without_change(action: Action) -> Action:
    """Mark an action as one that changes no data, so that streaming readers of the table skip it."""
    return {kind: {**content, "dataChange": False} for kind, content in action.items()}


def moved(positions: Mapping[str, int]) -> list[Action]:
    """Return the actions that set the versions of application transactions."""
    now_ms = _now_ms()
    return [{"txn": {"appId": app, "version": at, "lastUpdated": now_ms}} for app, at in positions.items()]


def with_schema(table: "DeltaTable", fields: Sequence["Field"], properties: Mapping[str, str]) -> list[Action]:
    """Return the actions that set the columns of a table with table features, and add properties."""
    from deltalake import Schema  # noqa: PLC0415 - as in `delta.table`

    schema = Schema(list(fields))
    protocol, required = table.protocol(), _features(schema)
    readers, writers = set(protocol.reader_features or ()), set(protocol.writer_features or ())
    upgrade = not (readers.issuperset(required) and writers.issuperset(required))
    changed = [_feature_protocol(readers | set(required), writers | set(required))] if upgrade else []
    return [*changed, _metadata(table, schema, {**table.metadata().configuration, **properties})]


def _metadata(table: "DeltaTable", schema: "Schema", configuration: Mapping[str, str]) -> Action:
    current = table.metadata()
    optional: dict[str, str | None] = {"name": current.name, "description": current.description}
    return {
        "metaData": {
            "id": str(current.id),
            **{name: value for name, value in optional.items() if value is not None},
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.to_json(),
            "partitionColumns": list(current.partition_columns),
            "configuration": dict(configuration),
            "createdTime": current.created_time,
        }
    }


def _creation_actions(creation: Creation) -> list[Action]:
    features = set(_features(creation.schema))
    plain: Action = {"protocol": {"minReaderVersion": _PLAIN_READER_VERSION, "minWriterVersion": _PLAIN_WRITER_VERSION}}
    metadata = {
        "id": str(uuid.uuid4()),
        **({} if creation.name is None else {"name": creation.name}),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": creation.schema.to_json(),
        "partitionColumns": list(creation.partition_by),
        "configuration": dict(creation.configuration),
        "createdTime": _now_ms(),
    }
    protocol = _feature_protocol(features, {*_PLAIN_WRITER_FEATURES, *features}) if creation.deletion_vectors else plain
    return [protocol, {"metaData": metadata}]


def _features(schema: "Schema") -> list[str]:
    return [_DELETION_VECTORS, *([_TIMESTAMP_NTZ] if '"timestamp_ntz"' in schema.to_json() else [])]


def _feature_protocol(readers: set[str], writers: set[str]) -> Action:
    return {
        "protocol": {
            "minReaderVersion": _READER_VERSION,
            "minWriterVersion": _WRITER_VERSION,
            "readerFeatures": sorted(readers),
            "writerFeatures": sorted(writers),
        }
    }


def _now_ms() -> int:
    return int(time.time() * 1000)
