"""Lake with one table, written as capture and snapshot write it; its history is read back as the model's versions."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession

import auditlake.apply.apply as applying
from auditlake.apply import parts
from auditlake.apply.apply import apply_pending
from auditlake.apply.embedded_fold import NotFolded
from auditlake.apply.merge import Plan, merge
from auditlake.apply.tail_fold import fold_tail
from auditlake.apply.tails import Tail, TailShape, find_tails, open_log
from auditlake.delta.sql import open_duckdb
from auditlake.delta.table import open_table
from auditlake.lake.duckdb_rows import rows_of
from auditlake.lake.history import PERIOD_COLUMNS, HistoryTable, create_history
from auditlake.lake.history_files import find_files, part_of
from auditlake.lake.layout import ACKNOWLEDGED_APP, CHANGES_APP, HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lake.relations import RelationVersion, version_rows
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.spark.planning import read_version
from auditlake.sql_names import standard_identifier
from auditlake.store.objects import options
from auditlake.store.place import Place
from tests import model
from tests.read_lake import history_of
from tests.s3_server import copy_lake

NAME = TableName("public", "it's odd")
COLUMNS = (
    Column("note", 25, -1, key=False),
    Column("id", 23, -1, key=True),
    Column('odd."name`', 25, -1, key=False),
    Column("day", 1082, -1, key=True),
    Column("blob", 17, -1, key=False),
    Column("amount", 1700, ((10 << 16) | 2) + 4, key=False),
    Column("at", 1184, -1, key=False),
    Column("lsn", 16, -1, key=False),
)
KEY = (1, 3)
REST = tuple(p for p in range(len(COLUMNS)) if p not in KEY)
NO_PLACE = {
    "day": ("infinity", "-infinity"),
    "amount": ("NaN",),
    "at": ("infinity", "0044-03-15 00:00:00+00 BC", "294276-12-31 00:00:00+00"),
}
SNAPSHOT_LSN = 100
_EPOCH = datetime(2026, 1, 30, tzinfo=UTC)


def time_of(lsn: int) -> datetime:
    """Return a commit time; it crosses months as LSNs increase."""
    return _EPOCH + timedelta(hours=lsn)


@dataclass(frozen=True)
class Source:
    """The table at the source, as far as the stream shows it; `full` is REPLICA IDENTITY FULL."""

    lake: Lake
    full: bool = False
    columns: tuple[Column, ...] = COLUMNS

    def start(self, versions: Iterable[model.Version] = ()) -> None:
        """Write a completed snapshot with these open versions."""
        table = create_history(self.lake, NAME, self.columns, 1)
        positions = [Transaction(HISTORY_APP, SNAPSHOT_LSN), Transaction(SNAPSHOT_APP, SNAPSHOT_LSN)]
        rows = [_history_row(version) for version in versions]
        arrow = pa.schema(table.schema().to_arrow())
        properties = CommitProperties(app_transactions=positions)
        write_deltalake(table, pa.Table.from_pylist(rows, schema=arrow), mode="append", commit_properties=properties)
        self.register(1, self.columns)

    def register(self, number: int, columns: Sequence[Column]) -> None:
        """Write a relation version."""
        identity = ReplicaIdentity.FULL if self.full else ReplicaIdentity.DEFAULT
        relation = Relation(1, NAME, identity, tuple(replace(each, key=each.key or self.full) for each in columns))
        version = RelationVersion(number, Lsn(SNAPSHOT_LSN), relation)
        _append(self.lake.relations, pa.Table.from_batches([version_rows([(number, version)])]))

    def capture(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append changes and move the watermark to the last of them."""
        table = pa.Table.from_pylist([dict(row) for row in rows], schema=CHANGES_SCHEMA)
        positions = [Transaction(app, rows[-1]["lsn"]) for app in (CHANGES_APP, ACKNOWLEDGED_APP)]
        _append(self.lake.changes, table, *positions)

    def changes(self, transaction: model.Transaction, rows: dict[model.Key, model.Values]) -> list[dict[str, Any]]:
        """Apply a transaction to `rows`, and return its changes as pgoutput would send them."""
        sent = []
        for ordinal, operation in enumerate(transaction.operations):
            place = {"lsn": transaction.lsn, "ordinal": ordinal, "xid": transaction.xid, "time": transaction.time}
            table = {"schema": NAME.schema, "table": NAME.table, "relation": 1}
            sent.append({**place, **table, **self._tuples(operation, rows)})
            model.apply_operation(operation, rows, {}, {})
        return sent

    def _tuples(self, operation: model.Operation, rows: Mapping[model.Key, model.Values]) -> dict[str, Any]:
        match operation:
            case model.Insert(key, values):
                return {"op": "insert", "new": texts(key, values)}
            case model.Delete(key):
                return {"op": "delete", "old": self._old(key, rows)}
            case model.Truncate():
                return {"op": "truncate"}
            case model.Update(key, new_key, values):
                sent = texts(new_key, tuple(None if v is model.UNCHANGED else v for v in values))
                unchanged = [p for p, v in zip(REST, values, strict=True) if v is model.UNCHANGED]
                old = self._old(key, rows) if self.full or key != new_key else None
                return {"op": "update", "old": old, "new": sent, "unchanged": unchanged or None}

    def _old(self, key: model.Key, rows: Mapping[model.Key, model.Values]) -> list[str | None]:
        return texts(key, rows[key] if self.full else (None,) * len(REST))


