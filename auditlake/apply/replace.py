"""Write a folded tail with REPLACE ON: the result of a MERGE, cheaper for a large open partition.

A MERGE that also inserts shuffles the rows of every file it touches, with all columns. Here the source is completed
first: the open versions of the tail's keys, found by a broadcast join, with their ends, and the versions that begin in
the tail. Delta then replaces the open version of every key by the source's rows (`replaceOn`), with deletion vectors,
in one commit that carries the application transaction like any write.

The fold is staged, because it is read more than once. As its keys are known then, they become a few literal ranges on
the target, the only predicate by which Delta skips files: it does not compare keys in the source of a write with the
statistics of the target's files, and treats a list of values as the range from its least to its greatest. So the keys
are split at their largest gaps. Only for whole numbers: other types may have values outside their column. And only if
enough files are skipped: random keys gain nothing, and Spark compiles a plan again for other literals.

Authority: docs.delta.io, "Table batch reads and writes", "Idempotent writes"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys
from auditlake.apply.errors import contradiction
from auditlake.apply.fold import BROADCAST_ROWS, ENDS, Folded, Kind
from auditlake.lake.history import OPEN_PART, HistoryTable, whole_number_keys
from auditlake.lake.history_files import open_bounds
from auditlake.relation import Column
from auditlake.spark.session import read_version
from auditlake.sql_names import spark_identifier

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


def whole_source(spark: SparkSession, table: HistoryTable, folded: Folded) -> Source:
    """Stage the source: the rows of a fold, and the open versions at the table version that it was folded on."""
    rows, columns, history = folded.rows, folded.columns, read_version(spark, str(table.path), table.delta_version)
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


Ranges = Sequence[tuple[int, int]]
"""First and last value of each range, or of each file's statistics; both inclusive."""

_RANGES = 8
_MIN_SKIPPED = 0.25
"""Share of the files that a range condition must skip to be used."""


def conditions(tail_keys: pa.Table, columns: Sequence[Column], files: Mapping[str, Ranges]) -> list[str]:
    """Return conditions on the target `t` that are true for every key of the tail and skip enough of the `files`."""
    sql = []
    for column in whole_number_keys(columns) if tail_keys.num_rows else ():
        ranges, statistics = key_ranges(tail_keys[column.stored].to_numpy()), files.get(column.stored, ())
        if statistics and skipped(ranges, statistics) >= _MIN_SKIPPED * len(statistics):
            name = f"t.{spark_identifier(column.stored)}"
            sql.append("(" + " or ".join(f"{name} between {low} and {high}" for low, high in ranges) + ")")
    return sql


def key_ranges(values: np.ndarray) -> Ranges:
    """Return at most _RANGES ranges that contain all values, separated by the largest gaps."""
    ordered = np.unique(values)
    # As floats: the difference of two bigints may overflow.
    gaps = np.diff(ordered.astype(np.float64))
    cuts = np.sort(np.argsort(gaps, kind="stable")[max(0, len(gaps) - _RANGES + 1) :]) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(ordered, cuts)]


def skipped(ranges: Ranges, files: Ranges) -> int:
    """Return the number of files without a value in any of the ranges."""
    return sum(all(last < low or first > high for low, high in ranges) for first, last in files)
