"""Write a folded tail into its history table: one Delta commit that also moves the table's position.

1. The commit holds the closes, the versions and the application transaction HISTORY_APP = the new position, or nothing.
2. `_part = 'open'` is a literal of the match, so closed history is neither read nor rewritten.
3. A close that finds no open version, or a birth that finds one, fails the job: history and log do not agree. Only a
   tail of nothing but inserts is appended without looking.
4. Columns that the tail brings are added before, in a commit without a position. Where rows from before show a value in
   them, the commit of 1 gives it to every open version; that one reads closed history too.
5. Two processes that apply the same tail, or overlapping ones, cannot both commit; the later one is a LakeConflict.

For 5, three things work together. Spark leaves out a write whose position the table already has. Delta refuses a commit
if another one moved the same application transaction since this write began. And because the fold was planned on the
position read before that, a part of the source reads the position again while the write runs, and fails if it moved:
it must be read after Delta's transaction began, never before, so that no commit falls between the two.
An append needs this as much as a MERGE, and a killed process may have left its JVM at work.

Authority: docs.delta.io, "Idempotent writes", "Concurrency control" and "Upsert into a table using merge"
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from typing import assert_never

import pyarrow as pa
from delta.tables import DeltaTable as SparkDeltaTable
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys
from auditlake.apply.columns import AddedColumn
from auditlake.apply.failures import BEGINS_OPEN, ENDS_NOT_OPEN, broken, conflict, folded_wrong
from auditlake.apply.fold import ENDS, Folded, Kind
from auditlake.apply.mark import HELD_BYTES, TooLarge, mark
from auditlake.apply.replace import whole_source, write_source
from auditlake.apply.reshape import missing_value, with_missing_raw
from auditlake.apply.tails import Tail
from auditlake.failpoints import After, reach
from auditlake.lake.files import open_rows
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, RESERVED, HistoryTable, add_columns
from auditlake.lake.layout import HISTORY_APP
from auditlake.lake.scan import find_files
from auditlake.literals import spark_name
from auditlake.relation import Column

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
"""Delta sets it after a commit of this session, and not after a write that it left out."""
_HELD_ROWS = 1_000_000
_REPLACED_FROM_ROWS = 1_000_000
"""From about so many open rows on REPLACE ON costs less than the MERGE's shuffle."""


class Plan(StrEnum):
    """How a tail is written; all give the same rows."""

    MARK = "mark"
    APPEND = "append"
    MERGE = "merge"
    REPLACE = "replace"


def choose_plan(tail: Tail) -> Plan:
    """Choose the cheapest plan by the tail and the size of the open partition."""
    # Columns that are added change rows whose keys are not in the tail.
    same_columns = tail.columns == tail.table.columns and not tail.added
    if same_columns and tail.shape is not None and tail.shape.rows <= _HELD_ROWS and tail.size_bytes <= HELD_BYTES:
        return Plan.MARK
    if _inserts_only(tail) and not _filled(tail.added):
        return Plan.APPEND
    if same_columns and open_rows(tail.table) >= _REPLACED_FROM_ROWS:
        return Plan.REPLACE
    return Plan.MERGE


def merge(tail: Tail, folded: Folded, plan: Plan) -> None:
    """Make `folded`, the fold of `tail`, part of its history and move the position to where the tail ends.

    The session that it was planned in must be used by no other thread meanwhile: the position travels in its settings.

    Raises LakeConflict if another process moved the table.
    """
    spark, table = folded.rows.sparkSession, tail.table
    if plan is Plan.MARK and (files := find_files(table)):
        with suppress(TooLarge):
            mark(files.of_part(OPEN_PART), folded, tail.upto, inserts_only=_inserts_only(tail))
            return
    lacking = [column for column in folded.columns if column not in table.columns]
    if lacking:
        add_columns(table, lacking)
        reach(After.COLUMNS_ADDED)
    held = frozenset(column.stored for column in (*table.columns, *lacking))
    with _position_in_commit(spark, tail.upto), _one_applier(spark, table, held):
        match plan:
            case Plan.APPEND:
                rows = _checked(spark, table, folded.rows.drop("_kind"))
                rows.write.format("delta").mode("append").save(str(table.path))
            case Plan.MERGE | Plan.MARK:
                checked = replace(folded, rows=_checked(spark, table, folded.rows))
                _merge(spark, table, checked, _filled(folded.added))
            case Plan.REPLACE:
                _replace(spark, table, folded.rows)
            case _:
                assert_never(plan)


