"""Changes and history rows of older shapes, in the columns that a tail ends with. Builds expressions only.

A row that was there when a column was added shows the same in it as it did in PostgreSQL: the column's *missing value*
(`auditlake.added`), from that moment until the row is changed. So a change in the older shape is a change that sets the
missing value, and the open versions of the history have it. A version that ended before the column was there never
showed it: there it is NULL.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys, typing
from auditlake.apply.columns import AddedColumn, Layout
from auditlake.apply.tails import Tail
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, type_of


def changes_in_shape(changes: DataFrame, tail: Tail) -> DataFrame:
    """Give every change the columns of the tail's end; `changes` has their `relation`."""
    missing = {each.column.name: each.missing for each in tail.added}
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
    found = F.col(name)
    for number, layout in layouts.items():
        values = [
            F.lit(text).cast("string") if place is None else F.col(name)[place]
            for place, text in zip(layout.places, texts(layout), strict=True)
        ]
        here = (F.col("relation") == number) & F.col(name).isNotNull()
        found = F.when(here, F.array(*values)).otherwise(found)
    return found


def _renumbered(layouts: dict[int, Layout]) -> Expression:
    found = F.col("unchanged")
    for number, layout in layouts.items():
        place_of = {place: target for target, place in enumerate(layout.places) if place is not None}
        targets = F.array(*(F.lit(place_of[place]).cast("smallint") for place in range(layout.width)))
        here = (F.col("relation") == number) & F.col("unchanged").isNotNull()
        found = F.when(here, F.transform("unchanged", _taken_from(targets))).otherwise(found)
    return found


def _taken_from(targets: Expression) -> Callable[[Expression], Expression]:
    return lambda place: F.get(targets, place.cast("int"))


def history_in_shape(history: DataFrame, tail: Tail) -> DataFrame:
    """Give the history's rows the columns of the tail's end, whether the history has them yet or not."""
    added = {each.column.name: each for each in tail.added}
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


def only_while_there(rows: DataFrame, added: Sequence[AddedColumn]) -> DataFrame:
    """Empty each column in versions that ended before it was there."""
    for each in added:
        if each.missing is None:  # then they have no value there as it is
            continue
        stored = each.column.stored
        over = F.coalesce(F.col("_to_lsn") < each.since, F.lit(False))
        rows = rows.withColumn(stored, F.when(~over, keys.source(stored)))
        if type_of(each.column).may_not_fit:
            rows = rows.withColumn("_raw", F.when(over, without_raw(F.col("_raw"), stored)).otherwise(F.col("_raw")))
    return rows


def missing_value(added: AddedColumn) -> Expression:
    """The typed value that rows from before show; NULL where the type cannot hold it."""
    return typing.value(added.column, F.lit(added.missing).cast("string"))


def with_missing_raw(raw: Expression, added: Sequence[AddedColumn]) -> Expression:
    """`_raw` of such a row: with the texts of missing values that their type cannot hold."""
    for each in added:
        if each.missing is None or not type_of(each.column).may_not_fit:
            continue
        text = typing.raw(each.column, F.lit(each.missing))
        without = F.coalesce(without_raw(raw, each.column.stored), F.create_map().cast("map<string,string>"))
        raw = F.when(text.isNotNull(), F.map_concat(without, F.create_map(F.lit(each.column.stored), text))).otherwise(
            raw
        )
    return raw


def without_raw(raw: Expression, stored: str) -> Expression:
    """`_raw` without a column's text; NULL where nothing is left."""
    rest = F.map_filter(raw, lambda name, _: name != stored)
    return F.when(F.size(rest) > 0, rest)
