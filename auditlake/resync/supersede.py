"""Supersede one table's open versions by a new snapshot, in one Delta commit that also moves the position.

Order of effects, for a table that is held (`hold`) and whose snapshot at S is copied:
  1. Fold its changes up to the last certain LSN: from there on, the snapshot decides.
  2. Compare the snapshot with the open versions (below).
  3. Write and fsync the data files and deletion vectors. Without a log entry they are orphans.
  4. Record the gap. Before the commit of 5, questions after the last certain LSN are refused because the table is held.
  5. Commit: versions that end with `_end_op = resync`, versions that begin at S with `_op = snapshot`, position and
     `auditlake/resync` := S. This commit ends the hold, and every earlier reason for which the table was parked.
After a kill, the next run takes another snapshot and begins again with 1; a gap that was recorded is part of its own.

The commit takes the version after the one that was compared. If another commit was first (a fold, a compaction), the
table is compared again. Equal rows are not touched, and closed versions are never rewritten.

The gap of a table whose stream is complete, because only the lake was damaged, begins before the versions that were
wrong. It is the whole history if rows were missing: nothing shows since when.

Data files that are missing or unreadable are removed from the log. Their open versions are replaced by rows of the
snapshot. Their closed versions cannot be restored, so the gap begins before them.

A row of the snapshot and an open version are the same if they have the same key and the exact texts of all values are
equal (`multiset.row_digest`). In a table without a key, and in one whose key has changed, equal rows are numbered, the
oldest version first: if the history has too many copies, the youngest ones end, as in the fold.
  a. An open version that the snapshot does not have ends: `closed`.
  b. A row that no open version has begins: `begun`.
  c. An open version that contradicts another version of its key is removed: the second open one of a key, or one that
     overlaps a closed one. Only damage causes that, and the period in which it was true is unknown.
Neither rows nor keys are collected: the driver gets positions in files, as bitmaps, and counts.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys
from auditlake.apply.apply import fold_held
from auditlake.apply.deletion_vector_writer import marked
from auditlake.apply.multiset import row_digest
from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.commit_failures import writing
from auditlake.delta.data_files import DataFile, file_problems
from auditlake.delta.log_writer import Action, moved, put_commit, removed
from auditlake.errors import LakeConflict, LakeUnusable, SourceUnready, Unsupported
from auditlake.failpoints import After, reach
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.history import (
    OPEN_PART,
    PERIOD_COLUMNS,
    HistoryTable,
    adopt_rows,
    history_ddl,
    open_history,
    type_of,
    with_columns,
)
from auditlake.lake.history_files import Files, find_files, is_open
from auditlake.lake.history_rows import read_kept_places, read_rows
from auditlake.lake.layout import HISTORY_APP, RESYNC_APP, Lake
from auditlake.lake.parking import Parked
from auditlake.lake.relations import read_versions
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, TableName
from auditlake.resync.hold import Hold
from auditlake.schema.evolution import reshaped
from auditlake.snapshot.ctid_ranges import CopiedFile, SnapshotMark
from auditlake.spark.session import PATHS_AS_THEY_ARE, interpreted_if_wide
from auditlake.store.files import make_folder, parquet, remove_folder
from auditlake.store.place import Place

RESYNC = "resync"
_ROWS_IN_A_FILE = 250_000
_BITMAP_DDL = "file string, bitmap binary"
_BITMAP = pa.schema([("file", pa.string()), ("bitmap", pa.binary())])
_ATTEMPTS = 20
_PAUSE_S = 0.2
_CHECKPOINT_EVERY = 10
_DIFFERED = "the history differed from the source"
_FILES_LOST = "data files of the history were damaged"


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes of a new snapshot: `closed` and `begun` are complete rows of the history, without `_part`.

    `ended` has the positions of all open versions that end, those that are removed included, by file. `since` is the
    least `_from_lsn` of these, and `unmatched` the number of rows that begin although their key has no open version.
    """

    closed: DataFrame
    begun: DataFrame
    ended: Mapping[str, BitMap64]
    closed_rows: int
    begun_rows: int
    unmatched: int
    since: Lsn | None

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


def _totals(ends: DataFrame, begins: DataFrame) -> tuple[Lsn | None, int, int]:
    since = ends.agg(F.min("_from_lsn").alias("since")).first()
    counts = begins.agg(F.count("*").alias("all"), F.count_if(F.col("replaces").isNull()).alias("new")).first()
    assert since is not None  # noqa: S101 - an aggregate has one row
    assert counts is not None  # noqa: S101 - the same
    first = since["since"]
    return None if first is None else Lsn(first), counts["all"], counts["new"]


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


