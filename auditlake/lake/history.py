"""History tables: their columns and types in Delta, Spark SQL and Arrow, and how one is created, opened and extended.

A history table has the source's columns, then `PERIOD_COLUMNS`, partitioned by `_part`: `open`, or the month in which
the version ended. Columns that were added to the source later come last. A history describes itself:

- A *physical column* is a field of the Delta table. It belongs to one column of one table of the source, identified by
  the table's OID and `attnum`, under whatever name. The field's metadata has:
  its PostgreSQL type, and whether it is part of the key;
  its name in the source if it is stored under another (`column_names`);
  its earlier names, each with the commit LSN up to which it was valid;
  the commit LSNs of its addition and of its end, if these were after the snapshot.
  If the type changes to one that does not hold every value of the former type, another physical column begins. A
  history never loses a physical column.
- The table properties have the OID of the source's table, and its earlier names in the same way.
- Position and horizon are application transactions of the commits that set them. A table without a position does not
  exist for readers. The horizon is the LSN of the first snapshot, until a commit removes expired versions.

So the timeline of a table's columns is in one place, the metadata of its history. It is written by the commit that
moves the position past a change, or by one before it: entries above the position are ignored by readers. `relations`
has the changes that the source reported, a history those that were applied. They cannot disagree about a moment up to
the position, because readers use only the history for it.

No JVM.

Authority: Delta's PROTOCOL.md, "Transaction Identifiers" and "Column Metadata"
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from auditlake.delta.append_table import open_delta
from auditlake.delta.checkpoints import KEPT_FOR, checkpoint
from auditlake.delta.data_files import adopt_file, write_batches, write_part
from auditlake.delta.log_reader import live_files, read_newest_state
from auditlake.delta.log_writer import (
    Action,
    Creation,
    changes_table,
    create_table,
    has_own_features,
    put_commit,
    put_next,
    recreate_table,
    with_schema,
)
from auditlake.delta.table import open_table, open_version
from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.instants import month_of
from auditlake.lake.layout import (
    ERASED_APP,
    EXPIRED_APP,
    HISTORY_APP,
    RESYNC_APP,
    SNAPSHOT_APP,
    SNAPSHOT_TIME_APP,
    Lake,
)
from auditlake.lsn import Lsn
from auditlake.relation import Column, Former, Relation, TableName, in_order
from auditlake.source.publication_membership import Membership
from auditlake.sql_names import spark_identifier
from auditlake.store.files import drop_folder
from auditlake.store.place import Place
from auditlake.values.exact_text import arrow_type
from auditlake.values.types import ColumnType, column_type

OPEN_PART = "open"
PERIOD_COLUMNS = (
    ("_from_lsn", "bigint"),
    ("_to_lsn", "bigint"),
    ("_from_time", "timestamp"),
    ("_to_time", "timestamp"),
    ("_op", "string"),
    ("_end_op", "string"),
    ("_xid", "bigint"),
    ("_end_xid", "bigint"),
    ("_ordinal", "int"),
    ("_raw", "map<string,string>"),
    ("_part", "string"),
)
RESERVED = frozenset(name for name, _ in PERIOD_COLUMNS)
STORED_PERIOD = tuple(name for name, _ in PERIOD_COLUMNS if name != "_part")
"""Those that data files have; `_part` is in their paths."""
LSNS = ("_from_lsn", "_to_lsn")
RESYNC = "resync"
"""`_end_op` of versions that a new snapshot ended."""

if TYPE_CHECKING:  # as in `delta.table`
    from deltalake import DeltaTable, Field
    from deltalake.schema import ArrayType, MapType, PrimitiveType

_RETENTION = "delta.deletedFileRetentionDuration"
_OID, _NAMES, _FORMER_OIDS = "auditlake.oid", "auditlake.names", "auditlake.former_oids"
_PERIOD_BOUNDS = (*LSNS, "_from_time", "_to_time")
_WHOLE_NUMBERS = ("smallint", "int", "bigint")
_STATISTICS = 32
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WITHOUT_BOUNDS = ("boolean", "binary", "array", "map", "struct")
_DELTA_NAMES = {"bigint": "long", "smallint": "short", "int": "integer"}
_NEVER = Lsn(0)
_CHECKPOINT_EVERY = 10


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """One history table at one Delta version; `position` and `horizon` are commit LSNs, both inclusive.

    `columns` are all physical columns, those of the past too. `as_made`: it requires no more of its readers and writers
    than when it was created. `name` is that of its folder: the name under which it was copied, with the table's OID if
    another history had that name already (`lake.records`). `oid` is the OID of the source's table. `names`: the table's
    later names, each with the commit LSN at which it took effect. If the folder has an invented name (`name` with an
    OID), the list starts with the real first name, at LSN 0. `resynced`: the LSN of the last snapshot after the first
    one that the table was compared with; 0 without one. `former_oids`: the table's OIDs in earlier sources of the lake,
    each with the last LSN at which it was valid. `snapshot_us` is the time of its first snapshot in microseconds since
    1970, if recorded. `copied` is the LSN of the first snapshot if versions have expired since, which moves the
    horizon; else 0. `erased` is the number of the last erasure of its values. `etag` is that of the version's log entry
    in a store.
    """

    name: TableName
    lake: Lake
    columns: Sequence[Column]
    delta_version: int
    position: Lsn
    horizon: Lsn
    as_made: bool
    oid: int
    names: tuple[tuple[Lsn, TableName], ...] = ()
    resynced: Lsn = _NEVER
    former_oids: tuple[tuple[Lsn, int], ...] = ()
    snapshot_us: int | None = None
    copied: Lsn = _NEVER
    erased: int | None = None
    etag: str | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash((self.name, self.delta_version, self.position))

    @property
    def path(self) -> Path:
        """Return the table's folder."""
        return self.lake.history(self.name)

    def oid_at(self, lsn: Lsn) -> int:
        """Return the OID that the table had at `lsn`, in the source that the lake had then."""
        return next((oid for upto, oid in self.former_oids if lsn <= upto), self.oid)

    @property
    def snapshot_lsn(self) -> Lsn:
        """Return the LSN of the table's last snapshot."""
        return max(self.first_snapshot_lsn, self.resynced)

    @property
    def first_snapshot_lsn(self) -> Lsn:
        """Return the LSN of the table's first snapshot, with which its history began."""
        return self.copied or self.horizon

    @property
    def has_expired(self) -> bool:
        """Return whether versions that ended up to the horizon were removed."""
        return self.copied != _NEVER

    @property
    def key(self) -> tuple[Column, ...]:
        """Return the columns that identify a row at the table's position."""
        return self.key_at(self.position)

    def key_at(self, lsn: Lsn) -> tuple[Column, ...]:
        """Return the columns that identified a row at `lsn`."""
        return tuple(column for column in self.columns_at(lsn) if column.key)

    @property
    def current(self) -> tuple[Column, ...]:
        """Return the columns that the table had at its position."""
        return self.columns_at(self.position)

    def columns_at(self, lsn: Lsn) -> tuple[Column, ...]:
        """Return the columns that the table had at `lsn`, as they were then, of those known up to its position."""
        return in_order([column.at(lsn) for column in self.columns if column.exists_at(lsn)])

    @property
    def all_names(self) -> tuple[TableName, ...]:
        """Return every name that the table had, the last one last."""
        if not self.names:
            return (self.name,)
        return tuple(name for _, name in self._named)

    @property
    def known_as(self) -> tuple[TableName, ...]:
        """Return every name by which the table can be meant: that of its history, and those that it had."""
        return tuple(dict.fromkeys((self.name, *self.all_names)))

    @property
    def last_name(self) -> TableName:
        """Return the name that the table has now, or had last."""
        return self._named[-1][1]

    @property
    def label(self) -> str:
        """Return the table's last name, for messages: with its OID if another history has it (`lake.records`)."""
        return f"{self.last_name}{'' if self.name in self.all_names else f' (OID {self.oid})'}"

    @property
    def _named(self) -> tuple[tuple[Lsn, TableName], ...]:
        """Return the names, each with the commit LSN at which it took effect; the first begins with the history."""
        first = self.first_snapshot_lsn
        return self.names if self.names and self.names[0][0] <= first else ((first, self.name), *self.names)

    def name_at(self, lsn: Lsn) -> TableName:
        """Return the name that the table had at `lsn`."""
        return next((name for since, name in reversed(self.names) if since <= lsn), self._named[0][1])

    @property
    def called(self) -> tuple[tuple[TableName, Lsn, Lsn | None], ...]:
        """Return the table's names, each with its first and last LSN; the commit of a renaming may have both names."""
        named, ends = self._named, [since for since, _ in self._named[1:]]
        return tuple(
            (name, since if place else Lsn(0), end)
            for place, ((since, name), end) in enumerate(zip(named, [*ends, None], strict=True))
        )

    def called_since(self, name: TableName, lsn: Lsn) -> Lsn | None:
        """Return since which LSN the table had a name at `lsn`; None if it had another one then."""
        if lsn < self.first_snapshot_lsn or self.name_at(lsn) != name:
            return None
        return max(self.first_snapshot_lsn, *(since for since, _ in self._named if since <= lsn))


