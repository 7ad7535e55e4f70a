"""Fold of a tail in Spark, and its overlay on a history: the versions after it.

`fold_tail` reads the changes, and the open versions if needed, in the columns at the end of the tail, and folds them.

The shapes of a tail's changes and of its history may be older than the columns at its end (`schema.evolution` decides
which columns a tail adds). A row that existed when a column was added has the same value in it as in PostgreSQL: the
column's *missing value* (`schema.missing_values`), until the row is changed. Hence:
  1. A change in the older shape is treated as a change that sets the missing value; one after the column was dropped
     again sets none, as in a tail that begins after the drop.
  2. Open versions of the history get the missing value.
  3. A version closed before the column existed never showed it: the column is NULL there.

Builds plans only; Spark runs them when the result is written (`merge`) or read (`query.as_of`). `audit.overlay` is the
same in DuckDB.
"""

from __future__ import annotations  # types of Spark are imported for mypy only

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from auditlake.apply import keys, typed_values
from auditlake.apply.fold import BROADCAST_ROWS, Folded, fold, needs_open_versions
from auditlake.apply.large_rows import has_large_rows
from auditlake.apply.tails import FOLDED_OPS, Tail
from auditlake.fold.net import ENDS
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, HistoryTable, type_of
from auditlake.lake.history_files import find_files
from auditlake.lake.history_rows import read_rows
from auditlake.lsn import Lsn
from auditlake.schema.evolution import AddedColumn, Layout
from auditlake.spark import functions as F  # noqa: N812 - the usual name
from auditlake.spark.planning import PATHS_AS_THEY_ARE, read_version

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

_CHANGES = (
    "lsn bigint, ordinal int, xid bigint, time timestamp, op string, `schema` string, `table` string, relation bigint, "
    "`old` array<string>, `new` array<string>, `unchanged` array<smallint>"
)


def fold_tail(spark: SparkSession, tail: Tail, open_versions: DataFrame | None = None) -> Folded | None:
    """Plan the fold of one tail; return None if none of it can be folded.

    `open_versions` are the versions open before the tail, if they are not the open versions of its table.
    """
    if tail.shape is None:
        return None
    changes = changes_in_shape(_changes(spark, tail), tail)
    before = None
    if needs_open_versions(tail.columns, tail.shape):
        versions = _open_versions(spark, tail.table) if open_versions is None else open_versions
        before = history_in_shape(versions, tail)
    folded = fold(changes, before, tail.columns, tail.shape)
    return replace(folded, rows=null_before_added(folded.rows, tail.added), added=tail.added)


def overlay(history: DataFrame, folded: Folded | None, tail: Tail) -> DataFrame:
    """Return the versions after a tail, from all before it; `folded` is None if none of it can be folded."""
    is_open = F.col("_part") == OPEN_PART
    opened = overlay_open(history.where(is_open), folded, tail)
    return history_in_shape(history.where(~is_open), tail).unionByName(opened, allowMissingColumns=True)


def overlay_open(open_versions: DataFrame, folded: Folded | None, tail: Tail) -> DataFrame:
    """Return the versions that were open before a tail, those that it closes with their ends, and its new ones."""
    rows = history_in_shape(open_versions, tail)
    if folded is None or tail.shape is None:
        return rows
    closes = F.broadcast(folded.closes) if tail.shape.rows <= BROADCAST_ROWS else folded.closes
    joined = rows.alias("h").join(closes.alias("c"), on=F.expr(keys.same(tail.columns, "h", "c")), how="left")
    ended = [
        F.coalesce(F.col(f"c.{name}"), F.col(f"h.{name}")).alias(name) if name in ENDS else keys.source(name, "h")
        for name in rows.columns
    ]
    versions = null_before_added(joined.select(*ended), tail.added)
    return versions.unionByName(folded.versions, allowMissingColumns=True)


def _open_versions(spark: SparkSession, table: HistoryTable) -> DataFrame:
    if files := find_files(table):
        return read_rows(spark, files.of_part(OPEN_PART))
    return read_version(spark, str(table.path), table.delta_version).where(F.col("_part") == OPEN_PART)


def _changes(spark: SparkSession, tail: Tail) -> DataFrame:
    paths = [file.path for file in tail.files]
    if not paths:
        return spark.createDataFrame([], _CHANGES)
    # The files are known and plain Parquet, so the JVM need not load the Delta log of `changes`.
    rows = (
        spark.read.schema(_CHANGES)
        .option(*PATHS_AS_THEY_ARE)
        .parquet(*map(str, paths))
        .where(
            (F.struct("lsn") > _lsn(tail.table.position))
            & (F.struct("lsn") <= _lsn(tail.upto))
            & F.col("relation").isin(*tail.relations)
            & F.col("op").isin(*FOLDED_OPS)
        )
    )
    return rows.coalesce(1) if has_large_rows(tail) else rows


def _lsn(lsn: Lsn) -> Expression:
    """Return a literal that Spark passes to generated code by reference, so that the next batch can reuse the code."""
    return F.struct(F.lit(int(lsn)).cast("bigint").alias("lsn"))  # py4j would format an Lsn as PostgreSQL does


