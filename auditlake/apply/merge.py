"""Write a folded tail into its history table: one Delta commit that also moves the table's position.

Invariants:
  I1. The commit has the closes, the versions and the application transaction HISTORY_APP = the new position, or it does
      not exist.
  I2. `_part = 'open'` is a literal of the match condition, so closed history is neither read nor rewritten.
  I3. A close without an open version, or a birth with one, fails the job: history and changes contradict each other.
      Only a tail with nothing but inserts is appended without this check.
  I4. Columns that the tail adds are added before, in a commit without a position. If older rows show a value in them,
      the commit of I1 sets it in every open version; only this commit reads closed history, too.
  I5. Two processes that apply the same tail, or overlapping ones, cannot both commit: the later raises LakeConflict.

I5 needs four parts, for appends as much as for MERGE, as a killed process may have left its JVM running:
  1. Delta skips a write whose position the table already has.
  2. Delta refuses a commit if another one moved the same application transaction since this write began.
  3. The fold was planned at a position that was read before this write began. So a part of the source reads the
     position again during the write, after Delta's transaction began, and fails if it has moved.
  4. No commit replaces another (`spark/log_store`, I1), which Delta takes for granted.

An error may follow a commit that was made: the reply was lost, or a hook after the commit failed. So the commit carries
our own id (`userMetadata` in `commitInfo`); if the log has it, the tail is written.

**REPLACE ON** has the result of a MERGE, and is cheaper for a large open partition: a MERGE that also inserts shuffles
the rows of every file it touches, with all columns. Here the source is completed first: the open versions of the tail's
keys, found by a broadcast join, with their ends, and the versions that begin in the tail. Delta then replaces the open
version of every key by the source's rows (`replaceOn`), with deletion vectors.

The fold is staged, because it is read more than once. As its keys are known then, they become a few literal ranges on
the target, the only predicate by which Delta skips files: it treats a list of values as one range, so the keys are
split at their largest gaps. This is done only for whole numbers, because other types may have values outside their
column, and only if enough files are skipped: new literals make Spark compile a plan again.

Authority: docs.delta.io, "Idempotent writes", "Concurrency control", "Upsert into a table using merge" and "Table batch
reads and writes"
"""

from __future__ import annotations  # types of Spark are imported for mypy only

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

import numpy as np
import pyarrow as pa

from auditlake.apply import keys, typed_values
from auditlake.apply.deletion_vector_writer import HELD_BYTES, commit, computed_by_spark, mark
from auditlake.apply.errors import cannot_fold, conflict, fold_failure
from auditlake.apply.fold import BROADCAST_ROWS, Folded
from auditlake.apply.tail_fold import missing_value, with_missing_raw
from auditlake.apply.tails import Tail
from auditlake.delta.log_reader import entry
from auditlake.delta.log_writer import Action, moved
from auditlake.delta.table import open_table
from auditlake.engine import Engine
from auditlake.failpoints import After, reach
from auditlake.fold.net import ENDS, KIND, RowKind
from auditlake.fold.open_versions import CLOSED_WITHOUT_OPEN, OPENED_TWICE, TooLarge, contradiction, key_of
from auditlake.jvm_trace import raised_by_spark
from auditlake.lake.history import (
    OPEN_PART,
    PERIOD_COLUMNS,
    RESERVED,
    HistoryTable,
    set_columns,
    type_of,
    whole_number_keys,
    with_columns,
)
from auditlake.lake.history_files import find_files, open_bounds, open_rows
from auditlake.lake.layout import HISTORY_APP
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.schema.evolution import AddedColumn
from auditlake.spark import functions as F  # noqa: N812 - the usual name
from auditlake.spark.log_store import require_safe_commits
from auditlake.spark.planning import read_version
from auditlake.sql_names import spark_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_COMMIT_ID = "spark.databricks.delta.commitInfo.userMetadata"
_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
"""Set by Delta after a commit of this session, but not after a write that it skipped."""
_REPLACED_FROM_ROWS = 1_000_000
"""From about this number of open rows on, REPLACE ON costs less than the MERGE's shuffle."""
_ROWS_IN_A_FILE = 250_000
_STAGED_BY_DELTA = "spark.databricks.delta.insertReplaceOnOrUsing.materializeSource"


