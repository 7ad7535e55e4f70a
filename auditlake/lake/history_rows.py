"""Rows of a history's data files in Spark.

Delta's own reader first makes the log a table of Spark's, with jobs that take longer than to read a small table, and
checks every row for deletion. Here the files are read as they are, and rows that deletion vectors mark are left out by
their positions.

Authority: Delta's PROTOCOL.md, "Deletion Vectors"; spark.apache.org/docs/4.2.0/sql-data-sources.html, "_metadata"
"""

from __future__ import annotations  # types of Spark are imported for mypy only

from typing import TYPE_CHECKING

from auditlake.lake.history import history_ddl
from auditlake.lake.history_files import Files, deleted_places
from auditlake.spark import functions as F  # noqa: N812 - the usual name
from auditlake.spark.planning import PATHS_AS_THEY_ARE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_rows(spark: SparkSession, files: Files) -> DataFrame:
    """Read the rows of these files, without the deleted ones."""
    if not any(file.is_marked for file in files.by_name.values()):
        return _read(spark, files)
    left = _read_kept_places(spark, files.which(lambda file: file.is_marked))
    left = left.withColumn("_part", F.col("_part.part"))
    return _read(spark, files.which(lambda file: not file.is_marked)).unionByName(left)


def _read_kept_places(spark: SparkSession, files: Files) -> DataFrame:
    """Read the rows of these files, without the deleted ones, with the `_part` of `read_places`."""
    rows, deleted = read_places(spark, files), deleted_places(files)
    if deleted is None:
        return rows
    place = F.struct("t._part.file", "t._part.row")
    marks = F.broadcast(spark.createDataFrame(deleted).alias("g"))
    return rows.alias("t").join(marks, on=place == F.col("g.place"), how="left_anti")


def read_places(spark: SparkSession, files: Files) -> DataFrame:
    """Read all rows of these files, deleted ones included; `_part` is `part`, `file` and `row`, counted from 0."""
    rows = _read(spark, files)
    origin = rows.metadataColumn("_metadata")
    names = {"file": origin["file_name"], "row": origin["row_index"]}
    return rows.withColumn("_part", F.struct(F.col("_part").alias("part"), *(names[n].alias(n) for n in names)))


def _read(spark: SparkSession, files: Files) -> DataFrame:
    schema = history_ddl(files.table.columns)
    if not files.by_name:
        return spark.createDataFrame([], schema)
    paths = map(str, files.paths)
    reader = spark.read.schema(schema).option(*PATHS_AS_THEY_ARE)
    return reader.option("basePath", str(files.table.path)).parquet(*paths)  # Spark takes `_part` from the folders