@dataclass(frozen=True, slots=True)
class Copied:
    """A new snapshot of a history's table: its relation, its files in `folder`, and the columns that they have."""

    name: TableName
    relation: Relation
    folder: Place
    columns: tuple[Column, ...]
    files: tuple[CopiedFile, ...]
    mark: SnapshotMark

    @property
    def paths(self) -> list[Place]:
        return [self.folder / file.path for file in self.files if file.rows]


@dataclass(frozen=True, slots=True)
class Resynced:
    """A table at its new snapshot: how many versions ended and began, and how many were removed with damaged files."""

    name: TableName
    lsn: Lsn
    closed: int
    begun: int
    removed: int
    lost_files: int
    gap: Gap | None

    def __str__(self) -> str:
        parts = [f"{self.closed:,} versions ended", f"{self.begun:,} began"]
        parts += [f"{self.removed:,} contradicting versions removed"] if self.removed else []
        parts += [f"{self.lost_files} damaged files removed"] if self.lost_files else []
        missing = f"; changes between {self.gap.lsn_from} and {self.gap.lsn_to} are missing" if self.gap else ""
        return f"{self.name} is at its new snapshot {self.lsn}: {', '.join(parts)}{missing}"


def supersede(spark: SparkSession, lake: Lake, hold: Hold, copied: Copied) -> Resynced:
    """Bring a table's history to the state of a new snapshot.

    Raises:
        Unsupported: if the history has foreign table features.
        LakeConflict: if other processes commit again and again, or one has brought the history further.
    """
    session = spark.newSession()
    with writing(f"the history of {copied.name}"), interpreted_if_wide(session, len(copied.columns)):
        for _ in range(_ATTEMPTS):
            doubt = _fold(session, lake, hold, copied.mark)
            try:
                return _supersede(session, lake, doubt, _files(lake, copied.name), copied)
            except FileExistsError:
                time.sleep(_PAUSE_S)
    raise LakeConflict(
        f"{_ATTEMPTS} attempts to commit to the history of {copied.name} lost against commits of other processes",
        "Stop the other writer (auditlake maintain, for example), then run auditlake resync again.",
    )


def _fold(session: SparkSession, lake: Lake, hold: Hold, mark: SnapshotMark) -> Parked | None:
    """Fold up to the last certain LSN; return why it is before the snapshot, None if the stream is complete."""
    doubt = hold.first_doubt(lake, mark.lsn)
    stopped = fold_held(session, lake, hold.table, mark.lsn if doubt is None else doubt.lsn)
    return doubt if stopped is None else stopped


def _files(lake: Lake, name: TableName) -> Files:
    table = open_history(lake, name)
    if table is None:
        raise LakeUnusable(f"the history of {name} is gone", "Run auditlake bootstrap: it copies the table anew.")
    files = find_files(table)
    if files is None:
        raise Unsupported(
            f"the history of {name} has table features of another program",
            "resync writes only to histories as auditlake created them.",
        )
    return files


def _supersede(session: SparkSession, lake: Lake, doubt: Parked | None, files: Files, copied: Copied) -> Resynced:
    mark, table = copied.mark, files.table
    _require_reachable(table, mark)
    shape = _shape(table, copied)
    files = Files(replace(table, columns=shape), files.by_name)
    lost = files.which(lambda file: any(file_problems(table.path, file.add)))
    readable = files.which(lambda file: file.name not in lost.by_name)
    difference = compare(session, readable, copied.paths, copied.columns, mark)
    moved_to = _with_oid(table, copied.relation.oid, mark.lsn if doubt is None else doubt.lsn)
    names = _names(lake, table, copied)
    is_reshaped = (shape, moved_to, names) != (table.columns, table, table.names)
    reshaping = with_columns(moved_to, shape, names) if is_reshaped else []
    actions = [
        *reshaping,
        *(removed(file.add) for file in lost.by_name.values()),
        *_written(files.table, difference, copied),
        *(marked(readable, difference.ended) if difference.ended else ()),
    ]
    reach(After.DIFFERENCE_WRITTEN)
    gap = _gap(doubt, difference, lost, mark)
    if gap is not None:
        record_gaps(lake, [gap])
        reach(After.GAP)
    _commit(table, [*actions, *moved({HISTORY_APP: mark.lsn, RESYNC_APP: mark.lsn})])
    reach(After.RESYNCED)
    counts = (difference.closed_rows, difference.begun_rows, difference.removed_rows, len(lost.by_name))
    return Resynced(copied.name, mark.lsn, *counts, gap)