class Plan(StrEnum):
    """Ways to write a tail; all produce the same rows."""

    MARK = "mark"
    APPEND = "append"
    MERGE = "merge"
    REPLACE = "replace"


def choose_plan(tail: Tail, engine: Engine = Engine.AUTO) -> Plan:
    """Choose the cheapest plan for the tail and the size of the open partition; with Spark, one of Delta's writers."""
    # Added columns change rows whose keys are not in the tail.
    same_columns = not tail.lacking and not tail.added
    if same_columns and tail.held_bytes <= HELD_BYTES and engine is not Engine.SPARK:
        return Plan.MARK
    if tail.inserts_only and not _filled(tail.added):
        return Plan.APPEND
    if same_columns and open_rows(tail.table) >= _REPLACED_FROM_ROWS:
        return Plan.REPLACE
    return Plan.MERGE


def merge(tail: Tail, folded: Folded, plan: Plan) -> None:
    """Write `folded`, the fold of `tail`, into its history, and move the position to the end of the tail.

    No other thread may use the session meanwhile: the position is passed through its settings.

    Raises LakeConflict if another process moved the table.
    """
    spark, table = folded.rows.sparkSession, tail.table
    folded = replace(folded, rows=_with_past_columns(folded.rows, tail.followed.physical))
    if plan is Plan.MARK and (files := find_files(table)):
        with suppress(TooLarge):
            files = files.of_part(OPEN_PART)
            computed = computed_by_spark(files, folded, inserts_only=tail.inserts_only)
            mark(files, [computed], tail.upto, reshaping(tail))
            return
    if tail.is_reshaped:
        set_columns(table, tail.followed.physical, tail.followed.names)
        reach(After.COLUMNS_ADDED)
    held = frozenset(column.stored for column in tail.followed.physical)
    require_safe_commits(spark)
    with _position_in_commit(spark, tail.upto) as commit_id, _one_applier(spark, table, held, commit_id):
        match plan:
            case Plan.APPEND:
                rows = _checked(spark, table, folded.rows.drop(KIND))
                rows.write.format("delta").mode("append").save(str(table.path))
            case Plan.MERGE | Plan.MARK:
                checked = replace(folded, rows=_checked(spark, table, folded.rows))
                _merge(spark, table, checked, _filled(folded.added), tail.followed.physical)
            case Plan.REPLACE:
                _replace(spark, table, folded)
            case _:
                assert_never(plan)


def reshape(tail: Tail) -> None:
    """Record columns and name after a tail without changes, and move the position; raises LakeConflict."""
    commit(tail.table, "ALTER TABLE", [*moved({HISTORY_APP: tail.upto}), *reshaping(tail)])


def reshaping(tail: Tail) -> list[Action]:
    """Return the actions that record the columns and the name of the table at the end of a tail."""
    return with_columns(tail.table, tail.followed.physical, tail.followed.names) if tail.is_reshaped else []


def _with_past_columns(rows: DataFrame, physical: Sequence[Column]) -> DataFrame:
    """Add the physical columns that the table did not have within the tail; they are NULL in versions that begin."""
    present = set(rows.columns)
    past = [column for column in physical if column.stored not in present]
    return rows.withColumns({c.stored: F.lit(None).cast(type_of(c).delta) for c in past}) if past else rows


def _filled(added: Sequence[AddedColumn]) -> list[AddedColumn]:
    return [column for column in added if column.missing is not None]


def _replace(spark: SparkSession, table: HistoryTable, folded: Folded) -> None:
    source = whole_source(spark, table, folded)
    if source.contradiction:
        raise cannot_fold(table, source.contradiction)
    write_source(replace(source, rows=_checked(spark, table, source.rows)), str(table.path))


