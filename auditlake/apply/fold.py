"""Fold: compute from a tail of one table's changes the net changes of its history. Pure: builds plans, runs no job.

fold() takes the changes with commit LSN in (position, upto] and the open versions at that position, and returns
1. `closes`: the open versions that end, with LSN and operation; at most one row per key;
2. `versions`: the versions that begin in the tail, still open or closed within it, as complete history rows.

Rules, per key and transaction, in the order of (lsn, ordinal); a *birth* is the effect that creates a row of the key, a
*death* the one that ends it:
- all changes of a key in one transaction have one net result: a version if the key exists at its end, else none;
- a version ends at the next transaction that touches the key, so no period is empty;
- `_op` is the operation of the key's last birth in the transaction, `_end_op` that of its last death, else `update`;
- an open version ends in the first transaction that touches the key, unless its first effect there is a birth.

    tail of key 7 (open before)   lsn 10: update, update    lsn 20: delete, insert    lsn 30: delete
    closes                        _to_lsn 10, update
    versions                      [10, 20) update…delete    [20, 30) insert…delete

**Effects.** Each change has one or two effects on keys:

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

A value that no effect has is an error when the version is built.

Limits: a table without a key is folded by `multiset`, which shares the rules and numbers equal rows. The caller
removes logical messages and gap markers, which are not changes of a table, and passes changes with the history's
columns in its order (`tail_fold`).

Authority: postgresql.org/docs/current/protocol-logicalrep-message-formats.html, "Update", "Delete", "TupleData"
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys, typed_values
from auditlake.apply.tails import TailShape
from auditlake.errors import InvariantBroken
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, type_of
from auditlake.relation import Column
from auditlake.schema.evolution import AddedColumn

BROADCAST_ROWS = 500_000
BEFORE = 0
"""The lsn of an open version among effects; no commit has this LSN."""
FIRST_EPOCH = 0
"""Epoch of the effects before the first TRUNCATE of the tail."""

_NOTHING = "cast(null as struct<lsn: bigint, time: timestamp, xid: bigint, end_op: string>)"
_NO_TEXT = "cast(null as string)"
_NEVER_SENT = (
    "an UPDATE brought a row into the publication's row filter without its unchanged large value of column {}, "
    "which only REPLICA IDENTITY FULL sends"
)
_PLACE = ("lsn", "ordinal", "xid", "time")
_ROLES = ("born", "died", "op", "new")

ENDS = ("_to_lsn", "_to_time", "_end_op", "_end_xid", "_part")
"""Columns that change when a version is closed."""
_CLOSE_COLUMNS = ("_raw", *ENDS)


KIND = "~5fkind"
"""Column of the kind of a row; no column of a history has this name, an escape without need (`lake.column_names`)."""


class Kind(StrEnum):
    """Kind of a row in `Folded.rows`."""

    CLOSE = "close"
    """The open version of this key ends."""
    BIRTH = "birth"
    """A version begins; no version of this key was open before the tail."""
    VERSION = "version"
    """A version begins."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Result of a fold: `rows` have a history's columns and KIND; a close sets only key and end of its version."""

    rows: DataFrame
    columns: tuple[Column, ...]
    added: tuple[AddedColumn, ...] = ()
    """Those of `columns` that were added in the tail: every open version gets their missing values."""

    @property
    def closes(self) -> DataFrame:
        """Return key columns, `_raw` (of the key only), `_to_lsn`, `_to_time`, `_end_op`, `_end_xid`, `_part`.

        A table without a key has the columns that identify a version (`keys.BEGIN`) in its place.
        """
        key = [keys.source(column.stored) for column in keys.key_of(self.columns)] or [F.col(n) for n in keys.BEGIN]
        return self.rows.where(keys.source(KIND) == Kind.CLOSE).select(*key, *_CLOSE_COLUMNS)

    @property
    def versions(self) -> DataFrame:
        """Return the history rows that begin in the tail."""
        return self.rows.where(keys.source(KIND) != Kind.CLOSE).drop(KIND)


def needs_open_versions(columns: Sequence[Column], shape: TailShape) -> bool:
    """Return whether `fold` needs the open versions; most tails do not."""
    if shape.inserts_only:
        return False
    return shape.has_truncate or not keys.key_of(columns) or bool(_omitted(shape))