def _require_reachable(table: HistoryTable, mark: SnapshotMark) -> None:
    """Require that the history has no later snapshot or changes: this process was suspended, and another one took over.

    Raises LakeConflict.
    """
    if table.position > mark.lsn:
        raise LakeConflict(
            f"the snapshot of {table.name} is of {mark.lsn}, and another process has brought its history to "
            f"{table.position} meanwhile",
            "Only one resync may run on a lake. Run auditlake resync again if the table is to be copied once more.",
        )


def _with_oid(table: HistoryTable, oid: int, known_lsn: Lsn) -> HistoryTable:
    """Return a table that has another OID after the last certain LSN: the lake has another source."""
    if table.oid in {None, oid}:
        return table
    return replace(table, oid=oid, former_oids=(*table.former_oids, (known_lsn, table.oid)))


def _names(lake: Lake, table: HistoryTable, copied: Copied) -> tuple[tuple[Lsn, TableName], ...]:
    """Return the later names of a table up to its snapshot, also those of the range whose changes are not folded."""
    names, lsn = list(table.names), copied.mark.lsn
    versions = read_versions(lake).of_oid(copied.relation.oid) if table.oid == copied.relation.oid else []
    since = [(each.lsn, each.relation.name) for each in versions if table.position < each.lsn <= lsn]
    for begin, name in (*since, (lsn, copied.relation.name)):
        if name != (names[-1][1] if names else table.name):
            names.append((begin, name))
    return tuple(names)


def _shape(table: HistoryTable, copied: Copied) -> tuple[Column, ...]:
    """Return all physical columns of the history with this snapshot.

    Raises SourceUnready if it was copied under other names, because the history has changed its columns since.
    """
    physical = reshaped(table, copied.relation, copied.mark.lsn)
    live = [column.stored for column in physical if column.exists_at(copied.mark.lsn)]
    if live != [column.stored for column in copied.columns]:
        raise SourceUnready(f"the columns of {copied.name} changed while it was copied", "Run auditlake resync again.")
    return physical


def _written(table: HistoryTable, difference: Difference, copied: Copied) -> list[Action]:
    """Write the versions that end and those that begin; return the actions that add them."""
    month = datetime.fromtimestamp(copied.mark.time_us / 1_000_000, UTC).strftime("%Y-%m")
    actions: list[Action] = []
    for part, rows, count in (
        (month, difference.closed, difference.closed_rows),
        (OPEN_PART, difference.begun, difference.begun_rows),
    ):
        if count:
            actions += _write(table, part, rows, copied.folder / f"difference-{part}")
    return actions


def _write(table: HistoryTable, part: str, rows: DataFrame, folder: Place) -> list[Action]:
    if folder.exists():
        remove_folder(folder)
    rows.write.parquet(str(folder))
    make_folder(table.path / f"_part={part}")
    return adopt_rows(table, part, _filled(sorted(folder.glob("*.parquet"), key=str)))


def _filled(files: Iterable[Place]) -> list[Place]:
    return [file for file in files if pq.read_metadata(parquet(file)).num_rows]


def _gap(doubt: Parked | None, difference: Difference, lost: Files, mark: SnapshotMark) -> Gap | None:
    """Return the range in which the table's state is not known; None if the history was right up to the snapshot."""
    name, upto = lost.table.name, mark.lsn
    if doubt is not None and not lost.by_name:
        return Gap(name, doubt.lsn, upto, doubt.reason, doubt.time_us, mark.time_us)
    if not difference and not lost.by_name:
        return None
    since = _wrong_since(lost, difference)
    reason = _FILES_LOST if lost.by_name else _DIFFERED
    return Gap(name, since if doubt is None else min(since, doubt.lsn), upto, reason, None, mark.time_us)


def _wrong_since(lost: Files, difference: Difference) -> Lsn:
    """Return the last LSN before the first version that was wrong."""
    begins = [difference.since] if difference.since is not None else []
    begins += [_first_begin(file, lost.table) for file in lost.by_name.values()]
    held_rows = sum(file.rows for file in lost.by_name.values() if is_open(file) and file.is_counted)
    if difference.unmatched > held_rows:
        begins.append(lost.table.horizon)
    return Lsn(max(0, min(begins, default=lost.table.horizon) - 1))


def _first_begin(file: DataFile, table: HistoryTable) -> Lsn:
    bounds = file.bounds("_from_lsn")
    return table.horizon if bounds is None else Lsn(bounds[0])


def _commit(table: HistoryTable, actions: Sequence[Action]) -> None:
    version = table.delta_version + 1
    put_commit(table.path, version, "MERGE", actions)
    if version % _CHECKPOINT_EVERY == 0:
        checkpoint(table.path)