def _append(place: Place, rows: pa.Table, *positions: Transaction) -> None:
    properties = CommitProperties(app_transactions=list(positions))
    write_deltalake(str(place), rows, mode="append", commit_properties=properties, storage_options=options())


def texts(key: Any, values: model.Values) -> list[str | None]:
    """Return key and other values in column order."""
    in_order: list[str | None] = [None] * len(COLUMNS)
    for position, value in (*zip(KEY, key, strict=True), *zip(REST, values, strict=True)):
        in_order[position] = value
    return in_order


def any_shape(rows: int, columns: tuple[Column, ...]) -> TailShape:
    """Return the shape of a tail that excludes nothing."""
    return TailShape(
        rows=rows,
        inserts_only=False,
        has_truncate=True,
        has_key_change=True,
        old_is_whole=False,
        unchanged=frozenset(range(len(columns))),
    )


def the_history(lake: Lake) -> HistoryTable:
    """Open the current version of the history table."""
    return history_of(lake, NAME)


def tail_of(lake: Lake, upto: int) -> Tail:
    """Return the only tail of the lake."""
    table, log = the_history(lake), open_log(lake)
    assert log is not None
    (tail,) = find_tails(lake, log, {table: table.position}, Lsn(upto))
    return tail


def apply_as(spark: SparkSession, lake: Lake, upto: int, plan: Plan) -> None:
    """Apply the table's tail up to `upto` by this plan, regardless of its size."""
    tail = tail_of(lake, upto)
    folded = fold_tail(spark.newSession(), tail)
    assert folded is not None
    merge(tail, folded, plan)


class NeedsSpark(Exception):
    """A tail was left to Spark."""


def without_spark() -> NoReturn:
    """Stand in for the start of Spark where Spark must not start."""
    raise NeedsSpark


@contextmanager
def only_spark() -> Iterator[None]:
    """Have Spark fold every tail."""
    with mock.patch.object(applying, "merge_embedded", side_effect=NotFolded):
        yield


@contextmanager
def in_parts(part_bytes: int = 1000) -> Iterator[None]:
    """Have tails divided into parts, of a few changes each; one that cannot be divided is left to Spark."""
    with mock.patch.object(parts, "HELD_BYTES", 0), mock.patch.object(parts, "PART_BYTES", part_bytes):
        yield


def versions_without_spark(lake: Lake, folder: Path) -> list[model.Version]:
    """Apply the tail to a copy of the lake, in a new folder, without Spark: in parts, and whole."""
    divided, whole = (copy_lake(lake, folder / name) for name in ("divided", "whole"))
    with suppress(NeedsSpark), in_parts():
        apply_pending(without_spark, divided)
    for twin in (divided, whole):
        apply_pending(without_spark, twin)
    assert Counter(held_versions(divided)) == Counter(held_versions(whole))
    return held_versions(whole)


