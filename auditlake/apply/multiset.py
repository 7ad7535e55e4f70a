"""Multiset fold: of a table without a key, whose equal rows are numbered; row and number form a key for `fold`.

REPLICA IDENTITY FULL sends the complete row with every UPDATE and DELETE, but not which of several equal rows it was.
The source does not distinguish them either, so the history uses a rule: the youngest copy, by (`_from_lsn`,
`_ordinal`), ends first. Copies are thus a stack, and a copy that is born and dies in one transaction has no version.

    open before: x#1, x#2          oldest first
    insert x                       birth of x#3
    delete x                       death of x#3
    update x to y                  death of x#2, birth of y#1
    update x to x                  new state of x#1
    truncate                       death of all; the next copy of a row is number 1

The rule depends only on the order of changes, so the history does not depend on batch boundaries.

Rows are equal if the exact texts of all values are, with NULL equal to NULL. They are compared by a digest, `row`;
`copy` is the number. `began` identifies the open version of a copy before the tail: no two versions of a table without
a key have the same `_from_lsn` and `_ordinal`, because a change creates at most one row and the snapshot numbers its
rows.

Authority: postgresql.org/docs/current/logical-replication-publication.html, "Replica Identity"
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys, typed_values
from auditlake.apply.fold import (
    BEFORE,
    FIRST_EPOCH,
    Folded,
    is_unchanged,
    net_versions,
    of_keys_in,
    place_names,
    prepared,
    with_truncates,
)
from auditlake.apply.tails import TailShape
from auditlake.lake.history import type_of
from auditlake.relation import Column

_BEGAN = "struct<lsn: bigint, ordinal: int>"


def fold(changes: DataFrame, open_versions: DataFrame | None, columns: Sequence[Column], shape: TailShape) -> Folded:
    """Fold the changes of a table without a key, as `fold.fold` does for one with a key."""
    changes = prepared(changes, open_versions, columns, shape)
    effects = effects_of(changes, columns, shape)
    if open_versions is not None:
        before = open_rows(open_versions, columns, shape)
        if not shape.has_truncate:
            before = of_keys_in(before, effects, ["row"], shape)
        effects = numbered(effects.unionByName(before), changes, columns, shape)
    return net_versions(effects, columns, replace(shape, unchanged=frozenset()))


def effects_of(changes: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Return the effects of every change except TRUNCATE on its row; `numbered` adds the copy."""
    op = F.col("op")
    rows = changes.where(op != "truncate").withColumn("new", F.when(op != "delete", _filled(columns, shape)))
    gone = F.when(op != "insert", _digest_of_texts(columns, "old"))
    here = F.when(op != "delete", _digest_of_texts(columns, "new"))
    place = place_names(shape)
    rows = rows.select(*place, "op", "new", gone.alias("gone"), here.alias("here"))
    yes, no = F.lit(True), F.lit(False)
    dies, born = _effect(F.col("gone"), no, yes), _effect(F.col("here"), yes, no)
    effects = (
        F.when(op == "insert", F.array(born))
        .when(op == "delete", F.array(dies))
        .when(F.col("gone") == F.col("here"), F.array(_effect(F.col("here"), no, no)))
        .otherwise(F.array(dies, born))
    )
    rows = rows.select(*place, "op", "new", F.explode(effects).alias("effect"))
    roles = [F.col(f"effect.{name}") for name in ("row", "born", "died")]
    new = F.when(~F.col("effect.died"), F.col("new")).alias("new")
    return rows.select(*roles, *place, "op", new, F.lit(None).cast(_BEGAN).alias("began"))


def open_rows(versions: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Return the open versions as effects before all others, with the columns of `effects_of`."""
    kinds = {"xid": "bigint", "time": "timestamp", "op": "string", "new": "array<string>"}
    epoch = [F.lit(FIRST_EPOCH).cast("bigint").alias("epoch")] if shape.has_truncate else []
    nothing = {name: F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()}
    return versions.select(
        row_digest(columns).alias("row"),
        F.lit(False).alias("born"),
        F.lit(False).alias("died"),
        F.lit(BEFORE).cast("bigint").alias("lsn"),
        F.lit(-1).alias("ordinal"),
        *epoch,
        *nothing.values(),
        F.struct(F.col("_from_lsn").alias("lsn"), F.col("_ordinal").alias("ordinal")).alias("began"),
    )


def row_digest(columns: Sequence[Column]) -> Expression:
    """Return a digest of a history row's values: two rows have the same if the exact texts of all values are equal."""
    raws = [typed_values.raw_of(column, F.col("_raw")) for column in columns]
    return _digest([_distinct_text(c, keys.source(c.stored), raw) for c, raw in zip(columns, raws, strict=True)])


def numbered(effects: DataFrame, changes: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Add to every effect its copy and the open version of that copy, and remove the open versions themselves.

    `effects` must contain the open versions of every row in it, or of all rows if the tail has a TRUNCATE. An effect on
    a copy that does not exist fails the job.
    """
    stack = ("row", "epoch") if shape.has_truncate else ("row",)
    until_here = Window.partitionBy(*stack).orderBy("lsn", "ordinal", "began")
    adds = F.col("born") | (F.col("lsn") == BEFORE)
    depth = F.sum(adds.cast("int") - F.col("died").cast("int"))
    copy = depth.over(until_here.rowsBetween(Window.unboundedPreceding, 0)) + F.col("died").cast("int")
    missing = F.raise_error(F.lit("a row ends that has no open copy")).cast("bigint")
    effects = effects.withColumn("copy", F.when(copy >= 1, copy).otherwise(missing))
    if shape.has_truncate:
        effects = with_truncates(effects, changes, columns)
    began = F.max("began").over(Window.partitionBy(*keys.names(columns)))
    return effects.withColumn("began", began).where(F.col("lsn") > BEFORE)


def _effect(row: Expression, born: Expression, died: Expression) -> Expression:
    return F.struct(row.alias("row"), born.alias("born"), died.alias("died"))


def _filled(columns: Sequence[Column], shape: TailShape) -> Expression:
    """Return the new tuple with unchanged TOAST values from the old one, which has all values under FULL."""
    if not shape.unchanged:
        return F.col("new")
    texts = []
    for position, column in enumerate(columns):
        text = F.col("new")[position]
        if position in shape.unchanged:
            missing = F.raise_error(F.lit(f"an unchanged value of column {column.name} is not in the old tuple"))
            old_text = F.coalesce(F.col("old")[position], missing.cast("string"))
            text = F.when(is_unchanged(position), old_text).otherwise(text)
        texts.append(text)
    return F.array(*texts)


def _digest_of_texts(columns: Sequence[Column], tuple_name: str) -> Expression:
    parts = []
    for position, column in enumerate(columns):
        text = F.col(tuple_name)[position]
        parts.append(_distinct_text(column, typed_values.value(column, text), typed_values.raw(column, text)))
    return _digest(parts)


def _distinct_text(column: Column, value: Expression, raw: Expression) -> Expression:
    """Return a text of a value that differs for different values, alone and concatenated with others."""
    is_raw = F.when(raw.isNotNull(), F.concat(F.lit("r"), typed_values.delimited(raw)))
    return F.coalesce(is_raw, typed_values.delimited(typed_values.distinct_text(type_of(column), value)))


def _digest(parts: Sequence[Expression]) -> Expression:
    return F.sha2(F.concat(*parts), 256)