def _merge(
    spark: SparkSession,
    table: HistoryTable,
    folded: Folded,
    filled: Sequence[AddedColumn],
    physical: Sequence[Column],
) -> None:
    kind = keys.source(KIND, "s")
    is_edge = f"s.{spark_identifier(KIND)} != '{RowKind.VERSION}'"
    added = [each for each in filled if each.column.key]  # NULL in every open version until this commit fills them
    others = [column for column in folded.columns if column.stored not in {each.column.stored for each in added}]
    same = keys.same(others, "t", "s") if key_of(others) or not added else "true"
    from delta.tables import DeltaTable as SparkDeltaTable  # noqa: PLC0415 - only with Spark

    condition = F.expr(f"t._part = '{OPEN_PART}' and {is_edge} and {same}")
    for each in added:
        condition &= _is_missing_value(each)
    ends = {name: F.col(f"s.{name}") for name in ENDS}
    merging = (
        SparkDeltaTable.forPath(spark, str(table.path))
        .alias("t")
        .merge(folded.rows.alias("s"), condition)
        .whenMatchedUpdate(condition=kind == RowKind.CLOSE, set={**ends, **_fill(filled, F.col("s._to_lsn"))})
        .whenMatchedUpdate(set={"_to_lsn": _fails(OPENED_TWICE)})
        .whenNotMatchedInsert(condition=kind != RowKind.CLOSE, values=_all_columns(physical))
        .whenNotMatchedInsert(values={"_to_lsn": _fails(CLOSED_WITHOUT_OPEN)})
    )
    if filled:
        is_open = F.col("t._part") == OPEN_PART
        merging = merging.whenNotMatchedBySourceUpdate(condition=is_open, set=_fill(filled, F.lit(None).cast("bigint")))
    merging.execute()


def _is_missing_value(added: AddedColumn) -> Expression:
    """Return whether a row of the source has the missing value in a column."""
    column, text = added.column, F.lit(added.missing)
    of_row = typed_values.raw_of(column, F.col("s._raw"))
    same = keys.source(column.stored, "s").eqNullSafe(missing_value(added))
    return same & of_row.eqNullSafe(typed_values.raw(column, text))


def _fill(added: Sequence[AddedColumn], end: Expression) -> dict[str, str | Expression]:
    """Return assignments of missing values to an open version closed at `end`, for columns that existed by then."""
    values: dict[str, str | Expression] = {}
    raw = F.col("t._raw")
    for addition in added:
        existed = F.coalesce(end >= int(addition.since), F.lit(True))
        values[spark_identifier(addition.column.stored)] = F.when(existed, missing_value(addition))
        raw = F.when(existed, with_missing_raw(raw, [addition])).otherwise(raw)
    return {**values, "_raw": raw} if values else values


def _all_columns(columns: Sequence[Column]) -> dict[str, str | Expression]:
    names = [*(column.stored for column in columns), *(name for name, _ in PERIOD_COLUMNS)]
    return {spark_identifier(name): keys.source(name, "s") for name in names}


def _fails(why: str) -> Expression:
    return F.raise_error(F.lit(why)).cast("bigint")


def _checked(spark: SparkSession, table: HistoryTable, rows: DataFrame) -> DataFrame:
    """Return the rows; their evaluation fails if the table has left the position at which the fold was planned."""
    path, expected = table.path, table.position

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            position = open_table(path).transaction_version(HISTORY_APP)
            if position != expected:
                raise RuntimeError(f"the position of {path} is {position}, was {expected}")
        yield from ()

    return rows.unionByName(spark.range(1, numPartitions=1).mapInArrow(check, rows.schema))


@contextmanager
def _position_in_commit(spark: SparkSession, upto: Lsn) -> Iterator[str]:
    """Pass the position and a new commit id, which is yielded, to the next commit of the session."""
    commit_id = str(uuid.uuid4())
    spark.conf.set(_TXN_APP, HISTORY_APP)
    spark.conf.set(_TXN_VERSION, f"{upto:d}")
    spark.conf.set(_COMMIT_ID, commit_id)
    spark.conf.unset(_LAST_COMMIT)
    try:
        yield commit_id
    finally:
        # If they stayed, Delta would skip the next write of this session.
        for name in (_TXN_APP, _TXN_VERSION, _COMMIT_ID):
            spark.conf.unset(name)