def fold(changes: DataFrame, open_versions: DataFrame | None, columns: Sequence[Column], shape: TailShape) -> Folded:
    """Fold the changes; `open_versions` are the history's rows with `_part = 'open'` before them, if needed."""
    changes = prepared(changes, open_versions, columns, shape)
    effects = effects_of(changes, columns, shape)
    if open_versions is not None:
        effects = _in_context(effects, changes, open_versions, columns, shape)
    return net_versions(effects, columns, shape)


def prepared(
    changes: DataFrame, open_versions: DataFrame | None, columns: Sequence[Column], shape: TailShape
) -> DataFrame:
    """Return the changes as `effects_of` takes them; require the open versions if the fold needs them."""
    if open_versions is None and needs_open_versions(columns, shape):
        raise InvariantBroken("a tail was folded without the open versions that it needs")
    return _with_epochs(changes) if shape.has_truncate else changes


def net_versions(effects: DataFrame, columns: Sequence[Column], shape: TailShape) -> Folded:
    """Fold effects, without the open versions among them, into net changes of the history."""
    return Folded(_rows(_net(effects, columns, shape), columns, shape), tuple(columns))


def _in_context(
    effects: DataFrame, changes: DataFrame, open_versions: DataFrame, columns: Sequence[Column], shape: TailShape
) -> DataFrame:
    """Add the effects that depend on the open versions: keys that a TRUNCATE ends, and unchanged values."""
    before = open_rows(open_versions, columns, shape)
    if not shape.has_truncate:
        before = of_keys_in(before, effects, keys.names(columns), shape)
    effects = effects.unionByName(before)
    if shape.has_truncate:
        effects = with_truncates(effects, changes, columns)
    if _omitted(shape):
        effects = filled(effects, columns, shape)
    return effects.where(F.col("lsn") > BEFORE)


def _omitted(shape: TailShape) -> frozenset[int]:
    """Return the columns whose unchanged TOAST values no change of the tail contains."""
    return frozenset() if shape.old_is_whole else shape.unchanged


def of_keys_in(before: DataFrame, effects: DataFrame, key: Sequence[str], shape: TailShape) -> DataFrame:
    """Return the open versions whose key has an effect."""
    touched = effects.select(*key).distinct()
    if shape.rows <= BROADCAST_ROWS:
        touched = F.broadcast(touched)
    pairs = (F.col(f"b.{name}").eqNullSafe(F.col(f"t.{name}")) for name in key)
    condition = F.lit(True)
    for pair in pairs:
        condition = condition & pair
    return before.alias("b").join(touched.alias("t"), on=condition, how="left_semi")


def place_names(shape: TailShape) -> tuple[str, ...]:
    """Return the columns that locate a change in the tail, with its transaction."""
    return (*_PLACE, "epoch") if shape.has_truncate else _PLACE


def _with_epochs(changes: DataFrame) -> DataFrame:
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
    return F.struct(typed_values.value(column, text).alias("value"), typed_values.raw(column, text).alias("raw"))


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
    for lsn, ordinal, life_lsn, life_ordinal, life_born in sorted(_link_rows(links)):
        before = root.get((life_lsn, life_ordinal)) if life_born else None
        root[lsn, ordinal] = before or (life_lsn, life_ordinal, life_born)
    moves = [(*place, *life) for place, life in root.items()]
    return pa.table(dict(zip(links.column_names, zip(*moves, strict=True), strict=True)), schema=links.schema)


def _link_rows(links: pa.Table) -> Iterator[tuple[int, int, int, int, bool]]:
    return zip(*(column.to_pylist() for column in links.columns), strict=True)


