"""Let the JVM learn to merge while nothing waits: a batch into a throwaway lake.

The first batch of a JVM takes several times as long as a later one, because what it runs is loaded, compiled and
optimised on the way. This runs the same code on one row in a temporary folder. It knows nothing of the real lake. More
batches, or more rows, were measured to save the first real one nothing more.
"""

import shutil
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
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
_LSN = 10


def warm_up(spark: SparkSession, stop: threading.Event) -> None:
    """Merge a small batch, unless `stop` is set meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="auditlake-warm-"))
    try:
        lake = Lake(folder)
        _begin(lake)
        _capture(lake)
        if not stop.is_set():
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


def _capture(lake: Lake) -> None:
    place = {"lsn": _LSN, "ordinal": 0, "xid": 1, "time": datetime.now(UTC)}
    table = {"schema": _NAME.schema, "table": _NAME.table, "relation": 1}
    change = {**place, **table, "op": "insert", "new": ["1", "1.50", "2026-11-21 00:00:00+00", "text"]}
    properties = CommitProperties(app_transactions=[Transaction(CHANGES_APP, _LSN)])
    rows = pa.Table.from_pylist([change], schema=CHANGES_SCHEMA)
    write_deltalake(lake.changes, rows, mode="append", commit_properties=properties)