@contextmanager
def _one_applier(spark: SparkSession, table: HistoryTable, held: frozenset[str], commit_id: str) -> Iterator[None]:
    """Turn failures caused by another applier into LakeConflict; `held` are the source columns that the table had."""
    try:
        yield
    except raised_by_spark() as exc:  # the latter if a task of a broadcast failed
        if _is_committed(table, commit_id):
            return
        now = open_table(table.path)
        columns = {field.name for field in now.schema().fields} - RESERVED
        if now.transaction_version(HISTORY_APP) != table.position or columns != held:
            raise conflict(table) from exc
        if failure := fold_failure(table, exc):
            raise failure from None  # Spark's message may quote the value
        raise
    if spark.conf.get(_LAST_COMMIT, None) is None:
        raise conflict(table)


def _is_committed(table: HistoryTable, commit_id: str) -> bool:
    """Return whether a version after the one that was read is the commit with this id."""
    latest = open_table(table.path).version()
    entries = (entry(table.path, version) for version in range(table.delta_version + 1, latest + 1))
    infos = (action["commitInfo"] for actions in entries for action in actions if "commitInfo" in action)
    return any(info.get("userMetadata") == commit_id for info in infos)


@dataclass(frozen=True, slots=True)
class _Source:
    """All rows that the history has for the tail's keys afterwards; by `condition`, rows `s` replace rows `t`.

    If `contradiction` is set, the fold contradicts the history, and the source must not be written. `is_small`: the
    source can be broadcast.
    """

    rows: DataFrame
    condition: str
    contradiction: str | None
    is_small: bool


def whole_source(spark: SparkSession, table: HistoryTable, folded: Folded) -> _Source:
    """Stage the source: the rows of a fold, and the open versions at the table version that it was folded on."""
    rows, columns, history = folded.rows, folded.columns, read_version(spark, str(table.path), table.delta_version)
    staged = rows.localCheckpoint()
    edges = staged.where(keys.source(KIND) != RowKind.VERSION)
    wanted = [column.stored for column in whole_number_keys(columns)]
    edge_keys = edges.select(keys.source(KIND), *map(keys.source, wanted)).toArrow()
    bounds = conditions(edge_keys, columns, open_bounds(table, wanted))
    is_open = f"t._part = '{OPEN_PART}'"
    condition = " and ".join([is_open, *bounds, keys.same(columns, "t", "s")])
    if edge_keys.num_rows <= BROADCAST_ROWS:
        edges = F.broadcast(edges)
    met = history.alias("t").join(edges.alias("s"), on=F.expr(condition)).select(*_ended(rows)).localCheckpoint()
    versions = staged.where(keys.source(KIND) != RowKind.CLOSE)
    contradicts = contradiction(edge_keys[KIND], met.select(keys.source(KIND)).toArrow()[KIND])
    # Otherwise every task of the join writes a file of its own.
    source = versions.unionByName(met).drop(KIND).coalesce(1 + edge_keys.num_rows // _ROWS_IN_A_FILE)
    return _Source(source, condition, contradicts, staged.count() <= BROADCAST_ROWS)


def write_source(source: _Source, path: str) -> None:
    """Write the source in one commit; the caller sets the application transaction and adds the position check."""
    # Otherwise Delta stages the source once more, before its transaction begins: then the position check would miss a
    # process that moves the table in between.
    source.rows.sparkSession.conf.set(_STAGED_BY_DELTA, "none")
    # Outermost: Delta ignores a hint below the union with the position check.
    rows = F.broadcast(source.rows) if source.is_small else source.rows
    writer = rows.alias("s").write.format("delta").mode("overwrite").option("targetAlias", "t")
    writer.option("replaceOn", source.condition).save(path)


def _ended(rows: DataFrame) -> list[Expression]:
    names = [name for name in rows.columns if name not in {*ENDS, KIND}]
    kept = [keys.source(name, "t").alias(name) for name in names]
    return [*kept, *(keys.source(name, "s").alias(name) for name in (*ENDS, KIND))]


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
