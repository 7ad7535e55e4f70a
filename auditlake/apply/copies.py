"""The rows of a table without a key: a multiset, whose equal rows are numbered. Row and number together are a key.

REPLICA IDENTITY FULL sends the whole row with every UPDATE and DELETE, but not which of several equal rows it was. They
cannot be told apart at the source either, so a rule tells them apart in the history: the youngest copy, by
(`_from_lsn`, `_ordinal`), goes first. Copies then are a stack, and one that is born and dies in one transaction leaves
no trace.

    open before: x#1, x#2          oldest first
    insert x                       x#3 is born
    delete x                       x#3 dies
    update x to y                  x#2 dies, y#1 is born
    update x to x                  x#1 is set anew
    truncate                       all die, and the next copy of a row is its first

The rule looks at nothing but the order of changes, so wherever batches end, the history is the same.

A row is the exact text of all its values, NULL being equal to NULL. It is compared as a digest, `row`; `copy` is its
number. `began` says which open version a copy was before the tail: no two versions of a table without a key have the
same `_from_lsn` and `_ordinal`, because a change bears one row at most and a snapshot numbers its rows.

Authority: postgresql.org/docs/current/logical-replication-publication.html, "Replica Identity"
"""

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys, typing
from auditlake.apply.effects import BEFORE, FIRST_EPOCH, is_unchanged, place_names, with_truncates
from auditlake.apply.shape import TailShape
from auditlake.lake.history import type_of
from auditlake.relation import Column

_BEGAN = "struct<lsn: bigint, ordinal: int>"


def effects_of(changes: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Say what every change but TRUNCATE does to which row; which copy of it is not known yet."""
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
    """The open versions as effects before all others, in the columns of `effects_of`."""
    parts = []
    for column in columns:
        raw = typing.raw_of(column, F.col("_raw"))
        parts.append(_spelled(column, keys.source(column.stored), raw))
    kinds = {"xid": "bigint", "time": "timestamp", "op": "string", "new": "array<string>"}
    epoch = [F.lit(FIRST_EPOCH).cast("bigint").alias("epoch")] if shape.has_truncate else []
    nothing = {name: F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()}
    return versions.select(
        _digest(parts).alias("row"),
        F.lit(False).alias("born"),
        F.lit(False).alias("died"),
        F.lit(BEFORE).cast("bigint").alias("lsn"),
        F.lit(-1).alias("ordinal"),
        *epoch,
        *nothing.values(),
        F.struct(F.col("_from_lsn").alias("lsn"), F.col("_ordinal").alias("ordinal")).alias("began"),
    )


def numbered(effects: DataFrame, changes: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Give every effect its copy, and every copy what it was before the tail; without the open rows themselves.

    `effects` must hold the open versions of every row that is in it, of all rows where the tail has a TRUNCATE. An
    effect on a copy that is not there fails the job.
    """
    stack = ("row", "epoch") if shape.has_truncate else ("row",)
    until_here = Window.partitionBy(*stack).orderBy("lsn", "ordinal", "began")
    adds = F.col("born") | (F.col("lsn") == BEFORE)
    depth = F.sum(adds.cast("int") - F.col("died").cast("int"))
    copy = depth.over(until_here.rowsBetween(Window.unboundedPreceding, 0)) + F.col("died").cast("int")
    not_there = F.raise_error(F.lit("a row ends of which no copy is open")).cast("bigint")
    effects = effects.withColumn("copy", F.when(copy >= 1, copy).otherwise(not_there))
    if shape.has_truncate:
        effects = with_truncates(effects, changes, columns)
    began = F.max("began").over(Window.partitionBy(*keys.names(columns)))
    return effects.withColumn("began", began).where(F.col("lsn") > BEFORE)


def _effect(row: Expression, born: Expression, died: Expression) -> Expression:
    return F.struct(row.alias("row"), born.alias("born"), died.alias("died"))


def _filled(columns: Sequence[Column], shape: TailShape) -> Expression:
    """The new tuple, with unchanged TOAST values from the old one, which holds them all under FULL."""
    if not shape.unchanged:
        return F.col("new")
    texts = []
    for position, column in enumerate(columns):
        text = F.col("new")[position]
        if position in shape.unchanged:
            missing = F.raise_error(F.lit(f"an unchanged value of column {column.name} is not in the old tuple"))
            known = F.coalesce(F.col("old")[position], missing.cast("string"))
            text = F.when(is_unchanged(position), known).otherwise(text)
        texts.append(text)
    return F.array(*texts)


def _digest_of_texts(columns: Sequence[Column], tuple_name: str) -> Expression:
    parts = []
    for position, column in enumerate(columns):
        text = F.col(tuple_name)[position]
        parts.append(_spelled(column, typing.value(column, text), typing.raw(column, text)))
    return _digest(parts)


def _spelled(column: Column, value: Expression, raw: Expression) -> Expression:
    """One value so that no two different ones, nor two rows of them, read the same."""
    is_raw = F.when(raw.isNotNull(), F.concat(F.lit("r"), typing.delimited(raw)))
    return F.coalesce(is_raw, typing.delimited(typing.spelled(type_of(column), value)))


def _digest(parts: Sequence[Expression]) -> Expression:
    return F.sha2(F.concat(*parts), 256)
