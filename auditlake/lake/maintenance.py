"""Maintenance of histories: decide which files to compact or cluster, do it, write checkpoints, delete expired files.

`maintain` treats all histories at once (the command), `Upkeep` those of the last batch (`follow`). Rows and positions
do not change, so a run may be killed at any point, and may run alongside readers and apply: of a compaction and a merge
that touch the same files, one is refused and planned again.

- Open partition: every batch adds a small file or two, and deletion vectors. Both slow down every query and every
  batch, so they are compacted once there are enough of them.
- Closed months: versions arrive in the order of their ends. An as-of query at L needs those that began by L and ended
  after it, so months are clustered by `_from_lsn`, and files that begin after L are skipped. A month is re-clustered
  once its unclustered files reach half the size of the clustered ones; this bounds write amplification. Until then, its
  small files are compacted with files of similar size, for the same reason.
- Expiry: files that no version has had for `checkpoints.KEPT_FOR`, and the log entries of those versions, are deleted.
  A query pins its version and must end within that time. No JVM is needed (`delta.expired_files`).

Capture maintains `changes` and its other tables itself, because only capture may write them.

Authority: docs.delta.io, "Optimizations", "Table utility commands"
"""

from __future__ import annotations  # types of Spark are imported for mypy only

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from auditlake.delta.checkpoints import KEPT_FOR_S, checkpoint
from auditlake.delta.commit_failures import commit_conflicts, writing
from auditlake.delta.data_files import DataFile
from auditlake.delta.expired_files import expired_files
from auditlake.delta.row_groups import held_bytes
from auditlake.engine import Engine
from auditlake.errors import AuditlakeError, LakeUnusable, Unsupported, all_in_one
from auditlake.failpoints import After, reach
from auditlake.jvm_trace import raised_by_spark
from auditlake.lake.compaction import (
    AGES,
    bins,
    cluster,
    delete_abandoned,
    fence,
    fitting,
    has_bounds,
    has_large_row_groups,
    join,
    may_hold,
)
from auditlake.lake.histories import list_histories
from auditlake.lake.history import OPEN_PART, HistoryTable, has_own_retention, open_history
from auditlake.lake.history_files import Files, data_files, find_files, overlap, part_of
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, hold
from auditlake.messages import Event, FailureReports, Notice, Say
from auditlake.relation import TableName
from auditlake.spark.log_store import is_vacuumed, require_safe_commits
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.sql_names import spark_literal
from auditlake.store.files import remove_files

if TYPE_CHECKING:
    from delta.tables import DeltaOptimizeBuilder
    from pyspark.sql import SparkSession

_SMALL_BYTES = 8 << 20
_OPEN_FILE_BYTES = 128 << 20
_CLOSED_FILE_BYTES = 32 << 20
_JOINED_BYTES = 32 << 20
_STREAMED_BYTES = 4 << 30
"""Before compression: one core of this machine joins as much in half a minute, all cores of Spark in less."""
_GATHERED_FILES = 16
"""So many more small files make a MERGE of a thousand rows about a tenth slower."""
_LATE_FILES = 4
_DELETED = 0.1
_OPTIMIZE = "spark.databricks.delta.optimize"
_SETTINGS = {
    f"{_OPTIMIZE}.minFileSize": str(_SMALL_BYTES),
    f"{_OPTIMIZE}.maxDeletedRowsRatio": f"{_DELETED}",
    # Otherwise rows are not sorted within a file, and its pages cannot be skipped.
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
}


@dataclass(frozen=True, slots=True)
class Due:
    """Rewrites that pay off now: compact the open partition, cluster closed months, compact files of closed months.

    `closed_files` has months, each with the names of the files to join.
    """

    open_part: bool
    closed_parts: tuple[str, ...] = ()
    closed_files: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __bool__(self) -> bool:
        return self.open_part or bool(self.closed_parts or self.closed_files)


def find_due(files: Iterable[DataFile], *, everything: bool = False) -> Due:
    """Decide by number, size and bounds of the files; with `everything`, include every rewrite that has any effect."""
    parts = defaultdict(list)
    for file in files:
        parts[part_of(file)].append(file)
    gathered = 2 if everything else _GATHERED_FILES
    open_part = len(_small(parts.pop(OPEN_PART, []))) >= gathered
    last = max(parts, default="")
    loose = {part: _loose(of_part) for part, of_part in sorted(parts.items())}
    closed = [
        part
        for part, of_part in sorted(parts.items())
        if _unclustered(of_part, loose[part], gathered, complete=everything or part < last)
    ]
    rest = {part: _small(files) for part, files in loose.items() if part not in closed}
    similar = {part: _similar(small, everything=everything) for part, small in rest.items() if len(small) >= gathered}
    names = tuple((part, tuple(file.name for file in files)) for part, files in similar.items() if len(files) > 1)
    return Due(open_part, tuple(closed), names)


