"""Added columns: convert changes and history rows of older shapes to the columns at a tail's end.

A row that existed when a column was added shows in it what it shows in PostgreSQL: the column's *missing value*
(`schema.missing_values`), until the row is changed. Hence:
  1. A change in the older shape is treated as a change that sets the missing value.
  2. Open versions of the history get the missing value.
  3. A version closed before the column existed never showed it: the column is NULL there.

Builds expressions only. `schema.evolution` decides which columns a tail adds.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys, typing
from auditlake.apply.tails import Tail
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, type_of
from auditlake.schema.evolution import AddedColumn, Layout


def changes_in_shape(changes: DataFrame, tail: Tail) -> DataFrame:
    """Return the changes in the columns of the tail's end; `changes` must have the column `relation`."""
    missing = {addition.column.name: addition.missing for addition in tail.added}
    texts = [missing.get(column.name) for column in tail.columns]
    layouts = {number: layout for number, layout in tail.followed.layouts.items() if not _fits(layout, tail)}
    if not layouts:
        return changes
    return changes.withColumns(
        {
            "new": _arranged("new", layouts, lambda _: texts),
            "old": _arranged("old", layouts, lambda layout: texts if layout.whole_old else [None] * len(texts)),
            "unchanged": _renumbered(layouts),
        }
    )


def _fits(layout: Layout, tail: Tail) -> bool:
    return layout.is_plain and layout.width == len(tail.columns)


def _arranged(name: str, layouts: dict[int, Layout], texts: Callable[[Layout], Sequence[str | None]]) -> Expression:
    arranged = F.col(name)
    for number, layout in layouts.items():
        values = [
            F.lit(text).cast("string") if place is None else F.col(name)[place]
            for place, text in zip(layout.places, texts(layout), strict=True)
        ]
        here = (F.col("relation") == number) & F.col(name).isNotNull()
        arranged = F.when(here, F.array(*values)).otherwise(arranged)
    return arranged


def _renumbered(layouts: dict[int, Layout]) -> Expression:
    renumbered = F.col("unchanged")
    for number, layout in layouts.items():
        place_of = {place: target for target, place in enumerate(layout.places) if place is not None}
        targets = F.array(*(F.lit(place_of[place]).cast("smallint") for place in range(layout.width)))
        here = (F.col("relation") == number) & F.col("unchanged").isNotNull()
        renumbered = F.when(here, F.transform("unchanged", _element_of(targets))).otherwise(renumbered)
    return renumbered


def _element_of(targets: Expression) -> Callable[[Expression], Expression]:
    return lambda place: F.get(targets, place.cast("int"))


def history_in_shape(history: DataFrame, tail: Tail) -> DataFrame:
    """Return the history's rows in the columns of the tail's end, whether the history has these yet or not."""
    added = {addition.column.name: addition for addition in tail.added}
    is_open = F.col("_part") == OPEN_PART
    columns = []
    for column in tail.columns:
        if column.name in added:
            columns.append(F.when(is_open, missing_value(added[column.name])).alias(column.stored))
        else:
            columns.append(keys.source(column.stored))
    raw = F.when(is_open, with_missing_raw(F.col("_raw"), tail.added)).otherwise(F.col("_raw"))
    period = [raw.alias(name) if name == "_raw" else F.col(name) for name, _ in PERIOD_COLUMNS]
    return history.select(*columns, *period)


def null_before_added(rows: DataFrame, added: Sequence[AddedColumn]) -> DataFrame:
    """Set each added column to NULL in versions that were closed before it existed."""
    for addition in added:
        if addition.missing is None:  # it is NULL there already
            continue
        stored = addition.column.stored
        before = F.coalesce(F.col("_to_lsn") < addition.since, F.lit(False))
        rows = rows.withColumn(stored, F.when(~before, keys.source(stored)))
        if type_of(addition.column).may_not_fit:
            rows = rows.withColumn("_raw", F.when(before, without_raw(F.col("_raw"), stored)).otherwise(F.col("_raw")))
    return rows


def missing_value(added: AddedColumn) -> Expression:
    """Return the typed missing value; NULL if the type cannot represent it."""
    return typing.value(added.column, F.lit(added.missing).cast("string"))


def with_missing_raw(raw: Expression, added: Sequence[AddedColumn]) -> Expression:
    """Return `_raw` with the texts of missing values that their type cannot represent."""
    for addition in added:
        if addition.missing is None or not type_of(addition.column).may_not_fit:
            continue
        stored, text = addition.column.stored, typing.raw(addition.column, F.lit(addition.missing))
        without = F.coalesce(without_raw(raw, stored), F.create_map().cast("map<string,string>"))
        with_text = F.map_concat(without, F.create_map(F.lit(stored), text))
        raw = F.when(text.isNotNull(), with_text).otherwise(raw)
    return raw


def without_raw(raw: Expression, stored: str) -> Expression:
    """Return `_raw` without a column's text; NULL if no text is left."""
    rest = F.map_filter(raw, lambda name, _: name != stored)
    return F.when(F.size(rest) > 0, rest)
