"""Effects of changes on keys: birth, new state or death, and the values of unchanged TOAST in them.

    insert                   birth
    update, key unchanged    new state
    update, key changed      death of the old key, birth of the new key
    delete                   death
    truncate                 death of every key that exists at its place

An effect is one row: the key (`keys`), lsn, ordinal, xid, time, born, died, `op` (the `_op` or `_end_op` of a version
that begins or ends here) and the change's `new`. If the tail has unchanged TOAST values, `f<position>` is the value of
that column, a struct of typed value and exact text, or NULL if the change does not contain it. The effects of a key are
ordered by (lsn, ordinal). If the tail has a TRUNCATE, `epoch` is the number of TRUNCATEs before the effect.

With open versions, the first row of a key may be its state in the history, at lsn `BEFORE`: neither born nor died, to
be removed from the result.

**Unchanged TOAST.** The server does not send a long value that an UPDATE did not change; `filled` fills it in. It is
the value that the row had before, from the nearest earlier effect of the same row that has it, at last from the open
version. A row is a *chain* of effects: its birth by INSERT (or its open version), new states, moves from key to key,
its death. Without key changes the effects of the key are enough: an INSERT has all values, so no value is taken from an
earlier row of the key.

With key changes the effects of a key are split into *lives*, from birth to death. A life that begins with a key change
continues the life that the same change ended under the old key; the first life in that sequence identifies the chain.

    k1: insert(a) ── update('u') ── moved away       lives: [insert … moved], chain 1
    k2:                             moved here('u')          [moved here … ], chain 1: 'u' is what k1 had
    k1:                                    insert(b)         [insert], chain 2

A value that no effect has stays NULL here; `fold` raises an error when it builds the version.

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html, "Update", "Delete", "TupleData"
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys, typing
from auditlake.apply.tails import TailShape
from auditlake.lake.history import type_of
from auditlake.relation import Column

BEFORE = 0
"""The lsn of an open version among effects; no commit has this LSN."""
FIRST_EPOCH = 0
"""Epoch of the effects before the first TRUNCATE of the tail."""

_NEVER_SENT = (
    "an UPDATE brought a row into the publication's row filter without its unchanged large value of column {}, "
    "which only REPLICA IDENTITY FULL sends"
)
_PLACE = ("lsn", "ordinal", "xid", "time")
_ROLES = ("born", "died", "op", "new")


def place_names(shape: TailShape) -> tuple[str, ...]:
    """Return the columns that locate a change in the tail, with its transaction."""
    return (*_PLACE, "epoch") if shape.has_truncate else _PLACE


def with_epochs(changes: DataFrame) -> DataFrame:
    """Add to every change of the tail the number of TRUNCATEs before it, in one ordered pass."""
    before = Window.orderBy("lsn", "ordinal").rowsBetween(Window.unboundedPreceding, -1)
    return changes.withColumn("epoch", F.count_if(F.col("op") == "truncate").over(before))


def effects_of(changes: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Return the effects of every change except TRUNCATE."""
    rows = changes.where(F.col("op") != "truncate") if shape.has_truncate else changes
    effect = F.explode(_effects(columns, shape)) if shape.has_key_change else _plain_effect(columns, shape)
    rows = rows.select(*place_names(shape), "old", "new", "unchanged", effect.alias("effect"))
    key = [F.col(f"effect.{name}") for name in keys.names(columns)]
    roles = [F.col(f"effect.{name}") for name in ("born", "died", "op")]
    new = F.when(~F.col("effect.died"), F.col("new")).alias("new")
    return rows.select(*key, *place_names(shape), *roles, new, *_sent_values(columns, shape.unchanged))


