"""Let the JVM learn to merge while nothing waits: a few batches into a throwaway lake.

The first MERGE of a JVM takes many times as long as a later one, because what it runs is loaded, compiled and
optimised on the way. This runs the same code on three rows in a temporary folder. It knows nothing of the real lake.
"""

import shutil
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_tail
from auditlake.lake.history import create_history
from auditlake.lake.layout import CHANGES_APP, HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lake.relations import RELATIONS_SCHEMA
from auditlake.pgoutput.schema import CHANGES_SCHEMA
from auditlake.relation import Column, TableName

_NAME = TableName("public", "warm")
_COLUMNS = (
    Column("id", 20, -1, key=True),
    Column("number", 1700, ((12 << 16) | 2) + 4, key=False),
    Column("time", 1184, -1, key=False),
    Column("text", 25, -1, key=False),
)
_BATCHES = 3
_STEP = 10


def warm_up(spark: SparkSession, stop: threading.Event) -> None:
    """Merge a few small batches, unless `stop` is set meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="auditlake-warm-"))
    try:
        lake = Lake(folder)
        _begin(lake)
        for number in range(1, _BATCHES + 1):
            _capture(lake, number * _STEP)
            if stop.is_set():
                return
            apply_tail(spark, lake)
    except PySparkException:
        # Only time is lost, and what is wrong with Spark will be said when it is needed.
        return
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _begin(lake: Lake) -> None:
    history = create_history(lake, _NAME, _COLUMNS)
    marks = [Transaction(app, 1) for app in (HISTORY_APP, SNAPSHOT_APP)]
    properties = CommitProperties(app_transactions=marks)
    history.create_write_transaction([], "append", history.schema(), ["_part"], commit_properties=properties)
    columns = [{"name": c.name, "type_oid": c.type_oid, "typmod": c.typmod, "key": c.key} for c in _COLUMNS]
    relation = {"relation": 1, "lsn": 1, "oid": 1, "schema": _NAME.schema, "table": _NAME.table}
    rows = [{**relation, "replica_identity": "d", "columns": columns}]
    write_deltalake(lake.relations, pa.Table.from_pylist(rows, schema=RELATIONS_SCHEMA), mode="append")


def _capture(lake: Lake, lsn: int) -> None:
    rows = [_change(lsn, 0, "insert", lsn)]
    if DeltaTable.is_deltatable(str(lake.changes)):
        rows.append(_change(lsn, 1, "update", lsn - _STEP))
    properties = CommitProperties(app_transactions=[Transaction(CHANGES_APP, lsn)])
    table = pa.Table.from_pylist(rows, schema=CHANGES_SCHEMA)
    write_deltalake(lake.changes, table, mode="append", commit_properties=properties)


def _change(lsn: int, ordinal: int, op: str, key: int) -> dict[str, Any]:
    place = {"lsn": lsn, "ordinal": ordinal, "xid": lsn, "time": datetime.now(UTC)}
    table = {"schema": _NAME.schema, "table": _NAME.table, "relation": 1}
    return {**place, **table, "op": op, "new": [f"{key:d}", "1.50", "2026-11-21 00:00:00+00", op]}