def _similar(files: list[DataFile], *, everything: bool) -> list[DataFile]:
    """Take the smallest files, up to one larger than twice the total so far.

    So large files are not rewritten for a few small ones.
    """
    taken: list[DataFile] = []
    for file in sorted(files, key=lambda file: file.size_bytes):
        larger = len(taken) > 1 and file.size_bytes > 2 * _size(taken)
        if (larger and not everything) or _size([*taken, file]) > _JOINED_BYTES:
            break
        taken.append(file)
    return taken


def _small(files: Iterable[DataFile]) -> list[DataFile]:
    return [file for file in files if file.size_bytes < _SMALL_BYTES]


def _unclustered(files: list[DataFile], loose: list[DataFile], gathered: int, *, complete: bool) -> bool:
    """Return whether enough files came since the month was clustered; in a `complete` one a few are enough."""
    minimum = min(gathered, _LATE_FILES) if complete else gathered
    enough = len(loose) >= minimum or (complete and len(loose) > len(_small(loose)))
    return enough and 3 * _size(loose) >= _size(files)


def _loose(files: list[DataFile]) -> list[DataFile]:
    """Return the unclustered files: of two that overlap the smaller, and more small files than age classes need."""
    in_one = _size(files) <= _JOINED_BYTES
    clustered: list[DataFile] = []
    loose: list[DataFile] = []
    for file in sorted(files, key=lambda file: file.size_bytes, reverse=True):
        is_loose = file.size_bytes < _SMALL_BYTES and (in_one or file.bounds("_from_lsn") is None)
        (loose if is_loose or any(overlap(file, other) for other in clustered) else clustered).append(file)
    small = _small(clustered)
    return [*loose, *(small if len(small) > 2 * AGES else [])]


def _size(files: Iterable[DataFile]) -> int:
    return sum(file.size_bytes for file in files)


OpenSession = Callable[[], "SparkSession"]
"""Opens a Spark session that no other thread uses; starts Spark if it is not running."""


@dataclass(frozen=True, slots=True)
class Means:
    """How files are rewritten: by which engine, and a function that opens a session of its Spark."""

    open_session: OpenSession
    engine: Engine = Engine.AUTO

    def joins_here(self, files: Files) -> bool:
        """Return whether files are joined without Spark.

        They are with the engine `duckdb`, if their rows are so large that a JVM may end, and with `auto` if memory
        has room for them.
        """
        if self.engine is Engine.DUCKDB or has_large_row_groups(files):
            return True
        return self.engine is Engine.AUTO and may_hold(files)

    def streams_here(self, files: Files) -> bool:
        """Whether files of the open partition are joined without Spark, while they are read."""
        if self.engine is Engine.AUTO:
            return held_bytes(files.paths) <= _STREAMED_BYTES
        return self.engine is Engine.DUCKDB

    def session(self, table: HistoryTable) -> SparkSession:
        """Open a session; raises Unsupported if the engine is DuckDB."""
        if self.engine is Engine.DUCKDB:
            raise Unsupported(
                f"another program has given the history of {table.name} features that only Spark maintains",
                "Run auditlake maintain --engine auto.",
            )
        return self.open_session()


def rewrite_due(means: Means, table: HistoryTable, due: Due) -> bool:
    """Rewrite what is due; return False if another commit touched some of it, which stays due."""
    files = find_files(table)
    done = True
    try:
        if due.open_part:
            done = _join_open(means, table, files)
        for part in due.closed_parts:
            done = _cluster_closed(means, table, part, files) and done
        for part, names in due.closed_files:
            done = _join_closed(means, table, part, names, files) and done
    except commit_conflicts():
        return False
    except raised_by_spark() as exc:
        if is_vacuumed(exc):
            return False
        raise
    reach(After.FILES_JOINED)
    return done


def _join_open(means: Means, table: HistoryTable, files: Files | None) -> bool:
    loose = _intact(files and files.of_part(OPEN_PART).which(_is_loose))
    if loose and loose.by_name and has_large_row_groups(loose):
        return _join_fitting(loose)
    if loose and loose.by_name and means.streams_here(loose):
        return all(_join_bin(part) for part in bins(loose, _OPEN_FILE_BYTES))
    _builder(means.session(table), table, OPEN_PART, _OPEN_FILE_BYTES).executeCompaction()
    return True


def _intact(files: Files | None) -> Files | None:
    """Return the files, whose footers can be read then."""
    if files is not None:
        files.require_same_bytes()
    return files


def _join_bin(files: Files) -> bool:
    """Join files into one, unless it is a single file without deleted rows."""
    return (len(files.by_name) == 1 and not any(file.is_marked for file in files.by_name.values())) or join(files)


def _cluster_closed(means: Means, table: HistoryTable, part: str, files: Files | None) -> bool:
    held = _intact(files and files.of_part(part))
    if held and held.by_name and means.joins_here(held):
        return _join_fitting(held)
    if held and has_bounds(held):
        return cluster(means.session(table), held)
    _builder(means.session(table), table, part, _CLOSED_FILE_BYTES).executeZOrderBy("_from_lsn")
    return True


