"""Run a statement, or a script of several, in Spark, over a lake as of a moment.

`query.statement` prepares it; `plan` then plans the statement and opens only the tables that are named.

Our views exist while Spark analyses a statement and are dropped when `plan` returns; statements do not share them. A
view that the user defines stays in Spark's session, as the plan of its query over the LSNs that this resolved to.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.delta.append_table import open_delta
from auditlake.errors import LakeUnusable
from auditlake.lake.history import LSNS
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.query.as_of import read_selection
from auditlake.query.column_metadata import mark, origin_of
from auditlake.query.pending_tail import columns_shown, upto
from auditlake.query.spark_errors import statement_errors
from auditlake.query.spark_values import register_function
from auditlake.query.statement import Log, PreparedQuery, inexact_note, prepare_sql, with_raw
from auditlake.query.system_time import Selection, Versions
from auditlake.relation import TableName
from auditlake.sql_names import spark_identifier, spark_literal
from auditlake.temporal.moments import Known

_LSNS_OF_LOGS = ("lsn", "end_lsn", "lsn_from", "lsn_to")


def run_sql(spark: SparkSession, lake: Lake, sql: str, as_of: str | None = None) -> DataFrame:
    """Run `sql` with every table as of `as_of`, a WHEN; None is the watermark.

    Raises BadUsage for SQL that cannot be understood, NotAnswerable for a moment the lake does not know.
    """
    return plan(spark, prepare_sql(lake, sql, as_of))


def plan(spark: SparkSession, query: PreparedQuery) -> DataFrame:
    """Plan a prepared statement; its rows are computed on demand.

    Raises BadUsage if Spark refuses it.
    """
    if query.exact:
        register_function(spark)
    try:
        for view, (table, selection) in query.views.items():
            _read(spark, query, table, selection).createOrReplaceTempView(view)
        with statement_errors({view: str(table) for view, (table, _) in query.views.items()}):
            rows = spark.sql(query.sql)
            if query.defines is not None:
                rows.createOrReplaceTempView(spark_identifier(query.defines))
            return rows
    finally:
        for view in query.views:
            spark.catalog.dropTempView(view)


def plan_all(spark: SparkSession, queries: Iterable[PreparedQuery]) -> list[DataFrame]:
    """Plan the statements of a script in order; return the rows of those that have a result.

    Raises BadUsage if Spark refuses one.
    """
    return [rows for query in queries for rows in (plan(spark, query),) if query.defines is None]


def _read(spark: SparkSession, query: PreparedQuery, table: TableName, selection: Selection | Log) -> DataFrame:
    known = query.known
    if isinstance(selection, Log):
        return mark(read_log(spark, known, table, selection.lsn), table, (), _LSNS_OF_LOGS)
    history = known.tables[table]
    lsns = LSNS if isinstance(selection, Versions) else ()
    rows = read_selection(spark, known, history, selection, query.tails)
    columns, names = columns_shown(history, selection, query.tails.get((history, upto(known, history, selection))))
    return mark(rows, table, [replace(column, stored_as=names[column.stored]) for column in columns], lsns)


def footnotes(spark: SparkSession, query: PreparedQuery, rows: DataFrame, nulls: Iterable[int]) -> Iterator[str]:
    """Yield notes on columns that may be NULL for a value that exists; `nulls` are the indexes of columns with a NULL.

    Reads the column `_raw` of their tables; tables behind views that the user defined are not checked.
    """
    origins = dict.fromkeys(origin for at in sorted(nulls) if (origin := origin_of(rows.schema.fields[at])))
    for origin in origins:
        read = [chosen for table, chosen in query.views.values() if table == origin.table]
        raws = (with_raw(chosen) for chosen in read if not isinstance(chosen, Log))
        held = f"map_contains_key(_raw, {spark_literal(origin.column)})"
        if any(not _read(spark, query, origin.table, raw).where(held).isEmpty() for raw in raws):
            yield inexact_note(origin.column)


def read_log(spark: SparkSession, known: Known, name: TableName, lsn: Lsn) -> DataFrame:
    """Read one of the lake's own tables, up to `lsn`."""
    path = known.lake.root / name.table
    delta = open_delta(path)
    if delta is None:
        raise LakeUnusable(f"{path} is missing", "Run auditlake follow: capture creates it when it starts.")
    rows = spark.read.format("delta").load(str(path))
    if name.table in ("changes", "transactions"):
        return rows.where(F.col("lsn") <= int(known.changes_up_to(lsn)))
    return rows
