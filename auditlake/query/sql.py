"""Run one statement over a lake as of a moment.

Every WHEN of the statement, and the moment of those tables that name none, is resolved once, from one look at the
lake; so joins see one state of the database. Only the tables that are named are opened. The views live while Spark
analyses the statement and are gone when `run_sql` returns: statements of one session do not see each other.
"""

import uuid
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.log import open_delta
from auditlake.lsn import Lsn
from auditlake.query.failure import statement_errors
from auditlake.query.moments import Known, read_known, resolve
from auditlake.query.names import SYSTEM_SCHEMA
from auditlake.query.period import Reading
from auditlake.query.rewrite import Names, rewrite
from auditlake.query.state import read_period, state_as_of
from auditlake.query.when import When, parse_when
from auditlake.relation import TableName


def run_sql(spark: SparkSession, lake: Lake, sql: str, as_of: str | None = None) -> DataFrame:
    """Run `sql` with every table as of `as_of`, a WHEN; None is the watermark.

    Raises BadUsage for SQL that cannot be understood, NotAnswerable for a moment the lake does not know.
    """
    now = datetime.now(UTC)
    when = None if as_of is None else parse_when(as_of, now)
    known = read_known(lake)
    rewritten = rewrite(sql, Names(tuple(known.tables), now, f"auditlake_{uuid.uuid4().hex}_"))
    lsn = known.now_lsn if when is None else resolve(known, when)
    try:
        for view, reading in rewritten.views.items():
            _read(spark, known, reading, lsn, when).createOrReplaceTempView(view)
        with statement_errors({view: str(reading.table) for view, reading in rewritten.views.items()}):
            return spark.sql(rewritten.sql)
    finally:
        for view in rewritten.views:
            spark.catalog.dropTempView(view)


def _read(spark: SparkSession, known: Known, reading: Reading, lsn: Lsn, when: When | None) -> DataFrame:
    if reading.table.schema == SYSTEM_SCHEMA:
        return read_log(spark, known, reading.table, lsn)
    table = known.tables[reading.table]
    if reading.period is None:
        return state_as_of(spark, known, table, lsn, when)
    return read_period(spark, known, table, reading.period)


def read_log(spark: SparkSession, known: Known, name: TableName, lsn: Lsn) -> DataFrame:
    """Read one of the lake's own tables, as far as it was written by `lsn`."""
    path = known.lake.root / name.table
    delta = open_delta(path)
    if delta is None:
        raise LakeUnusable(f"{path} is missing", "Run auditlake follow: capture makes it when it starts.")
    rows = spark.read.format("delta").load(str(path))
    if name.table in ("changes", "transactions"):
        return rows.where(F.col("lsn") <= int(known.changes_up_to(lsn)))
    return rows