def add_name(names: list[tuple[Lsn, TableName]], table: HistoryTable, lsn: Lsn, name: TableName) -> None:
    """Add the name that a table has from a commit on to its later ones, unless it is the last of them."""
    if name != (names[-1][1] if names else table.name):
        names.append((lsn, name))


def type_of(column: Column) -> ColumnType:
    """Return the type under which the column's values are stored."""
    return column_type(*column.type)


def create_history(
    lake: Lake, name: TableName, columns: tuple[Column, ...], oid: int, called: TableName | None = None
) -> "DeltaTable":
    """Create the empty table, not readable before it has a position; `called` is its name at the source."""
    path = lake.history(name)
    create_table(path, _creation(name, columns, oid, called or name))
    return open_table(path)


def recreate_history(
    lake: Lake, name: TableName, columns: tuple[Column, ...], oid: int, called: TableName | None = None
) -> "DeltaTable":
    """Create the table, also over one whose copy was killed; raises FileExistsError if another committed."""
    path = lake.history(name)
    if not drop_folder(path) and (left := open_delta(path)) is not None:
        recreate_table(
            path, left.version(), live_files(path, left.version()), _creation(name, columns, oid, called or name)
        )
        return open_table(path)
    return create_history(lake, name, columns, oid, called)


def _creation(name: TableName, columns: tuple[Column, ...], oid: int, called: TableName) -> Creation:
    from deltalake import Schema  # noqa: PLC0415 - as in `delta.table`

    schema = Schema([*map(_source_field, columns), *_period_fields()])
    configuration = {
        "delta.enableDeletionVectors": "true",
        _RETENTION: KEPT_FOR,
        "delta.logRetentionDuration": KEPT_FOR,
        # Spark deletes entries although its checkpoint may not be on the disk yet; `delta.checkpoints` deletes them.
        "delta.enableExpiredLogCleanup": "false",
        "delta.dataSkippingStatsColumns": ",".join(_with_statistics(columns)),
        _OID: str(oid),
        **({} if called == name else {_NAMES: json.dumps([(0, *called)])}),
    }
    return Creation(str(name), schema, ("_part",), configuration)