def _net(effects: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Return one row per key and transaction: its last effect, `until` (the effect that ends its state) and `kinds`."""
    if shape.inserts_only:
        born = {"begin_op": "'insert'", "end_op": _NO_TEXT, "until": _NOTHING, "kinds": f"array('{Kind.BIRTH}')"}
        return effects.selectExpr("*", *(f"{value} as {name}" for name, value in born.items()))
    key = keys.names(columns)
    by_key = Window.partitionBy(*key).orderBy("lsn", "ordinal")
    in_transaction = Window.partitionBy(*key, "lsn").orderBy("ordinal")
    marked = effects.withColumns(
        {
            "following_lsn": F.lead("lsn").over(by_key),
            "begin_op": _last_op("born", in_transaction),
            "end_op": _last_op("died", in_transaction),
            "from_nothing": F.first("born").over(in_transaction),
        }
    )
    last = marked.where(F.col("following_lsn").isNull() | (F.col("following_lsn") != F.col("lsn")))
    by_transaction = Window.partitionBy(*key).orderBy("lsn")
    is_first = F.lag("lsn").over(by_transaction).isNull()
    until = F.lead(F.struct("lsn", "time", "xid", "end_op")).over(by_transaction)
    return last.withColumns({"is_first": is_first, "until": until}).withColumn("kinds", _kinds())


def _last_op(role: str, in_transaction: WindowSpec) -> Expression:
    op = F.last(F.when(F.col(role), F.col("op")), ignorenulls=True).over(in_transaction)
    return F.coalesce(op, F.lit("update"))


def _kinds() -> Expression:
    from_nothing = F.col("is_first") & F.col("from_nothing")
    close = F.when(F.col("is_first") & ~F.col("from_nothing"), F.lit(Kind.CLOSE))
    begin = F.when(~F.col("died"), F.when(from_nothing, F.lit(Kind.BIRTH)).otherwise(F.lit(Kind.VERSION)))
    return F.array_compact(F.array(close, begin))


def _rows(net: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    rows = net.withColumn(KIND, F.explode("kinds"))
    ends_before = keys.source(KIND) == Kind.CLOSE
    if shape.inserts_only:
        ends_before = F.lit(False)
    else:
        rows = rows.withColumn("new", F.when(~ends_before, F.col("new")))
    states = _states(columns, shape)
    rows = rows.withColumns({f"v{position}": value for position, (value, _) in enumerate(states)})
    partial = {c.stored: (F.col(f"v{p}"), states[p][1]) for p, c in enumerate(columns) if type_of(c).may_not_fit}

    def of_end(here: str, later: str) -> Expression:
        return F.when(ends_before, F.col(here)).otherwise(F.col(f"until.{later}"))

    end_time = of_end("time", "time")
    period = {
        "_from_lsn": F.col("lsn"),
        "_to_lsn": of_end("lsn", "lsn"),
        "_from_time": F.col("time"),
        "_to_time": end_time,
        "_op": F.col("begin_op"),
        "_end_op": of_end("end_op", "end_op"),
        "_xid": F.col("xid"),
        "_end_xid": of_end("xid", "xid"),
        "_ordinal": F.col("ordinal"),
        "_raw": typed_values.raw_map(partial),
        "_part": F.coalesce(F.date_format(end_time, "yyyy-MM"), F.lit(OPEN_PART)),
    }
    if not keys.key_of(columns) and not shape.inserts_only:  # a close identifies the version it ends
        began = {"_from_lsn": F.col("began.lsn"), "_ordinal": F.col("began.ordinal")}
        period |= {name: F.when(ends_before, place).otherwise(period[name]) for name, place in began.items()}
    values = [F.col(f"v{p}").alias(column.stored) for p, column in enumerate(columns)]
    return rows.select(*values, *(period[name].alias(name) for name, _ in PERIOD_COLUMNS), keys.source(KIND))


def _states(columns: Sequence[Column], shape: TailShape) -> list[tuple[Expression, Expression]]:
    """Return the typed value of each column, and its exact text if the typed value is NULL.

    The typed values get a projection of their own, `v<position>`. Otherwise Spark would parse a text again in every
    conditional branch of a projection, such as `_raw`'s, and generate a method too long for the JVM to compile. The
    texts get none: carrying them in every row costs more than reading them for the rows that need one.
    """
    key = iter(keys.pairs(columns))
    return [next(key) if column.key else _state(column, p, shape) for p, column in enumerate(columns)]


def _state(column: Column, position: int, shape: TailShape) -> tuple[Expression, Expression]:
    """Return the typed value, and the exact text if the typed value is NULL."""
    if position not in shape.unchanged:
        text = F.col("new")[position]
        return typed_values.value(column, text), text
    state, begins = F.col(f"f{position}"), keys.source(KIND) != Kind.CLOSE
    missing = F.raise_error(F.lit(f"an unchanged value of column {column.name} has no earlier version"))
    value = F.when(state.isNotNull(), state["value"]).otherwise(missing)
    return F.when(begins, value), F.when(begins, state["raw"])