def held_versions(lake: Lake) -> list[model.Version]:
    """Return every row of the history as a version of the model, as `versions_in`, without Spark."""
    files = find_files(the_history(lake))
    assert files is not None
    names = [
        *(column.stored for column in files.table.columns),
        *(name for name, _ in PERIOD_COLUMNS if name != "_part"),
    ]
    shown = list(map(standard_identifier, names))
    with closing(open_duckdb()) as connection:
        rows = []
        for part in {part_of(file) for file in files.by_name.values()}:
            table = connection.sql(rows_of(connection, files.of_part(part), shown, None)).to_arrow_table()
            rows += [
                {**row, "_raw": dict(row["_raw"]) if row["_raw"] else None, "_part": part} for row in table.to_pylist()
            ]
    return [_version(row) for row in rows]


def all_rows(spark: SparkSession, lake: Lake) -> list[str]:
    """Return every row of the history, complete and sorted by its text."""
    table = the_history(lake)
    return sorted(map(repr, read_version(spark, str(table.path), table.delta_version).collect()))


def versions_in(history: DataFrame) -> list[model.Version]:
    """Return every row of a history as a version of the model; assert that `_part` and `_raw` agree with the rest."""
    return [_version(row.asDict()) for row in history.collect()]


def _version(values: Mapping[str, Any]) -> model.Version:
    raw = values["_raw"]
    assert raw is None or raw, "_raw is an empty map"
    assert not [name for name in raw or {} if values[name] is not None], "a value is typed and in _raw"
    shown = [(raw or {}).get(c.name, _as_postgres(values[c.name])) for c in COLUMNS]
    ended = values["_to_time"]
    assert values["_part"] == (f"{_utc(ended):%Y-%m}" if ended else "open")
    return model.Version(
        key=tuple(shown[p] for p in KEY),
        values=tuple(shown[p] for p in REST),
        from_lsn=values["_from_lsn"],
        from_time=_utc(values["_from_time"]),
        op=values["_op"],
        xid=values["_xid"],
        ordinal=values["_ordinal"],
        to_lsn=values["_to_lsn"],
        to_time=_utc(ended) if ended else None,
        end_op=values["_end_op"],
        end_xid=values["_end_xid"],
    )


def _utc(naive: datetime) -> datetime:
    # PySpark returns timestamps as naive local times.
    return naive.astimezone(UTC)


def _as_postgres(value: Any) -> str | None:
    if value is None:
        return None
    shown: dict[type, Callable[[Any], str]] = {
        bool: lambda truth: "t" if truth else "f",
        datetime: lambda time: _utc(time).isoformat(sep=" ").removesuffix(":00"),
        Decimal: lambda number: f"{number:f}",
        bytearray: lambda content: "\\x" + content.hex(),
        bytes: lambda content: "\\x" + content.hex(),
    }
    return shown.get(type(value), str)(value)


_SNAPSHOT_VALUES: dict[str, Callable[[str], Any]] = {
    "id": int,
    "day": date.fromisoformat,
    "amount": Decimal,
    "lsn": lambda text: text == "t",
}


def _history_row(version: model.Version) -> dict[str, Any]:
    row: dict[str, Any] = {}
    raw = []
    for column, text in zip(COLUMNS, texts(version.key, version.values), strict=True):
        fits = text not in NO_PLACE.get(column.name, ())
        row[column.name] = _typed(column, text) if text is not None and fits else None
        if not fits:
            raw.append((column.name, text))
    period = {"_from_lsn": version.from_lsn, "_from_time": version.from_time, "_op": version.op, "_part": "open"}
    period["_ordinal"] = version.ordinal
    return row | period | {"_raw": raw or None}


def _typed(column: Column, text: str) -> Any:
    if column.name == "blob":
        return bytes.fromhex(text[2:])
    if column.name == "at":
        return datetime.fromisoformat(text)
    return _SNAPSHOT_VALUES.get(column.name, str)(text)


def delta_version(lake: Lake) -> int:
    """Return the version of the history table."""
    return open_table(lake.history(NAME)).version()