def closed_part(ended_us: int) -> str:
    """Return the partition of versions that ended at a time, in microseconds since 1970: the month in UTC.

    The fold has the same rule in SQL (`fold.stages`), and `verify.history_rules` checks it.
    """
    return month_of(ended_us)


def whole_number_keys(columns: Sequence[Column]) -> list[Column]:
    """Return the integer columns of the key; every value of theirs fits its type, so bounds hold for every key."""
    return [column for column in columns if column.key and type_of(column).delta in _WHOLE_NUMBERS]


def write_rows(table: HistoryTable, part: str, rows: pa.Table) -> Action:
    """Write rows, without `_part`, into a new file of a partition, with statistics of LSNs and keys."""
    return write_part(table.path, rows, bounded_columns(table), {"_part": part})


def write_row_batches(table: HistoryTable, part: str, rows: Iterable[pa.RecordBatch]) -> list[Action]:
    """Write rows as `write_rows` while they are read; without rows there is no file."""
    return write_batches(table.path, rows, bounded_columns(table), {"_part": part})


def adopt_rows(table: HistoryTable, part: str, files: Iterable[Place]) -> list[Action]:
    """Move files of such rows into a partition, with the same statistics; return their actions."""
    return [adopt_file(table.path, file, bounded_columns(table), {"_part": part}) for file in files]


def bounded_columns(table: HistoryTable) -> list[str]:
    """Return the columns whose least and greatest values are in the log, for files that are written here."""
    return [*LSNS, *(column.stored for column in whole_number_keys(table.columns))]


def history_ddl(columns: Sequence[Column]) -> str:
    """Return the schema of a history as Spark DDL."""
    source = [(spark_identifier(column.stored), type_of(column).delta) for column in columns]
    return ", ".join(f"{name} {kind}" for name, kind in [*source, *PERIOD_COLUMNS])


