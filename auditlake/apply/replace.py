"""Write a folded tail into a history with a large open partition: what the MERGE does, for less.

A MERGE that also inserts shuffles the rows of every file it touches, with all their columns. Here the source is made
whole first: the open versions of the tail's keys, found by a broadcast join and given their ends, and the versions
that begin in the tail. Delta then replaces the open version of every key in the source by what the source holds
(`replaceOn`), with deletion vectors, in one commit that carries the application transaction as any write does.

The fold is staged, because it is read more than once. Its keys are known then, so files of the open partition whose
statistics exclude all of them are not opened (`keyrange`), where there are enough of such files.

Authority: docs.delta.io, "Table batch reads and writes", "Idempotent writes"
"""

from dataclasses import dataclass

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys
from auditlake.apply.failures import contradiction
from auditlake.apply.fold import BROADCAST_ROWS, ENDS, Kind
from auditlake.apply.keyrange import conditions
from auditlake.lake.files import open_bounds
from auditlake.lake.history import OPEN_PART, HistoryTable, whole_number_keys
from auditlake.lake.session import read_version

_ROWS_IN_A_FILE = 250_000
_STAGED_BY_DELTA = "spark.databricks.delta.insertReplaceOnOrUsing.materializeSource"


@dataclass(frozen=True, slots=True)
class Source:
    """What stands in the history for the tail's keys afterwards; `condition` says of rows `t` what rows `s` replace.

    `contradiction` says what does not go with the history, if anything: then it must not be written. `is_small`: its
    keys can be sent to where the history is read.
    """

    rows: DataFrame
    condition: str
    contradiction: str | None
    is_small: bool


def whole_source(spark: SparkSession, table: HistoryTable, rows: DataFrame) -> Source:
    """Stage the source out of the table as the fold saw it and the rows of a Folded."""
    columns, history = table.columns, read_version(spark, str(table.path), table.delta_version)
    staged = rows.localCheckpoint()
    edges = staged.where(F.col("_kind") != Kind.VERSION)
    wanted = [column.stored for column in whole_number_keys(columns)]
    known = edges.select("_kind", *map(keys.source, wanted)).toArrow()
    bounds = conditions(known, columns, open_bounds(table, wanted))
    is_open = f"t._part = '{OPEN_PART}'"
    condition = " and ".join([is_open, *bounds, keys.same(columns, "t", "s")])
    if known.num_rows <= BROADCAST_ROWS:
        edges = F.broadcast(edges)
    met = history.alias("t").join(edges.alias("s"), on=F.expr(condition)).select(*_ended(rows)).localCheckpoint()
    versions = staged.where(F.col("_kind") != Kind.CLOSE)
    wrong = contradiction(known["_kind"], met.select("_kind").toArrow()["_kind"])
    # Else every task that has looked for open versions writes a file of its own.
    source = versions.unionByName(met).drop("_kind").coalesce(1 + known.num_rows // _ROWS_IN_A_FILE)
    return Source(source, condition, wrong, staged.count() <= BROADCAST_ROWS)


def write_source(source: Source, path: str) -> None:
    """Write the source in one commit; application transaction and fence are the caller's."""
    # Else Delta stages the source once more, and before its transaction begins: what fails once another process has
    # moved the table would not see one that does so in between.
    source.rows.sparkSession.conf.set(_STAGED_BY_DELTA, "none")
    # Outermost: Delta does not see a hint below the union with what fails.
    rows = F.broadcast(source.rows) if source.is_small else source.rows
    to = rows.alias("s").write.format("delta").mode("overwrite").option("targetAlias", "t")
    to.option("replaceOn", source.condition).save(path)


def _ended(rows: DataFrame) -> list[Expression]:
    names = [name for name in rows.columns if name not in {*ENDS, "_kind"}]
    kept = [keys.source(name, "t").alias(name) for name in names]
    return [*kept, *(F.col(f"s.{name}").alias(name) for name in (*ENDS, "_kind"))]
