"""Difference between a new snapshot of a table and the open versions of its history. Plans for Spark; writes nothing.

A row of the snapshot and an open version are the same if they have the same key and the exact texts of all values are
equal (`multiset.row_digest`). In a table without a key, equal rows are numbered, the oldest version first, so of too
many copies the youngest ones end, as they do in the fold. So they are if the key has changed.

1. An open version that the snapshot does not have ends: `closed`.
2. A row that no open version has begins: `begun`.
3. An open version that contradicts another version of its key, which only damage explains, is removed: nothing can say
   when it was true. It is the second open one of a key, or overlaps a closed one.

Neither rows nor keys are collected: the driver gets positions in files, as bitmaps, and counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys
from auditlake.apply.multiset import row_digest
from auditlake.lake.history import PERIOD_COLUMNS, HistoryTable, history_ddl, type_of
from auditlake.lake.history_files import Files, is_open
from auditlake.lake.history_rows import read_kept_places, read_rows
from auditlake.relation import Column
from auditlake.snapshot.ctid_ranges import SnapshotMark
from auditlake.spark.session import PATHS_AS_THEY_ARE
from auditlake.store.place import Place

RESYNC = "resync"
_ROWS_IN_A_FILE = 250_000
_BITMAP_DDL = "file string, bitmap binary"
_BITMAP = pa.schema([("file", pa.string()), ("bitmap", pa.binary())])


@dataclass(frozen=True, slots=True)
class Difference:
    """What a new snapshot changes: `closed` and `begun` are complete rows of the history, without `_part`.

    `ended` has the positions of all open versions that end, those that are removed included, by file. `since` is the
    least `_from_lsn` of these, and `unmatched` the number of rows that begin although their key has no open version.
    """

    closed: DataFrame
    begun: DataFrame
    ended: Mapping[str, BitMap64]
    closed_rows: int
    begun_rows: int
    unmatched: int
    since: int | None

    @property
    def removed_rows(self) -> int:
        """Return the number of open versions that contradict others."""
        return sum(len(rows) for rows in self.ended.values()) - self.closed_rows

    def __bool__(self) -> bool:
        return bool(self.ended) or self.begun_rows > 0


def compare(
    spark: SparkSession, files: Files, copied: Iterable[Place], columns: tuple[Column, ...], mark: SnapshotMark
) -> Difference:
    """Compare the open versions in `files`, all readable files of a history, with the copied files of a snapshot."""
    opened = _read_open(spark, files.which(is_open))
    fresh = _read_copied(spark, list(copied), columns)
    table = files.table
    keyed = {c.stored for c in columns if c.key} == {c.stored for c in _before(table) if c.key}
    by = columns if keyed else tuple(replace(column, key=False) for column in columns)
    found = _differing(_identified(opened, by), _identified(fresh, by)).localCheckpoint()
    ends = found.where(F.col("o.place").isNotNull()).select("o.*")
    begins = found.where(F.col("n.place").isNotNull()).select("n.place", F.col("o.place").alias("replaces"))
    closing = _without_contradictions(spark, files, ends, by).localCheckpoint()
    closed_rows = closing.count()
    since, begun_rows, unmatched = _totals(ends, begins)
    return Difference(
        _closed(_at(opened, closing), table.columns, mark).coalesce(_files_for(closed_rows)),
        _at(fresh, begins).select(*_all(table.columns, columns)).coalesce(_files_for(begun_rows)),
        _bitmaps(ends),
        closed_rows,
        begun_rows,
        unmatched,
        since,
    )


def _files_for(rows: int) -> int:
    return max(1, -(-rows // _ROWS_IN_A_FILE))


def _read_open(spark: SparkSession, files: Files) -> DataFrame:
    """Read open versions; `_part` is the file and the row in it."""
    if not files.by_name:
        return spark.createDataFrame([], _with_place(files.table.columns))
    rows = read_kept_places(spark, files)
    return rows.withColumn("_part", F.struct("_part.file", "_part.row"))


def _read_copied(spark: SparkSession, copied: list[Place], columns: tuple[Column, ...]) -> DataFrame:
    """Read the rows of a snapshot; `_part` is the file and the row in it."""
    if not copied:
        return spark.createDataFrame([], _with_place(columns))
    schema = spark.createDataFrame([], history_ddl(columns)).drop("_part").schema
    rows = spark.read.schema(schema).option(*PATHS_AS_THEY_ARE).parquet(*map(str, copied))
    origin = rows.metadataColumn("_metadata")
    return rows.withColumn("_part", F.struct(origin["file_name"].alias("file"), origin["row_index"].alias("row")))


def _with_place(columns: tuple[Column, ...]) -> str:
    return history_ddl(columns).removesuffix("_part string") + "_part struct<file: string, row: bigint>"


def _identified(rows: DataFrame, columns: tuple[Column, ...]) -> DataFrame:
    """Return key, number among the rows of that key, digest, begin and place of each row."""
    digest = row_digest(columns)
    key = keys.from_history(columns) if keys.key_of(columns) else [digest.alias("k0")]
    found = rows.select(*key, digest.alias("digest"), *keys.BEGIN, F.col("_part").alias("place"))
    in_order = Window.partitionBy(*found.columns[: len(key)]).orderBy(*keys.BEGIN, "place")
    return found.withColumn("nth", F.row_number().over(in_order))


def _differing(opened: DataFrame, fresh: DataFrame) -> DataFrame:
    names = [name for name in opened.columns if name not in {"digest", "place", *keys.BEGIN}]
    same = reduce(lambda a, b: a & b, (F.col(f"o.{name}").eqNullSafe(F.col(f"n.{name}")) for name in names))
    both = opened.alias("o").join(fresh.alias("n"), on=same, how="full_outer")
    differ = F.col("o.place").isNull() | F.col("n.place").isNull() | (F.col("o.digest") != F.col("n.digest"))
    return both.where(differ).select(*(F.struct(f"{side}.*").alias(side) for side in "on"))


def _without_contradictions(
    spark: SparkSession, files: Files, ends: DataFrame, columns: tuple[Column, ...]
) -> DataFrame:
    """Leave out versions of a key that has another one at the same time."""
    if not keys.key_of(columns):
        return ends
    alone, closed = ends.where(F.col("nth") == 1), files.which(lambda file: not is_open(file))
    if not closed.by_name:
        return alone
    past = read_rows(spark, closed).select(*keys.from_history(columns), "_to_lsn").alias("c")
    same = [F.col(f"e.{name}").eqNullSafe(F.col(f"c.{name}")) for name in keys.names(columns)]
    overlap = reduce(lambda a, b: a & b, [*same, F.col("c._to_lsn") > F.col("e._from_lsn")])
    return alone.alias("e").join(past, on=overlap, how="left_anti")


def _at(rows: DataFrame, places: DataFrame) -> DataFrame:
    """Return the rows at these places."""
    wanted = places.select("place").alias("p")
    return rows.alias("t").join(wanted, on=F.col("t._part") == F.col("p.place"), how="left_semi")


def _closed(rows: DataFrame, columns: tuple[Column, ...], mark: SnapshotMark) -> DataFrame:
    ends = {
        "_to_lsn": F.lit(int(mark.lsn)).cast("bigint"),
        "_to_time": F.timestamp_micros(F.lit(int(mark.time_us)).cast("bigint")),
        "_end_op": F.lit(RESYNC),
        "_end_xid": F.lit(None).cast("bigint"),
    }
    return rows.select(*(ends[n].alias(n) if n in ends else keys.source(n) for n in _all_names(columns)))


def _before(table: HistoryTable) -> tuple[Column, ...]:
    """Return the columns by whose key the open versions are distinguished."""
    return table.columns_at(table.position)


def _all(physical: Iterable[Column], live: Iterable[Column]) -> list[Expression]:
    """Return all columns of a history, NULL in those that the snapshot does not have."""
    there = {column.stored for column in live}
    past = {c.stored: F.lit(None).cast(type_of(c).delta).alias(c.stored) for c in physical if c.stored not in there}
    return [past[name] if name in past else keys.source(name) for name in _all_names(physical)]


def _all_names(columns: Iterable[Column]) -> list[str]:
    return [*(column.stored for column in columns), *(name for name, _ in PERIOD_COLUMNS if name != "_part")]


def _totals(ends: DataFrame, begins: DataFrame) -> tuple[int | None, int, int]:
    since = ends.agg(F.min("_from_lsn").alias("since")).first()
    counts = begins.agg(F.count("*").alias("all"), F.count_if(F.col("replaces").isNull()).alias("new")).first()
    assert since is not None  # noqa: S101 - an aggregate has one row
    assert counts is not None  # noqa: S101 - the same
    return since["since"], counts["all"], counts["new"]


def _bitmaps(ends: DataFrame) -> dict[str, BitMap64]:
    """Return the positions of rows by file."""

    def of_file(rows: pa.Table) -> pa.Table:
        positions = BitMap64(rows["row"].to_numpy())
        return pa.table([rows["file"].slice(0, 1), pa.array([positions.serialize()])], schema=_BITMAP)

    bitmaps = ends.select("place.file", "place.row").groupBy("file").applyInArrow(of_file, _BITMAP_DDL).toArrow()
    return dict(_deserialized(bitmaps))


def _deserialized(bitmaps: pa.Table) -> Iterator[tuple[str, BitMap64]]:
    for row in bitmaps.to_pylist():
        yield row["file"], BitMap64.deserialize(row["bitmap"])