def _with_statistics(columns: tuple[Column, ...]) -> list[str]:
    """Return the columns with statistics in the log: the period's first, then the key, then the others, up to 32.

    By default Delta takes the first 32. Without bounds of the LSNs, an as-of query opens every closed file.
    Names that Delta would have to parse, and types for which it has no bounds, are omitted; so is text that is not in
    the key: files are not in its order, so bounds skip none, and they would be names and addresses in the log.
    """
    of_source = [c for c in (*(c for c in columns if c.key), *(c for c in columns if not c.key)) if _has_bounds(c)]
    return [*_PERIOD_BOUNDS, *(column.stored for column in of_source[: _STATISTICS - len(_PERIOD_BOUNDS)])]


def _has_bounds(column: Column) -> bool:
    without = _WITHOUT_BOUNDS if column.key else (*_WITHOUT_BOUNDS, "string")
    return _PLAIN_NAME.fullmatch(column.stored) is not None and not type_of(column).delta.startswith(without)


def with_columns(
    table: HistoryTable, columns: Sequence[Column], names: Sequence[tuple[Lsn, TableName]] = ()
) -> list[Action]:
    """Return the actions that record all physical columns of a table, new ones last, its later names, and its OIDs."""
    delta = open_version(table.path, table.delta_version)
    fields = {field.name: field for field in delta.schema().fields}
    fields |= {column.stored: _source_field(column) for column in columns}
    later = [(since, *name) for since, name in names]
    properties = {_NAMES: json.dumps(later)} if later else {}
    if table.former_oids:
        properties |= {_OID: str(table.oid), _FORMER_OIDS: json.dumps(table.former_oids)}
    return with_schema(delta, list(fields.values()), properties)


def set_columns(table: HistoryTable, columns: Sequence[Column], names: Sequence[tuple[Lsn, TableName]] = ()) -> None:
    """Record all physical columns, new ones NULL in every row, without a position; raises LakeConflict."""
    actions = with_columns(table, columns, names)
    if put_next(table.path, table.delta_version + 1, "ADD COLUMN", actions, changes_table) is None:
        raise LakeConflict(
            f"another process changes the columns of {table.name}",
            "Stop the other `auditlake follow` or `auditlake apply` of this lake; starting again is then enough.",
        )


def commit_as_read(table: HistoryTable, operation: str, actions: Iterable[Action]) -> None:
    """Commit to a history as it was read, as the version after that; raises FileExistsError if there is one."""
    version = table.delta_version + 1
    put_commit(table.path, version, operation, actions)
    if version % _CHECKPOINT_EVERY == 0:
        checkpoint(table.path)


def open_history(lake: Lake, name: TableName) -> HistoryTable | None:
    """Open the current version of a history table; None if it has no position."""
    path = lake.history(name)
    found = read_newest_state(path)
    if found is None:
        return None
    position, horizon = (found.transactions.get(app) for app in (HISTORY_APP, SNAPSHOT_APP))
    if position is None or horizon is None:
        return None
    columns = tuple(_known_column(path, field) for field in found.schema["fields"] if field["name"] not in RESERVED)
    made = has_own_features(found)
    oid, names, former = _identity(path, found.configuration)
    moved, version = found.transactions, found.version
    at, first = Lsn(position), Lsn(horizon)
    expired, resynced = (Lsn(moved.get(app, 0)) for app in (EXPIRED_APP, RESYNC_APP))
    since, copied = (expired, first) if expired > first else (first, _NEVER)
    taken_us, erased = moved.get(SNAPSHOT_TIME_APP), moved.get(ERASED_APP)
    read = (columns, version, at, since, made, oid, names, resynced, former, taken_us, copied, erased, found.etag)
    return HistoryTable(name, lake, *read)


def _identity(
    path: Path, properties: Mapping[str, str]
) -> tuple[int, tuple[tuple[Lsn, TableName], ...], tuple[tuple[Lsn, int], ...]]:
    """Return the OID of a table, its names and its former OIDs; raises LakeUnusable if auditlake did not write them."""
    try:
        names = tuple((Lsn(since), TableName(*name)) for since, *name in json.loads(properties.get(_NAMES, "[]")))
        former = tuple((Lsn(upto), oid) for upto, oid in json.loads(properties.get(_FORMER_OIDS, "[]")))
        return int(properties[_OID]), names, former
    except (KeyError, ValueError, TypeError) as exc:
        raise LakeUnusable(f"{path} does not tell which table it is the history of", "Restore the folder.") from exc


def has_own_retention(table: HistoryTable) -> bool:
    """Return whether a table keeps deleted files for as long as those that are created here."""
    found = read_newest_state(table.path)
    return found is not None and found.configuration.get(_RETENTION) == KEPT_FOR


_WITH_OID = re.compile(r"@[0-9]+\Z")


