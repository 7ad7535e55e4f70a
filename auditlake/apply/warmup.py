"""Class-data archive of Spark's JVM: `auditlake doctor --fetch` and `make setup` write it (`spark.jvm`).

The first batch that Spark folds takes several times as long as a later one, because its classes are loaded, compiled
and optimised on the way; the archive saves the loading. It has the classes of a batch of one row in a temporary folder,
without access to the real lake, and of a query.
"""

import shutil
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import SparkSession

from auditlake.apply.apply import merge_all
from auditlake.apply.tails import find_tails, open_log
from auditlake.config import load_settings
from auditlake.errors import AuditlakeError
from auditlake.lake.history import create_history, open_history
from auditlake.lake.layout import CHANGES_APP, HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.messages import report_error
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.spark.jars import delta_jars
from auditlake.spark.jvm import create_archive
from auditlake.spark.session import spark_session

_NAME = TableName("public", "warm")
_COLUMNS = (
    Column("id", 20, -1, key=True),
    Column("number", 1700, ((12 << 16) | 2) + 4, key=False),
    Column("time", 1184, -1, key=False),
    Column("text", 25, -1, key=False),
)
_LSN = 10


def warm_up(spark: SparkSession) -> None:
    """Have Spark merge a small batch."""
    folder = Path(tempfile.mkdtemp(prefix="auditlake-warm-"))
    try:
        lake = Lake(folder)
        _begin(lake)
        _capture(lake)
        log, table = open_log(lake), open_history(lake, _NAME)
        if log is not None and table is not None:
            merge_all(spark, lake, find_tails(lake, log, {table: table.position}, log.watermark))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_archive(settings: Mapping[str, str]) -> Path:
    """Write the class-data archive of later JVMs, unless it exists; return its path. Raises ConfigError."""
    return create_archive(delta_jars(settings), lambda options: _start(settings, options), _workload)


def main() -> None:
    """Write the archive, by the settings."""
    try:
        write_archive(load_settings().spark)
    except AuditlakeError as error:
        report_error(error)
        sys.exit(error.exit_code)


def _start(settings: Mapping[str, str], options: str) -> SparkSession:
    name = "spark.driver.extraJavaOptions"
    return spark_session({**settings, name: f"{settings.get(name, '')} {options}".strip()})


def _workload(spark: SparkSession) -> None:
    """Apply a batch, and run the parts of a query that most queries have."""
    warm_up(spark)
    spark.range(100).selectExpr(
        "id", "cast(id as string) as name", "cast(id as decimal(10,2)) as price"
    ).createOrReplaceTempView("t")
    spark.sql("select a.name, sum(b.price), count(*) from t a join t b using (id) group by all order by 1").toArrow()


def _begin(lake: Lake) -> None:
    history = create_history(lake, _NAME, _COLUMNS, 1)
    marks = [Transaction(app, 1) for app in (HISTORY_APP, SNAPSHOT_APP)]
    properties = CommitProperties(app_transactions=marks)
    history.create_write_transaction([], "append", history.schema(), ["_part"], commit_properties=properties)
    relations = RelationsLog(lake)
    relations.record(Relation(1, _NAME, ReplicaIdentity.DEFAULT, _COLUMNS), Lsn(1))
    relations.flush()


def _capture(lake: Lake) -> None:
    place = {"lsn": _LSN, "ordinal": 0, "xid": 1, "time": datetime.now(UTC)}
    table = {"schema": _NAME.schema, "table": _NAME.table, "relation": 1}
    change = {**place, **table, "op": "insert", "new": ["1", "1.50", "2026-11-21 00:00:00+00", "text"]}
    properties = CommitProperties(app_transactions=[Transaction(CHANGES_APP, _LSN)])
    rows = pa.Table.from_pylist([change], schema=CHANGES_SCHEMA)
    write_deltalake(lake.changes, rows, mode="append", commit_properties=properties)


if __name__ == "__main__":
    main()