def changes_in_shape(changes: DataFrame, tail: Tail) -> DataFrame:
    """Return the changes in the columns of the tail's end; `changes` must have the column `relation`."""
    added = {addition.column.stored: addition for addition in tail.added}
    texts = [_lacked(added.get(column.stored)) for column in tail.columns]
    layouts = {number: layout for number, layout in tail.followed.layouts.items() if not _fits(layout, tail)}
    if not layouts:
        return changes
    return changes.withColumns(
        {
            "new": _arranged("new", layouts, lambda _: texts),
            "old": _arranged("old", layouts, lambda layout: texts if layout.whole_old else [_lacked()] * len(texts)),
            "unchanged": _renumbered(layouts),
        }
    )


def _fits(layout: Layout, tail: Tail) -> bool:
    return layout.is_plain and layout.width == len(tail.columns)


def _lacked(added: AddedColumn | None = None) -> Expression:
    """Return the text of a column in a change whose shape lacks it."""
    text = F.lit(added.missing if added else None).cast("string")
    if added is None or added.column.until is None:
        return text
    return F.when(F.col("lsn") <= int(added.since), text)


def _arranged(name: str, layouts: dict[int, Layout], texts: Callable[[Layout], Sequence[Expression]]) -> Expression:
    arranged = F.col(name)
    for number, layout in layouts.items():
        values = [
            text if place is None else F.col(name)[place]
            for place, text in zip(layout.places, texts(layout), strict=True)
        ]
        here = (F.col("relation") == number) & F.col(name).isNotNull()
        arranged = F.when(here, F.array(*values)).otherwise(arranged)
    return arranged


def _renumbered(layouts: dict[int, Layout]) -> Expression:
    renumbered = F.col("unchanged")
    for number, layout in layouts.items():
        target_of = layout.targets
        targets = F.array(*(F.lit(target_of.get(place)).cast("smallint") for place in range(layout.width)))
        here = (F.col("relation") == number) & F.col("unchanged").isNotNull()
        kept = F.filter(F.transform("unchanged", _element_of(targets)), lambda place: place.isNotNull())
        renumbered = F.when(here, kept).otherwise(renumbered)
    return renumbered


def _element_of(targets: Expression) -> Callable[[Expression], Expression]:
    return lambda place: F.get(targets, place.cast("int"))


def history_in_shape(history: DataFrame, tail: Tail) -> DataFrame:
    """Return the history's rows in the columns of the tail, whether the history has these yet or not.

    Columns that the table did not have within the tail follow, if the rows have them.
    """
    added = {addition.column.stored: addition for addition in tail.added}
    is_open = F.col("_part") == OPEN_PART
    columns = []
    for column in tail.columns:
        if column.stored in added:
            columns.append(F.when(is_open, missing_value(added[column.stored])).alias(column.stored))
        else:
            columns.append(keys.source(column.stored))
    folded = {column.stored for column in tail.columns}
    past = [c.stored for c in tail.table.columns if c.stored not in folded and c.stored in history.columns]
    columns += map(keys.source, past)
    raw = F.when(is_open, with_missing_raw(F.col("_raw"), tail.added)).otherwise(F.col("_raw"))
    period = [raw.alias(name) if name == "_raw" else F.col(name) for name, _ in PERIOD_COLUMNS]
    return history.select(*columns, *period)


def null_before_added(rows: DataFrame, added: Sequence[AddedColumn]) -> DataFrame:
    """Set each added column to NULL in versions that were closed before it existed."""
    for addition in added:
        if addition.missing is None:  # it is NULL there already
            continue
        stored = addition.column.stored
        before = F.coalesce(F.col("_to_lsn") < int(addition.since), F.lit(False))
        rows = rows.withColumn(stored, F.when(~before, keys.source(stored)))
        if type_of(addition.column).may_not_fit:
            rows = rows.withColumn("_raw", F.when(before, without_raw(F.col("_raw"), stored)).otherwise(F.col("_raw")))
    return rows


def missing_value(added: AddedColumn) -> Expression:
    """Return the typed missing value; NULL if the type cannot represent it."""
    return typed_values.typed_value(added.column, F.lit(added.missing).cast("string"))


def with_missing_raw(raw: Expression, added: Sequence[AddedColumn]) -> Expression:
    """Return `_raw` with the texts of missing values that their type cannot represent."""
    for addition in added:
        if addition.missing is None or not type_of(addition.column).may_not_fit:
            continue
        stored, text = addition.column.stored, typed_values.raw(addition.column, F.lit(addition.missing))
        without = F.coalesce(without_raw(raw, stored), F.create_map().cast("map<string,string>"))
        with_text = F.map_concat(without, F.create_map(F.lit(stored), text))
        raw = F.when(text.isNotNull(), with_text).otherwise(raw)
    return raw


def without_raw(raw: Expression, stored: str) -> Expression:
    """Return `_raw` without a column's text; NULL if no text is left."""
    rest = F.map_filter(raw, lambda name, _: name != stored)
    return F.when(F.size(rest) > 0, rest)