def history_of(recorded: Membership | None, relation: Relation) -> TableName:
    """Return the name of the history that a table of the source has; its own if none is recorded."""
    return (recorded and recorded.names.get(relation.oid)) or relation.name


def new_history(lake: Lake, relation: Relation) -> TableName:
    """Return the name of the history that a table has or is to get: its own, with its OID if that name is taken.

    A table whose own name ends as one with an OID always gets its OID, too: no two tables are to get the same name.
    """
    name = relation.name
    if _WITH_OID.search(name.table):
        name = TableName(name.schema, f"{name.table}@{relation.oid}")
    while (taken := open_history(lake, name)) is not None and taken.oid != relation.oid:
        name = TableName(name.schema, f"{name.table}@{relation.oid}")
    return name


def _source_field(column: Column) -> "Field":
    from deltalake import Field  # noqa: PLC0415 - as in `delta.table`

    metadata: dict[str, str | int] = {
        "auditlake.type_oid": column.type_oid,
        "auditlake.typmod": column.typmod,
        "auditlake.key": column.key,
    }
    if column.stored_as:
        metadata["auditlake.name"] = column.name
    for name in _NUMBERS:
        if (number := getattr(column, name)) is not None:
            metadata[f"auditlake.{name}"] = f"{number:d}"
    if column.former:
        metadata["auditlake.former"] = json.dumps(list(map(astuple, column.former)))
    return Field(column.stored, _delta_type(type_of(column).delta), nullable=True, metadata=metadata)


_NUMBERS = ("since", "until", "attnum")


def _column(field: Mapping[str, Any]) -> Column:
    name, metadata = field["name"], field["metadata"]
    numbers = {each: int(metadata[f"auditlake.{each}"]) for each in _NUMBERS if f"auditlake.{each}" in metadata}
    return Column(
        name=str(metadata.get("auditlake.name", name)),
        type_oid=int(metadata["auditlake.type_oid"]),
        typmod=int(metadata["auditlake.typmod"]),
        key=metadata["auditlake.key"] in (True, "true"),
        stored_as=name if "auditlake.name" in metadata else None,
        since=lsn_or_none(numbers.get("since")),
        attnum=numbers.get("attnum"),
        until=lsn_or_none(numbers.get("until")),
        former=former_of(json.loads(str(metadata.get("auditlake.former", "[]")))),
    )


def _known_column(path: Path, field: Mapping[str, Any]) -> Column:
    """Return a column; raises LakeUnusable if auditlake did not write it."""
    try:
        return _column(field)
    except (KeyError, ValueError, TypeError) as exc:
        message = f"{path} does not tell which column of the source {field['name']} is"
        raise LakeUnusable(message, "Restore the folder.") from exc


def former_of(listed: Iterable[Sequence[Any]]) -> tuple[Former, ...]:
    """Return the earlier names, key flags and types of a column from a list in JSON."""
    return tuple(Former(Lsn(until), name, key, *map(_type, kind)) for until, name, key, *kind in listed)


def _type(listed: Sequence[int] | None) -> tuple[int, int] | None:
    return None if listed is None else (listed[0], listed[1])


def lsn_or_none(number: int | None) -> Lsn | None:
    """Return a number from JSON, or NULL, as an LSN."""
    return None if number is None else Lsn(number)


def _period_fields() -> list["Field"]:
    from deltalake import Field  # noqa: PLC0415 - as in `delta.table`

    return [Field(name, _delta_type(spelling), nullable=True) for name, spelling in PERIOD_COLUMNS]


def _delta_type(spelling: str) -> "PrimitiveType | MapType | ArrayType":
    from deltalake.schema import ArrayType, MapType, PrimitiveType  # noqa: PLC0415 - as in `delta.table`

    if spelling.startswith("array<"):
        return ArrayType(_delta_type(spelling.removeprefix("array<").removesuffix(">")), contains_null=True)
    if spelling == "map<string,string>":
        return MapType(PrimitiveType("string"), PrimitiveType("string"), value_contains_null=True)
    return PrimitiveType(_DELTA_NAMES.get(spelling, spelling))


TIME = pa.timestamp("us", tz="UTC")
_ARROW = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "timestamp": TIME,
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
PERIOD_FIELDS = tuple(pa.field(name, _ARROW[kind]) for name, kind in PERIOD_COLUMNS if name != "_part")
"""The period's columns without `_part`, the partition column, which data files do not contain."""


def history_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of a history's data files: the source's columns and `PERIOD_FIELDS`."""
    return pa.schema([*(pa.field(column.stored, arrow_type(type_of(column))) for column in columns), *PERIOD_FIELDS])
