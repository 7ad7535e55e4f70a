"""History tables: their columns, how one is created and what it says of itself. No JVM.

A history table has the source's columns, then `PERIOD_COLUMNS`, partitioned by `_part` (`open`, or the month of the
version's end); a column that was added to the source later is behind those. Each source column's field metadata carries
its PostgreSQL type, whether it is part of the key, its own name where it is stored under another (`names`), and the
commit LSN since which it is there if that was after the snapshot: so the table describes itself and needs no second
file. Position and horizon are application transactions of the commits that moved them: a table without a position does
not exist for readers.

Authority: Delta's PROTOCOL.md, "Transaction Identifiers" and "Column Metadata"
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.schema import ArrayType, MapType, PrimitiveType

from auditlake.errors import LakeConflict
from auditlake.lake.commits import Action, adopt_file, has_own_features, write_part
from auditlake.lake.creation import Creation, create_table
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.literals import spark_name
from auditlake.relation import Column, TableName
from auditlake.values.types import ColumnType, column_type

OPEN_PART = "open"
KEPT_FOR = "interval 6 hours"
"""How long files and versions stay that were replaced: longer than any question runs, which pins its version."""

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
LSNS = ("_from_lsn", "_to_lsn")

_PERIOD_BOUNDS = (*LSNS, "_from_time", "_to_time")
_WHOLE_NUMBERS = ("smallint", "int", "bigint")
_STATISTICS = 32
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WITHOUT_BOUNDS = ("boolean", "binary", "array", "map", "struct")
_DELTA_NAMES = {"bigint": "long", "smallint": "short", "int": "integer"}


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """One history table at one Delta version; `position` and `horizon` are commit LSNs, both inclusive.

    `as_made`: it asks of its readers and writers no more than when it was made.
    """

    name: TableName
    path: Path
    columns: tuple[Column, ...]
    delta_version: int
    position: int
    horizon: int
    as_made: bool

    @property
    def key(self) -> tuple[Column, ...]:
        """The columns that identify a row."""
        return tuple(column for column in self.columns if column.key)

    def columns_at(self, lsn: int) -> tuple[Column, ...]:
        """The columns that the table had at `lsn`, as far as its history is folded."""
        return tuple(column for column in self.columns if column.since is None or column.since <= lsn)


def type_of(column: Column) -> ColumnType:
    """Where this column's values live."""
    return column_type(column.type_oid, column.typmod)


def create_history(lake: Lake, name: TableName, columns: tuple[Column, ...]) -> DeltaTable:
    """Create the empty table, without a position: readers do not see it yet."""
    path = lake.history(name)
    schema = Schema([*map(_source_field, columns), *_period_fields()])
    configuration = {
        "delta.enableDeletionVectors": "true",
        "delta.deletedFileRetentionDuration": KEPT_FOR,
        "delta.logRetentionDuration": KEPT_FOR,
        "delta.dataSkippingStatsColumns": ",".join(_with_statistics(columns)),
    }
    create_table(path, Creation(str(name), schema, ("_part",), configuration))
    return DeltaTable(path)


def whole_number_keys(columns: Sequence[Column]) -> list[Column]:
    """The key columns of integers: no value of them is outside its column, so bounds and ranges hold for every key."""
    return [column for column in columns if column.key and type_of(column).delta in _WHOLE_NUMBERS]


def write_rows(table: HistoryTable, part: str, rows: pa.Table) -> Action:
    """Write rows, without `_part`, into a new file of that part, with the bounds of LSNs and keys; gives its action."""
    return write_part(table.path, rows, _bounded(table), {"_part": part})


def adopt_rows(table: HistoryTable, part: str, files: Iterable[Path]) -> list[Action]:
    """Make files, each with such rows, files of that part; gives their actions."""
    return [adopt_file(table.path, file, _bounded(table), {"_part": part}) for file in files]


def _bounded(table: HistoryTable) -> list[str]:
    return [*LSNS, *(column.stored for column in whole_number_keys(table.columns))]


def history_ddl(columns: Sequence[Column]) -> str:
    """Spell the schema of a history as Spark does."""
    source = [(spark_name(column.stored), type_of(column).delta) for column in columns]
    return ", ".join(f"{name} {kind}" for name, kind in [*source, *PERIOD_COLUMNS])


