"""Rows of a history at one version, as Spark reads them from the files that Delta's log names.

Delta's own reader makes the log a table of Spark's first, with jobs that take longer than to read a small table, and
looks at every row for what is not wanted of it. Here the log is read without Spark (`actions`): files are left out by
their statistics, and rows that deletion vectors mark by their places.

For histories as they were made: of another there are no Files, and Delta must read it.

Authority: Delta's PROTOCOL.md, "Deletion Vectors"; spark.apache.org/docs/4.2.0/sql-data-sources.html, "_metadata"
"""

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.lake.actions import Add, file_path, live_files
from auditlake.lake.deletionvectors import read_vector
from auditlake.lake.history import OPEN_PART, HistoryTable, history_ddl
from auditlake.lake.session import PATHS_AS_THEY_ARE


@dataclass(frozen=True, slots=True)
class File:
    """One data file: the action that added it, and its statistics."""

    name: str
    add: Add
    stats: Mapping[str, Any]

    @property
    def part(self) -> str:
        """The partition that it is in."""
        return str(self.add["partitionValues"]["_part"])

    @property
    def is_open(self) -> bool:
        """Whether it is in the open partition."""
        return self.part == OPEN_PART

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        return int(self.add["size"])

    @property
    def rows(self) -> int:
        """How many rows it has, those too that are gone."""
        return int(self.stats["numRecords"])

    @property
    def gone_rows(self) -> int:
        """How many of them are gone."""
        return int(self.add["deletionVector"]["cardinality"]) if self.is_marked else 0

    @property
    def is_marked(self) -> bool:
        """Whether some of its rows are gone."""
        return "deletionVector" in self.add

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        """The lowest and highest value in a column, where the log tells them."""
        low, high = (self.stats.get(bound, {}).get(column) for bound in ("minValues", "maxValues"))
        return None if low is None or high is None else (low, high)


@dataclass(frozen=True, slots=True)
class Files:
    """Data files of `table` at its Delta version, by their names."""

    table: HistoryTable
    by_name: Mapping[str, File]

    def which(self, wanted: Callable[[File], bool]) -> "Files":
        """Some of them."""
        return replace(self, by_name={name: file for name, file in self.by_name.items() if wanted(file)})

    def of_part(self, part: str) -> "Files":
        """Those of a partition."""
        return self.which(lambda file: file.part == part)

    def named(self, names: Container[str]) -> "Files":
        """Those of these names."""
        return self.which(lambda file: file.name in names)

    def gone(self, name: str) -> BitMap64:
        """Places of the rows of a file that are no longer in the table."""
        file = self.by_name[name]
        return read_vector(self.table.path, file.add["deletionVector"]) if file.is_marked else BitMap64()

    @property
    def rows(self) -> int:
        """How many rows they have, those too that are gone."""
        return sum(file.rows for file in self.by_name.values())

    @property
    def size_bytes(self) -> int:
        """How large they are."""
        return sum(file.size_bytes for file in self.by_name.values())


def find_files(table: HistoryTable) -> Files | None:
    """Find the table's files; None where it is not as it was made."""
    if not table.as_made:
        return None
    try:
        adds = live_files(table.path, table.delta_version)
    except FileNotFoundError:
        return None
    files = [File(file_path(table.path, add).name, add, json.loads(add.get("stats") or "{}")) for add in adds]
    told = all("numRecords" in file.stats for file in files)
    return Files(table, {file.name: file for file in files}) if told else None


def read_rows(spark: SparkSession, files: Files) -> DataFrame:
    """The rows of these files, as the history has them."""
    gone = _gone(files)
    if gone is None:
        return _read(spark, files)
    marked = read_places(spark, files.which(lambda file: file.is_marked)).alias("t")
    place = F.struct("t._part.file", "t._part.row")
    marks = F.broadcast(spark.createDataFrame(gone).alias("g"))
    left = marked.join(marks, on=place == F.col("g.place"), how="left_anti").withColumn("_part", F.col("t._part.part"))
    return _read(spark, files.which(lambda file: not file.is_marked)).unionByName(left)


def read_places(spark: SparkSession, files: Files) -> DataFrame:
    """All rows of these files, those too that are gone; `_part` is `part`, `file` and `row`, counted from 0."""
    rows = _read(spark, files)
    origin = rows.metadataColumn("_metadata")
    names = {"file": origin["file_name"], "row": origin["row_index"]}
    return rows.withColumn("_part", F.struct(F.col("_part").alias("part"), *(names[n].alias(n) for n in names)))


def _read(spark: SparkSession, files: Files) -> DataFrame:
    schema = history_ddl(files.table.columns)
    if not files.by_name:
        return spark.createDataFrame([], schema)
    paths = [str(file_path(files.table.path, file.add)) for file in files.by_name.values()]
    reader = spark.read.schema(schema).option(*PATHS_AS_THEY_ARE)
    return reader.option("basePath", str(files.table.path)).parquet(*paths)  # from there on folders tell `_part`


def _gone(files: Files) -> pa.Table | None:
    gone = {name: np.fromiter(files.gone(name), np.int64) for name in files.by_name}
    names = np.repeat(list(gone), [len(rows) for rows in gone.values()])
    if not len(names):
        return None
    rows = np.concatenate(list(gone.values()))
    place = pa.StructArray.from_arrays([pa.array(names, pa.string()), pa.array(rows)], names=["file", "row"])
    return pa.table({"place": place})
