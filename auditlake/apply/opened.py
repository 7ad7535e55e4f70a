"""The open partition of a history at one version, as Spark reads it from the files that Delta's log names.

Delta's own reader makes the log a table of Spark's first, with jobs that take longer than to read a small partition.
Here the log is read by `lake.actions`, and the rows that its deletion vectors mark are left out by their places.

For histories as they were made: of another there is no OpenPart.

Authority: Delta's PROTOCOL.md, "Deletion Vectors"; spark.apache.org/docs/4.2.0/sql-data-sources.html, "_metadata"
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys
from auditlake.lake.actions import Add, file_path, live_files
from auditlake.lake.commits import has_own_features
from auditlake.lake.deletionvectors import read_vector
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, HistoryTable, type_of
from auditlake.lake.session import PATHS_AS_THEY_ARE


@dataclass(frozen=True, slots=True)
class OpenPart:
    """The open partition of `table`; `files` are its files by name."""

    table: HistoryTable
    files: Mapping[str, Add]

    def gone(self, name: str) -> BitMap64:
        """Places of the rows of a file that are no longer in the table."""
        vector = self.files[name].get("deletionVector")
        return BitMap64() if vector is None else read_vector(self.table.path, vector)


def find_open_part(table: HistoryTable) -> OpenPart | None:
    """Find the open partition at the table's Delta version; None where the table is not as it was made."""
    if not has_own_features(DeltaTable(table.path, version=table.delta_version)):
        return None
    try:
        files = live_files(table.path, table.delta_version)
    except FileNotFoundError:
        return None
    found = {file_path(table.path, add).name: add for add in files if add["partitionValues"]["_part"] == OPEN_PART}
    return OpenPart(table, found) if all("stats" in add for add in found.values()) else None


def read_rows(spark: SparkSession, part: OpenPart) -> DataFrame:
    """The open versions, as rows of the history."""
    if not part.files:
        return spark.createDataFrame([], f"{_schema(part.table)}, _part string")
    rows = read_places(spark, part, part.files)
    if gone := _gone(part):
        rows = rows.join(F.broadcast(spark.createDataFrame(gone)), on=rows["_part"] == F.col("place"), how="left_anti")
    return rows.withColumn("_part", F.lit(OPEN_PART))


def read_places(spark: SparkSession, part: OpenPart, names: Iterable[str]) -> DataFrame:
    """All rows of these files, those too that are gone; `_part`, which is not in the files, is `file` and `row`."""
    paths = [str(file_path(part.table.path, part.files[name])) for name in names]
    opened = spark.read.schema(_schema(part.table)).option(*PATHS_AS_THEY_ARE).parquet(*paths)
    origin = opened.metadataColumn("_metadata")
    return opened.withColumn("_part", F.struct(origin["file_name"].alias("file"), origin["row_index"].alias("row")))


def _schema(table: HistoryTable) -> str:
    source = [(keys.quoted(column.stored), type_of(column).delta) for column in table.columns]
    period = [(name, kind) for name, kind in PERIOD_COLUMNS if name != "_part"]
    return ", ".join(f"{name} {kind}" for name, kind in [*source, *period])


def _gone(part: OpenPart) -> pa.Table | None:
    gone = {name: np.fromiter(part.gone(name), np.int64) for name in part.files}
    names = np.repeat(list(gone), [len(rows) for rows in gone.values()])
    if not len(names):
        return None
    rows = np.concatenate(list(gone.values()))
    place = pa.StructArray.from_arrays([pa.array(names, pa.string()), pa.array(rows)], names=["file", "row"])
    return pa.table({"place": place})
