"""Fill in the TOAST values that an UPDATE did not send because it did not change them.

The value is the one the row had before, so it is looked for where the row was: in the nearest earlier effect of the
same row that knows it, down to the open version. A row is its *chain* of effects: born by INSERT (or open before the
tail), set, moved from key to key, until it dies. Without key changes the key's own effects in order are enough: what is
born by INSERT knows all its values, so nothing is taken from the row that had the key before.

With key changes a key's effects are cut into *lives* (from birth to death). A life born by a key change continues the
life that the same change ended under the old key; following that to the first life names the chain.

    k1: insert(a) ── update('u') ── moved away       lives: [insert … moved], chain 1
    k2:                             moved here('u')          [moved here … ], chain 1: 'u' is what k1 had
    k1:                                    insert(b)         [insert], chain 2

Does not judge: what stays unknown is NULL here, and an error where the version is built.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys
from auditlake.apply.effects import BEFORE
from auditlake.apply.shape import TailShape
from auditlake.relation import Column


def filled(effects: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Give every effect that does not end a row the values of its `f` columns."""
    if shape.has_key_change:
        effects = _with_chain(effects, columns)
        rows_of = Window.partitionBy("chain")
    else:
        rows_of = Window.partitionBy(*keys.names(columns))
    # A key change is a death and a birth at one place: the death is looked at first, though it knows nothing.
    until_here = rows_of.orderBy("lsn", "ordinal", F.desc("died")).rowsBetween(Window.unboundedPreceding, 0)
    known = {f"f{p}": F.last(f"f{p}", ignorenulls=True).over(until_here) for p in sorted(shape.unchanged)}
    return effects.withColumns(known).drop("chain")


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
    """The place of the birth, or of the first change of a row that was open before; `life_born` tells which."""
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
    """For every key change, the first life of the row it moved: one pass, because a row moves forward only."""
    root: dict[tuple[int, int], tuple[int, int, bool]] = {}
    for lsn, ordinal, life_lsn, life_ordinal, life_born in sorted(_rows(links)):
        before = root.get((life_lsn, life_ordinal)) if life_born else None
        root[lsn, ordinal] = before or (life_lsn, life_ordinal, life_born)
    found = [(*place, *life) for place, life in root.items()]
    return pa.table(dict(zip(links.column_names, zip(*found, strict=True), strict=True)), schema=links.schema)


def _rows(links: pa.Table) -> Iterator[tuple[int, int, int, int, bool]]:
    return zip(*(column.to_pylist() for column in links.columns), strict=True)