def _inserts_only(tail: Tail) -> bool:
    return tail.shape is not None and tail.shape.inserts_only


def _filled(added: Sequence[AddedColumn]) -> list[AddedColumn]:
    return [each for each in added if each.missing is not None]


def _replace(spark: SparkSession, table: HistoryTable, rows: DataFrame) -> None:
    source = whole_source(spark, table, rows)
    if source.contradiction:
        raise folded_wrong(table, source.contradiction)
    write_source(replace(source, rows=_checked(spark, table, source.rows)), str(table.path))


def _merge(spark: SparkSession, table: HistoryTable, folded: Folded, filled: Sequence[AddedColumn]) -> None:
    kind = F.col("s._kind")
    condition = f"t._part = '{OPEN_PART}' and s._kind != '{Kind.VERSION}' and {keys.same(table.columns, 't', 's')}"
    ends = {name: F.col(f"s.{name}") for name in ENDS}
    merging = (
        SparkDeltaTable.forPath(spark, str(table.path))
        .alias("t")
        .merge(folded.rows.alias("s"), condition)
        .whenMatchedUpdate(condition=kind == Kind.CLOSE, set={**ends, **_fill(filled, F.col("s._to_lsn"))})
        .whenMatchedUpdate(set={"_to_lsn": _fails(BEGINS_OPEN)})
        .whenNotMatchedInsert(condition=kind != Kind.CLOSE, values=_all_columns(folded.columns))
        .whenNotMatchedInsert(values={"_to_lsn": _fails(ENDS_NOT_OPEN)})
    )
    if filled:
        is_open = F.col("t._part") == OPEN_PART
        merging = merging.whenNotMatchedBySourceUpdate(condition=is_open, set=_fill(filled, F.lit(None).cast("bigint")))
    merging.execute()


def _fill(added: Sequence[AddedColumn], end: Expression) -> dict[str, str | Expression]:
    """What makes an open version that ends at `end` show the missing values of columns that are there by then."""
    found: dict[str, str | Expression] = {}
    raw = F.col("t._raw")
    for each in added:
        there = F.coalesce(end >= each.since, F.lit(True))
        found[spark_name(each.column.stored)] = F.when(there, missing_value(each))
        raw = F.when(there, with_missing_raw(raw, [each])).otherwise(raw)
    return {**found, "_raw": raw} if found else found


def _all_columns(columns: Sequence[Column]) -> dict[str, str | Expression]:
    names = [*(column.stored for column in columns), *(name for name, _ in PERIOD_COLUMNS)]
    return {spark_name(name): keys.source(name, "s") for name in names}


def _fails(why: str) -> Expression:
    return F.raise_error(F.lit(why)).cast("bigint")


def _checked(spark: SparkSession, table: HistoryTable, rows: DataFrame) -> DataFrame:
    """The rows; evaluating them fails once the table is no longer at the position that the fold was planned on."""
    path, expected = str(table.path), table.position

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            position = DeltaTable(path).transaction_version(HISTORY_APP)
            if position != expected:
                raise RuntimeError(f"the position of {path} is {position}, was {expected}")
        yield from ()

    return rows.unionByName(spark.range(1, numPartitions=1).mapInArrow(check, rows.schema))


@contextmanager
def _position_in_commit(spark: SparkSession, upto: int) -> Iterator[None]:
    spark.conf.set(_TXN_APP, HISTORY_APP)
    spark.conf.set(_TXN_VERSION, f"{upto:d}")
    spark.conf.unset(_LAST_COMMIT)
    try:
        yield
    finally:
        # Left behind, they would make Delta leave out the next write of this session.
        spark.conf.unset(_TXN_APP)
        spark.conf.unset(_TXN_VERSION)


@contextmanager
def _one_applier(spark: SparkSession, table: HistoryTable, held: frozenset[str]) -> Iterator[None]:
    """Tell another applier from everything else that may fail; `held` are the source columns that the table had."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as exc:  # the latter where a task failed on behalf of a broadcast
        now = DeltaTable(table.path)
        columns = {field.name for field in now.schema().fields} - RESERVED
        if now.transaction_version(HISTORY_APP) != table.position or columns != held:
            raise conflict(table) from exc
        if wrong := broken(table, exc):
            raise wrong from None  # what Spark says may quote the value
        raise
    if spark.conf.get(_LAST_COMMIT, None) is None:
        raise conflict(table)
