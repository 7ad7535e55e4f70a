"""Unchanged TOAST values: fill in the values that the server does not send because an UPDATE did not change them.

The value is the one that the row had before: it comes from the nearest earlier effect of the same row that has it, at
last from the open version. A row is a *chain* of effects: its birth by INSERT (or its open version), new states, moves
from key to key, its death. Without key changes the effects of the key are enough: an INSERT has all values, so no value
is taken from an earlier row of the key.

With key changes the effects of a key are split into *lives*, from birth to death. A life that begins with a key change
continues the life that the same change ended under the old key; the first life in that sequence identifies the chain.

    k1: insert(a) ── update('u') ── moved away       lives: [insert … moved], chain 1
    k2:                             moved here('u')          [moved here … ], chain 1: 'u' is what k1 had
    k1:                                    insert(b)         [insert], chain 2

A value that no effect has stays NULL here; `fold` raises an error when it builds the version.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys
from auditlake.apply.effects import BEFORE
from auditlake.apply.tails import TailShape
from auditlake.relation import Column


def filled(effects: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Fill in the `f` columns of every effect that is not a death."""
    if shape.has_key_change:
        effects = _with_chain(effects, columns)
        rows_of = Window.partitionBy("chain")
    else:
        rows_of = Window.partitionBy(*keys.names(columns))
    # A key change is a death and a birth at one place: the death sorts first, and has no values.
    until_here = rows_of.orderBy("lsn", "ordinal", F.desc("died")).rowsBetween(Window.unboundedPreceding, 0)
    values = {f"f{p}": F.last(f"f{p}", ignorenulls=True).over(until_here) for p in sorted(shape.unchanged)}
    return effects.withColumns(values).drop("chain")


def _with_chain(effects: DataFrame, columns: Sequence[Column]) -> DataFrame:
    lives = effects.withColumn("life", _life(columns))
    moved_away = lives.where(F.col("died") & (F.col("op") == "update"))
    links = moved_away.select("lsn", "ordinal", F.col("life.*"))
    roots = (
        links.groupBy()
        .applyInArrow(_roots, _ROOTS)
        .select(
            F.struct(
                F.col("lsn").alias("life_lsn"), F.col("ordinal").alias("life_ordinal"), F.lit(True).alias("life_born")
            ).alias("life"),
            F.struct("life_lsn", "life_ordinal", "life_born").alias("root"),
        )
    )
    chained = lives.join(roots, on="life", how="left")
    return chained.withColumn("chain", F.coalesce("root", "life")).drop("life", "root")


def _life(columns: Sequence[Column]) -> Expression:
    """Return the place of the birth, or else of the first change of an open version; `life_born` distinguishes them."""
    key = Window.partitionBy(*keys.names(columns))
    place = F.struct("lsn", "ordinal")
    until_here = key.orderBy("lsn", "ordinal").rowsBetween(Window.unboundedPreceding, 0)
    birth = F.last(F.when(F.col("born"), place), ignorenulls=True).over(until_here)
    first = F.min(F.when(F.col("lsn") > BEFORE, place)).over(key)
    start = F.coalesce(birth, first)
    return F.struct(
        start["lsn"].alias("life_lsn"), start["ordinal"].alias("life_ordinal"), birth.isNotNull().alias("life_born")
    )


_ROOTS = "lsn bigint, ordinal int, life_lsn bigint, life_ordinal int, life_born boolean"


def _roots(links: pa.Table) -> pa.Table:
    """Return the first life of the row that each key change moves: one pass, because a row moves forward only."""
    root: dict[tuple[int, int], tuple[int, int, bool]] = {}
    for lsn, ordinal, life_lsn, life_ordinal, life_born in sorted(_rows(links)):
        before = root.get((life_lsn, life_ordinal)) if life_born else None
        root[lsn, ordinal] = before or (life_lsn, life_ordinal, life_born)
    moves = [(*place, *life) for place, life in root.items()]
    return pa.table(dict(zip(links.column_names, zip(*moves, strict=True), strict=True)), schema=links.schema)


def _rows(links: pa.Table) -> Iterator[tuple[int, int, int, int, bool]]:
    return zip(*(column.to_pylist() for column in links.columns), strict=True)