def open_rows(versions: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Return the open versions as effects before all others."""
    kinds = {"xid": "bigint", "time": "timestamp", "op": "string", "new": "array<string>"}
    values = {name: F.lit(None).cast(kind) for name, kind in kinds.items()}
    values |= {"lsn": F.lit(BEFORE).cast("bigint"), "ordinal": F.lit(-1), "born": F.lit(False), "died": F.lit(False)}
    values |= {"epoch": F.lit(FIRST_EPOCH).cast("bigint")}
    fixed = [values[name].alias(name) for name in (*place_names(shape), *_ROLES)]
    values_here = [_open_value(columns, position) for position in sorted(shape.unchanged)]
    return versions.select(*keys.from_history(columns), *fixed, *values_here)


def with_truncates(effects: DataFrame, changes: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Add a death at every TRUNCATE for the keys that exist there; `effects` must contain every open row."""
    here, cut = F.struct("lsn", "ordinal"), F.col("cut")
    following = F.lead(here).over(Window.partitionBy(*keys.names(columns)).orderBy("lsn", "ordinal"))
    rows = effects.withColumn("following", following).join(F.broadcast(_truncates(changes)), on="epoch", how="left")
    in_time = F.col("following").isNull() | (F.struct(cut["lsn"], cut["ordinal"]) < F.col("following"))
    cut_off = ~F.col("died") & cut.isNotNull() & in_time
    both = F.when(cut_off, F.array(F.lit(False), F.lit(True))).otherwise(F.array(F.lit(False)))
    rows = rows.withColumn("is_cut", F.explode(both))
    death = {name: cut[name] for name in _PLACE}
    death |= {"born": F.lit(False), "died": F.lit(True), "op": F.lit("truncate")}
    key = keys.names(columns)
    rest = [name for name in effects.columns if name not in {*key, "epoch"}]
    return rows.select(*key, *(F.when(F.col("is_cut"), death.get(n)).otherwise(F.col(n)).alias(n) for n in rest))


def _truncates(changes: DataFrame) -> DataFrame:
    """Return place, xid and time of every TRUNCATE as `cut`, by the `epoch` that it ends."""
    in_order = F.row_number().over(Window.orderBy("lsn", "ordinal"))
    truncates = changes.where(F.col("op") == "truncate").select(*_PLACE)
    return truncates.select((in_order - 1).cast("bigint").alias("epoch"), F.struct(*_PLACE).alias("cut"))


def _plain_effect(columns: Sequence[Column], shape: TailShape) -> Expression:
    op, old, new = F.col("op"), F.col("old"), F.col("new")

    def text(position: int) -> Expression:
        return F.when(op == "delete", old[position]).otherwise(_key_text(new, position, shape))

    return _effect(keys.from_text(columns, text), op == "insert", op == "delete", op)


def _effects(columns: Sequence[Column], shape: TailShape) -> Expression:
    op, old, new = F.col("op"), F.col("old"), F.col("new")
    key_before = keys.from_text(columns, lambda position: old[position])
    key_after = keys.from_text(columns, lambda position: _key_text(new, position, shape))
    yes, no = F.lit(True), F.lit(False)
    dies, born = _effect(key_before, no, yes, op), _effect(key_after, yes, no, op)
    moved = ~F.struct(*key_before).eqNullSafe(F.struct(*key_after))
    return (
        F.when(op == "insert", F.array(born))
        .when(op == "delete", F.array(dies))
        .when(F.when(old.isNotNull(), moved).otherwise(no), F.array(dies, born))
        .otherwise(F.array(_effect(key_after, no, no, op)))
    )


def _effect(key: list[Expression], born: Expression, died: Expression, op: Expression) -> Expression:
    return F.struct(*key, born.alias("born"), died.alias("died"), op.alias("op"))


def _key_text(new: Expression, position: int, shape: TailShape) -> Expression:
    if position not in shape.unchanged:
        return new[position]
    return F.when(is_unchanged(position), F.col("old")[position]).otherwise(new[position])


def is_unchanged(position: int) -> Expression:
    """Return whether the new tuple omits this value as unchanged TOAST."""
    flagged = F.array_contains(F.col("unchanged"), F.lit(position).cast("smallint"))
    return F.coalesce(flagged, F.lit(False))


def _sent_values(columns: Sequence[Column], positions: Iterable[int]) -> list[Expression]:
    """Return a change's own values of the columns that are unchanged TOAST in some change of the tail.

    A value that PostgreSQL stores out of line is never NULL, so a NULL in `old` means that the old tuple lacks it.
    """
    states = []
    for position in sorted(positions):
        old, new = F.col("old")[position], F.col("new")[position]
        # A value omitted here was never sent; an earlier row of this key has another row's value.
        unknown = F.raise_error(F.lit(_NEVER_SENT.format(columns[position].name)))
        value = F.when(old.isNotNull(), old).when(F.col("op") == "insert", unknown.cast("string"))
        sent = F.when(is_unchanged(position), F.when(value.isNotNull(), _pair(columns[position], value)))
        state = F.when(~F.col("effect.died"), sent.otherwise(_pair(columns[position], new)))
        states.append(state.alias(f"f{position}"))
    return states


def _open_value(columns: Sequence[Column], position: int) -> Expression:
    column = columns[position]
    raw = F.col("_raw")[column.stored] if type_of(column).may_not_fit else F.lit(None).cast("string")
    pair = F.struct(keys.source(column.stored).alias("value"), raw.alias("raw"))
    return pair.alias(f"f{position}")


def _pair(column: Column, text: Expression) -> Expression:
    return F.struct(typing.value(column, text).alias("value"), typing.raw(column, text).alias("raw"))


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