def _with_statistics(columns: tuple[Column, ...]) -> list[str]:
    """Name the columns whose bounds each file has in Delta's log: those of the period always, however wide the table.

    By default they are the first 32, and without bounds on LSNs a question about long ago opens every closed file.
    Names that Delta would have to parse, and types it has no bounds for, are left out.
    """
    of_source = [c for c in (*(c for c in columns if c.key), *(c for c in columns if not c.key)) if _has_bounds(c)]
    return [*_PERIOD_BOUNDS, *(column.stored for column in of_source[: _STATISTICS - len(_PERIOD_BOUNDS)])]


def _has_bounds(column: Column) -> bool:
    delta = type_of(column).delta
    return _PLAIN_NAME.fullmatch(column.stored) is not None and not delta.startswith(_WITHOUT_BOUNDS)


def add_columns(table: HistoryTable, columns: Sequence[Column]) -> None:
    """Give the table columns that it lacks, behind all others and NULL in every row; a commit without a position.

    Raises LakeConflict where another process has changed the table's columns meanwhile.
    """
    delta, seen = DeltaTable(table.path), DeltaTable(table.path, version=table.delta_version)
    if delta.schema().fields != seen.schema().fields:
        raise _columns_conflict(table.name)
    try:
        delta.alter.add_columns([_source_field(column) for column in columns])
    except CommitFailedError as exc:
        raise _columns_conflict(table.name) from exc


def _columns_conflict(name: TableName) -> LakeConflict:
    return LakeConflict(
        f"another process changes the columns of {name}",
        "Stop the other `auditlake follow` or `auditlake apply` of this lake; starting again is then enough.",
    )


def open_history(lake: Lake, name: TableName) -> HistoryTable | None:
    """Read what a history table says of itself now; None where it has no position."""
    try:
        delta = DeltaTable(lake.history(name))
    except TableNotFoundError:
        return None
    position = delta.transaction_version(HISTORY_APP)
    horizon = delta.transaction_version(SNAPSHOT_APP)
    if position is None or horizon is None:
        return None
    columns = tuple(_column(field) for field in delta.schema().fields if field.name not in RESERVED)
    return HistoryTable(name, lake.history(name), columns, delta.version(), position, horizon, has_own_features(delta))


def list_histories(lake: Lake) -> Iterator[HistoryTable]:
    """Every history table that has a position, in name order."""
    for name in lake.history_names():
        if table := open_history(lake, name):
            yield table


def _source_field(column: Column) -> Field:
    metadata: dict[str, str | int] = {
        "auditlake.type_oid": column.type_oid,
        "auditlake.typmod": column.typmod,
        "auditlake.key": column.key,
    }
    if column.stored_as:
        metadata["auditlake.name"] = column.name
    if column.since is not None:
        metadata["auditlake.since"] = str(column.since)
    return Field(column.stored, _delta_type(type_of(column).delta), nullable=True, metadata=metadata)


def _column(field: Field) -> Column:
    metadata = field.metadata
    return Column(
        name=str(metadata.get("auditlake.name", field.name)),
        type_oid=int(metadata["auditlake.type_oid"]),
        typmod=int(metadata["auditlake.typmod"]),
        key=metadata["auditlake.key"] in (True, "true"),
        stored_as=field.name if "auditlake.name" in metadata else None,
        since=int(metadata["auditlake.since"]) if "auditlake.since" in metadata else None,
    )


def _period_fields() -> list[Field]:
    return [Field(name, _delta_type(spelling), nullable=True) for name, spelling in PERIOD_COLUMNS]


def _delta_type(spelling: str) -> PrimitiveType | MapType | ArrayType:
    if spelling.startswith("array<"):
        return ArrayType(_delta_type(spelling.removeprefix("array<").removesuffix(">")), contains_null=True)
    if spelling == "map<string,string>":
        return MapType(PrimitiveType("string"), PrimitiveType("string"), value_contains_null=True)
    return PrimitiveType(_DELTA_NAMES.get(spelling, spelling))
