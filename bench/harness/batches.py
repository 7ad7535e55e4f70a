"""Histories of any size and batches of changes, written as snapshot and capture write them, without a server."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.lake.history import PERIOD_COLUMNS, create_history
from auditlake.lake.layout import CHANGES_APP, HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.relations import RelationVersion, version_rows
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName

_BEGIN = 1_000
_BEGIN_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_COLUMNS = (
    Column("aid", 23, -1, key=True),
    Column("bid", 23, -1, key=False),
    Column("abalance", 23, -1, key=False),
    Column("filler", 25, -1, key=False),
)
_FILLER = " " * 84


class Batches:
    """Lake of tables like pgbench_accounts, all with the same number of rows, and updates of random keys."""

    def __init__(self, spark: SparkSession, lake: Lake, tables: int, rows: int) -> None:
        self.lake = lake
        self.spark = spark
        self._rows = rows
        self._lsn = _BEGIN
        self._random = np.random.default_rng(1)
        self.names = [TableName("public", f"accounts_{n}") for n in range(tables)]
        for name in self.names:
            self._begin(name)
        versions = [(number, self._version(number, name)) for number, name in enumerate(self.names)]
        write_deltalake(lake.relations, pa.Table.from_batches([version_rows(versions)]), mode="append")

    def _begin(self, name: TableName) -> None:
        create_history(self.lake, name, _COLUMNS, self.names.index(name))
        path = str(self.lake.history(name))
        number = F.col("id").cast("int")
        begin = {"_from_lsn": F.lit(_BEGIN), "_from_time": F.lit(_BEGIN_TIME), "_op": F.lit("snapshot")}
        begin |= {"_part": F.lit("open"), "_ordinal": number}
        period = [begin.get(column, F.lit(None)).cast(kind).alias(column) for column, kind in PERIOD_COLUMNS]
        values = [
            number.alias("aid"),
            F.lit(1).alias("bid"),
            F.lit(0).alias("abalance"),
            F.lit(_FILLER).alias("filler"),
        ]
        rows = self.spark.range(0, self._rows, 1, 2).select(*values, *period)
        rows.write.format("delta").mode("append").save(path)
        marks = {HISTORY_APP: _BEGIN, SNAPSHOT_APP: _BEGIN, SNAPSHOT_TIME_APP: 0}
        properties = CommitProperties(app_transactions=[Transaction(app, lsn) for app, lsn in marks.items()])
        table = DeltaTable(path)
        table.create_write_transaction([], "append", table.schema(), ["_part"], commit_properties=properties)

    @staticmethod
    def _version(number: int, name: TableName) -> RelationVersion:
        return RelationVersion(number, Lsn(_BEGIN), Relation(number, name, ReplicaIdentity.DEFAULT, _COLUMNS))

    def write(self, changes: int, tables: Sequence[TableName] | None = None) -> None:
        """Append this number of updates of random keys to each of the tables, each in a transaction of its own."""
        parts = [self._changes(name, changes) for name in tables or self.names]
        self._lsn += 10 * changes
        properties = CommitProperties(app_transactions=[Transaction(CHANGES_APP, self._lsn)])
        write_deltalake(self.lake.changes, pa.concat_tables(parts), mode="append", commit_properties=properties)

    def _changes(self, name: TableName, count: int) -> pa.Table:
        lsn = self._lsn + 10 * (1 + np.arange(count))
        keys = self._random.integers(0, self._rows, count)
        time = pa.array(lsn * 1000 + int(_BEGIN_TIME.timestamp()) * 10**6).cast(pa.timestamp("us", tz="UTC"))
        new = [[str(key), "1", str(n), _FILLER] for n, key in enumerate(keys.tolist())]
        number = self.names.index(name)
        constant = {"ordinal": 0, "op": "update", "schema": name.schema, "table": name.table, "relation": number}
        columns = {"lsn": pa.array(lsn), "xid": pa.array(lsn), "time": time, "new": pa.array(new)}
        columns |= {field: pa.array([value] * count) for field, value in constant.items()}
        fields = [columns.get(f.name, pa.nulls(count)).cast(f.type) for f in CHANGES_SCHEMA]
        return pa.table(fields, schema=CHANGES_SCHEMA)
