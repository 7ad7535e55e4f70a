"""What each change does to each key: it is born, it is set anew, or it dies.

    insert                   born
    update, key unchanged    set
    update, key changed      the old key dies, the new key is born
    delete                   dies
    truncate                 every key alive at that place dies

One row per effect: the key (see `keys`), lsn, ordinal, xid, time, born, died, `op` (what a version that begins or ends
here will say), the change's `new` and, where the tail has unchanged TOAST values, `f<position>`: what is known of that
column here, a struct of typed value and exact text, or NULL where nothing is. A key's effects are in the order of
(lsn, ordinal). Where the tail has a TRUNCATE, `epoch` is how many of them came before.

With open versions a key's first row may be its state in the history, at `BEFORE`: neither born nor died, to be left out
of the result.

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html, "Update", "Delete", "TupleData"
"""

from collections.abc import Iterable, Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys, typing
from auditlake.apply.shape import TailShape
from auditlake.lake.history import type_of
from auditlake.relation import Column

BEFORE = 0
"""The lsn of an open version among effects: no commit has it."""
FIRST_EPOCH = 0
"""The epoch of what comes before every TRUNCATE of the tail."""

_NEVER_SENT = (
    "an UPDATE brought a row into the publication's row filter without its unchanged large value of column {}, "
    "which only REPLICA IDENTITY FULL sends"
)
_PLACE = ("lsn", "ordinal", "xid", "time")
_ROLES = ("born", "died", "op", "new")


def place_names(shape: TailShape) -> tuple[str, ...]:
    """The columns that say where a change is in the tail, and whose it is."""
    return (*_PLACE, "epoch") if shape.has_truncate else _PLACE


def with_epochs(changes: DataFrame) -> DataFrame:
    """Add to every change of the tail, in one pass in order, how many TRUNCATEs come before it."""
    before = Window.orderBy("lsn", "ordinal").rowsBetween(Window.unboundedPreceding, -1)
    return changes.withColumn("epoch", F.count_if(F.col("op") == "truncate").over(before))


def effects_of(changes: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Say what every change but TRUNCATE does to which key."""
    rows = changes.where(F.col("op") != "truncate") if shape.has_truncate else changes
    effect = F.explode(_effects(columns, shape)) if shape.has_key_change else _plain_effect(columns, shape)
    rows = rows.select(*place_names(shape), "old", "new", "unchanged", effect.alias("effect"))
    key = [F.col(f"effect.{name}") for name in keys.names(columns)]
    roles = [F.col(f"effect.{name}") for name in ("born", "died", "op")]
    new = F.when(~F.col("effect.died"), F.col("new")).alias("new")
    return rows.select(*key, *place_names(shape), *roles, new, *_known_texts(columns, shape.unchanged))


def open_rows(versions: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """The open versions as effects before all others."""
    kinds = {"xid": "bigint", "time": "timestamp", "op": "string", "new": "array<string>"}
    values = {name: F.lit(None).cast(kind) for name, kind in kinds.items()}
    values |= {"lsn": F.lit(BEFORE).cast("bigint"), "ordinal": F.lit(-1), "born": F.lit(False), "died": F.lit(False)}
    values |= {"epoch": F.lit(FIRST_EPOCH).cast("bigint")}
    fixed = [values[name].alias(name) for name in (*place_names(shape), *_ROLES)]
    known = [_known_version(columns, position) for position in sorted(shape.unchanged)]
    return versions.select(*keys.from_history(columns), *fixed, *known)


def with_truncates(effects: DataFrame, changes: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Add a death at every TRUNCATE to the keys alive there; `effects` must hold every open row."""
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
    """Place, xid and time of every TRUNCATE as `cut`, by the `epoch` that it ends."""
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
    """Whether the new tuple leaves this value out as unchanged TOAST."""
    flagged = F.array_contains(F.col("unchanged"), F.lit(position).cast("smallint"))
    return F.coalesce(flagged, F.lit(False))


def _known_texts(columns: Sequence[Column], positions: Iterable[int]) -> list[Expression]:
    """What a change itself says of the columns that are unchanged TOAST somewhere in the tail.

    A value that PostgreSQL keeps out of line is never NULL: a NULL in `old` says that the old tuple did not carry it.
    """
    known = []
    for position in sorted(positions):
        old, new = F.col("old")[position], F.col("new")[position]
        # What such an UPDATE leaves out was never sent, and must not be taken from an earlier row of this key.
        unknown = F.raise_error(F.lit(_NEVER_SENT.format(columns[position].name)))
        value = F.when(old.isNotNull(), old).when(F.col("op") == "insert", unknown.cast("string"))
        given = F.when(is_unchanged(position), F.when(value.isNotNull(), _pair(columns[position], value)))
        state = F.when(~F.col("effect.died"), given.otherwise(_pair(columns[position], new)))
        known.append(state.alias(f"f{position}"))
    return known


def _known_version(columns: Sequence[Column], position: int) -> Expression:
    column = columns[position]
    raw = F.col("_raw")[column.stored] if type_of(column).may_not_fit else F.lit(None).cast("string")
    pair = F.struct(keys.source(column.stored).alias("value"), raw.alias("raw"))
    return pair.alias(f"f{position}")


def _pair(column: Column, text: Expression) -> Expression:
    return F.struct(typing.value(column, text).alias("value"), typing.raw(column, text).alias("raw"))