def _join_closed(means: Means, table: HistoryTable, part: str, names: Sequence[str], files: Files | None) -> bool:
    held = _intact(files and files.named(names))
    if held and means.joins_here(held):
        return _join_fitting(held)
    _intact(files and files.of_part(part).which(lambda file: _is_loose(file) and file.name not in names))
    _builder(means.session(table), table, part, _CLOSED_FILE_BYTES).executeCompaction()
    return True


def _join_fitting(files: Files) -> bool:
    """Join the files that fit into memory together; large rows stay in files of their own."""
    if may_hold(files):
        return join(files)
    chosen = fitting(files)
    return len(chosen.by_name) <= 1 or join(chosen)


def _is_loose(file: DataFile) -> bool:
    """Return whether a file is small, or many of its rows are deleted: those Spark's compaction rewrites, too."""
    return file.size_bytes < _SMALL_BYTES or file.deleted_rows > _DELETED * file.rows


def _builder(spark: SparkSession, table: HistoryTable, part: str, file_bytes: int) -> DeltaOptimizeBuilder:
    from delta.tables import DeltaTable as SparkDeltaTable  # noqa: PLC0415 - only with Spark

    require_safe_commits(spark)
    for name, value in {**_SETTINGS, f"{_OPTIMIZE}.maxFileSize": str(file_bytes)}.items():
        spark.conf.set(name, value)
    return SparkDeltaTable.forPath(spark, str(table.path)).optimize().where(f"_part = '{part}'")


def vacuum(means: Means, table: HistoryTable) -> None:
    """Delete the files that no version has had for the table's retention, and what killed writers left.

    A process that was suspended since it wrote its files may still commit them, so a fence comes before the deletion.
    Spark starts only for a table that other programs have given features or another retention.
    """
    before_s = time.time() - KEPT_FOR_S
    if find_files(table) is None or not has_own_retention(table):
        _vacuum(means.session(table), table)
    elif expired_files(table.path, before_s) and fence(table):
        remove_files(expired_files(table.path, before_s))
    delete_abandoned(table)


def _vacuum(spark: SparkSession, table: HistoryTable) -> None:
    """Expire as Delta does; the session's settings turn off its own commits, which do not conflict with any other."""
    from delta.tables import DeltaTable as SparkDeltaTable  # noqa: PLC0415 - only with Spark

    expired = spark.sql(f"vacuum {spark_literal(str(table.path))} dry run")
    if not expired.isEmpty() and fence(table):
        SparkDeltaTable.forPath(spark, str(table.path)).vacuum()


# To list a table's folder takes seconds on an object store, and files are kept for hours anyway.
_VACUUM_EVERY_S = 3 * 3600.0


def maintain(spark: SparkOnDemand, lake: Lake, report: Say) -> None:
    """Compact and cluster every history as far as possible, write checkpoints and delete expired files.

    Raises, after all others: LakeUnusable if some have damaged files; Unsupported if some can only be maintained by
    Spark, and the engine is DuckDB.
    """
    means, refused = Means(lambda: spark().newSession(), spark.engine), list[AuditlakeError]()
    with hold(lake, "maintain", Stage.MAINTAIN):
        for table in list_histories(lake):
            try:
                with writing(f"the history of {table.name}"):
                    _maintain_one(means, lake, table, report)
            except (Unsupported, LakeUnusable) as exc:
                refused.append(exc)
    if refused:
        raise all_in_one(refused)


def _maintain_one(means: Means, lake: Lake, table: HistoryTable, report: Say) -> None:
    files = data_files(table)
    done = rewrite_due(means, table, find_due(files, everything=True))
    checkpoint(table.path)
    vacuum(means, table)
    current = open_history(lake, table.name) or table
    remark = "" if done else "; another process commits to it, run this again"
    line = f"maintained {table.name}: {len(files):,} files are {len(data_files(current)):,}{remark}"
    report(Notice(Event.TABLE_MAINTAINED, line))


class Upkeep:
    """Maintenance between the batches of one process, as far as it pays off."""

    def __init__(self, spark: SparkOnDemand, lake: Lake, report: Say) -> None:
        self._means = Means(lambda: spark().newSession(), spark.engine)
        self._lake = lake
        self._failures = FailureReports(report)
        self._started_s = time.monotonic()
        self._vacuumed_s: dict[TableName, float] = {}

    def after(self, merged: Iterable[TableName]) -> None:
        """Maintain the tables that a batch changed; one that only Spark could is reported once if it must not start."""
        for name in merged:
            if table := open_history(self._lake, name):
                try:
                    with writing(f"the history of {name}"):
                        self._maintain(table)
                except (Unsupported, LakeUnusable) as exc:
                    self._failures.report(f"{name} is not maintained", exc)

    def _maintain(self, table: HistoryTable) -> None:
        if due := find_due(data_files(table)):
            rewrite_due(self._means, table, due)
            checkpoint(table.path)
        now_s = time.monotonic()
        if now_s - self._vacuumed_s.get(table.name, self._started_s) > _VACUUM_EVERY_S:
            self._vacuumed_s[table.name] = now_s
            vacuum(self._means, table)
