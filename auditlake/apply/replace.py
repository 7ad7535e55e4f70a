"""Write a folded tail with REPLACE ON: the result of a MERGE, cheaper for a large open partition.

A MERGE that also inserts shuffles the rows of every file it touches, with all columns. Here the source is completed
first: the open versions of the tail's keys, found by a broadcast join, with their ends, and the versions that begin in
the tail. Delta then replaces the open version of every key by the source's rows (`replaceOn`), with deletion vectors,
in one commit that carries the application transaction like any write.

The fold is staged, because it is read more than once. As its keys are known then, files of the open partition are
skipped by their statistics, if that saves enough of them (`file_skipping`).

Authority: docs.delta.io, "Table batch reads and writes", "Idempotent writes"
"""

from dataclasses import dataclass

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys
from auditlake.apply.errors import contradiction
from auditlake.apply.file_skipping import conditions
from auditlake.apply.fold import BROADCAST_ROWS, ENDS, Kind
from auditlake.lake.history import OPEN_PART, HistoryTable, whole_number_keys
from auditlake.lake.history_files import open_bounds
from auditlake.spark.session import read_version

_ROWS_IN_A_FILE = 250_000
_STAGED_BY_DELTA = "spark.databricks.delta.insertReplaceOnOrUsing.materializeSource"


@dataclass(frozen=True, slots=True)
class Source:
    """All rows that the history has for the tail's keys afterwards; by `condition`, rows `s` replace rows `t`.

    If `contradiction` is set, the fold contradicts the history, and the source must not be written. `is_small`: the
    source can be broadcast.
    """

    rows: DataFrame
    condition: str
    contradiction: str | None
    is_small: bool


def whole_source(spark: SparkSession, table: HistoryTable, rows: DataFrame) -> Source:
    """Stage the source: the rows of a Folded, and the open versions at the table version that it was folded on."""
    columns, history = table.columns, read_version(spark, str(table.path), table.delta_version)
    staged = rows.localCheckpoint()
    edges = staged.where(F.col("_kind") != Kind.VERSION)
    wanted = [column.stored for column in whole_number_keys(columns)]
    edge_keys = edges.select("_kind", *map(keys.source, wanted)).toArrow()
    bounds = conditions(edge_keys, columns, open_bounds(table, wanted))
    is_open = f"t._part = '{OPEN_PART}'"
    condition = " and ".join([is_open, *bounds, keys.same(columns, "t", "s")])
    if edge_keys.num_rows <= BROADCAST_ROWS:
        edges = F.broadcast(edges)
    met = history.alias("t").join(edges.alias("s"), on=F.expr(condition)).select(*_ended(rows)).localCheckpoint()
    versions = staged.where(F.col("_kind") != Kind.CLOSE)
    contradicts = contradiction(edge_keys["_kind"], met.select("_kind").toArrow()["_kind"])
    # Otherwise every task of the join writes a file of its own.
    source = versions.unionByName(met).drop("_kind").coalesce(1 + edge_keys.num_rows // _ROWS_IN_A_FILE)
    return Source(source, condition, contradicts, staged.count() <= BROADCAST_ROWS)


def write_source(source: Source, path: str) -> None:
    """Write the source in one commit; the caller sets the application transaction and adds the position check."""
    # Otherwise Delta stages the source once more, before its transaction begins: then the position check would miss a
    # process that moves the table in between.
    source.rows.sparkSession.conf.set(_STAGED_BY_DELTA, "none")
    # Outermost: Delta ignores a hint below the union with the position check.
    rows = F.broadcast(source.rows) if source.is_small else source.rows
    writer = rows.alias("s").write.format("delta").mode("overwrite").option("targetAlias", "t")
    writer.option("replaceOn", source.condition).save(path)


def _ended(rows: DataFrame) -> list[Expression]:
    names = [name for name in rows.columns if name not in {*ENDS, "_kind"}]
    kept = [keys.source(name, "t").alias(name) for name in names]
    return [*kept, *(F.col(f"s.{name}").alias(name) for name in (*ENDS, "_kind"))]
