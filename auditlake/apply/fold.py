"""Fold: compute from a tail of one table's changes the net changes of its history. Pure: builds plans, runs no job.

fold() takes the changes with commit LSN in (position, upto] and the open versions at that position, and returns
1. `closes`: the open versions that end, with LSN and operation; at most one row per key;
2. `versions`: the versions that begin in the tail, still open or closed within it, as complete history rows.

Rules, per key and transaction, in the order of (lsn, ordinal); a *birth* is the effect that creates a row of the key, a
*death* the one that ends it (`effects`):
- all changes of a key in one transaction have one net result: a version if the key exists at its end, else none;
- a version ends at the next transaction that touches the key, so no period is empty;
- `_op` is the operation of the key's last birth in the transaction, `_end_op` that of its last death, else `update`;
- an open version ends in the first transaction that touches the key, unless its first effect there is a birth.

    tail of key 7 (open before)   lsn 10: update, update    lsn 20: delete, insert    lsn 30: delete
    closes                        _to_lsn 10, update
    versions                      [10, 20) update…delete    [20, 30) insert…delete

Limits: the caller removes logical messages and gap markers, which are not changes of a table, and passes changes with
the history's columns in its order (`tail_fold`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys, typing
from auditlake.apply import multiset as copies
from auditlake.apply.effects import BEFORE, effects_of, filled, open_rows, with_epochs, with_truncates
from auditlake.apply.tails import TailShape
from auditlake.errors import InvariantBroken
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, type_of
from auditlake.relation import Column
from auditlake.schema.evolution import AddedColumn

BROADCAST_ROWS = 500_000
_NOTHING = "cast(null as struct<lsn: bigint, time: timestamp, xid: bigint, end_op: string>)"
_NO_TEXT = "cast(null as string)"

ENDS = ("_to_lsn", "_to_time", "_end_op", "_end_xid", "_part")
"""Columns that change when a version is closed."""
_CLOSE_COLUMNS = ("_raw", *ENDS)


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
    """Result of a fold: `rows` have a history's columns and `_kind`; a close sets only key and end of its version."""

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
        return self.rows.where(F.col("_kind") == Kind.CLOSE).select(*key, *_CLOSE_COLUMNS)

    @property
    def versions(self) -> DataFrame:
        """Return the history rows that begin in the tail."""
        return self.rows.where(F.col("_kind") != Kind.CLOSE).drop("_kind")


def needs_open_versions(columns: Sequence[Column], shape: TailShape) -> bool:
    """Return whether `fold` needs the open versions; most tails do not."""
    if shape.inserts_only:
        return False
    return shape.has_truncate or not keys.key_of(columns) or bool(_omitted(shape))


def fold(changes: DataFrame, open_versions: DataFrame | None, columns: Sequence[Column], shape: TailShape) -> Folded:
    """Fold the changes; `open_versions` are the history's rows with `_part = 'open'` before them, if needed."""
    if open_versions is None and needs_open_versions(columns, shape):
        raise InvariantBroken("a tail was folded without the open versions that it needs")
    if shape.has_truncate:
        changes = with_epochs(changes)
    if not keys.key_of(columns):
        return _fold_copies(changes, open_versions, columns, shape)
    effects = effects_of(changes, columns, shape)
    if open_versions is not None:
        effects = _in_context(effects, changes, open_versions, columns, shape)
    return Folded(_rows(_net(effects, columns, shape), columns, shape), tuple(columns))


def _fold_copies(
    changes: DataFrame, open_versions: DataFrame | None, columns: Sequence[Column], shape: TailShape
) -> Folded:
    effects = copies.effects_of(changes, columns, shape)
    if open_versions is not None:
        before = copies.open_rows(open_versions, columns, shape)
        if not shape.has_truncate:
            before = _of_keys_in(before, effects, ["row"], shape)
        effects = copies.numbered(effects.unionByName(before), changes, columns, shape)
    whole = replace(shape, unchanged=frozenset())
    return Folded(_rows(_net(effects, columns, whole), columns, whole), tuple(columns))


def _in_context(
    effects: DataFrame, changes: DataFrame, open_versions: DataFrame, columns: Sequence[Column], shape: TailShape
) -> DataFrame:
    """Add the effects that depend on the open versions: keys that a TRUNCATE ends, and unchanged values."""
    before = open_rows(open_versions, columns, shape)
    if not shape.has_truncate:
        before = _of_keys_in(before, effects, keys.names(columns), shape)
    effects = effects.unionByName(before)
    if shape.has_truncate:
        effects = with_truncates(effects, changes, columns)
    if _omitted(shape):
        effects = filled(effects, columns, shape)
    return effects.where(F.col("lsn") > BEFORE)


def _omitted(shape: TailShape) -> frozenset[int]:
    """Return the columns whose unchanged TOAST values no change of the tail contains."""
    return frozenset() if shape.old_is_whole else shape.unchanged


def _of_keys_in(before: DataFrame, effects: DataFrame, key: Sequence[str], shape: TailShape) -> DataFrame:
    touched = effects.select(*key).distinct()
    if shape.rows <= BROADCAST_ROWS:
        touched = F.broadcast(touched)
    pairs = (F.col(f"b.{name}").eqNullSafe(F.col(f"t.{name}")) for name in key)
    condition = F.lit(True)
    for pair in pairs:
        condition = condition & pair
    return before.alias("b").join(touched.alias("t"), on=condition, how="left_semi")


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
    rows = net.withColumn("_kind", F.explode("kinds"))
    ends_before = F.col("_kind") == Kind.CLOSE
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
        "_raw": typing.raw_map(partial),
        "_part": F.coalesce(F.date_format(end_time, "yyyy-MM"), F.lit(OPEN_PART)),
    }
    if not keys.key_of(columns) and not shape.inserts_only:  # a close identifies the version it ends
        began = {"_from_lsn": F.col("began.lsn"), "_ordinal": F.col("began.ordinal")}
        period |= {name: F.when(ends_before, place).otherwise(period[name]) for name, place in began.items()}
    values = [F.col(f"v{p}").alias(column.stored) for p, column in enumerate(columns)]
    return rows.select(*values, *(period[name].alias(name) for name, _ in PERIOD_COLUMNS), "_kind")


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
        return typing.value(column, text), text
    state, begins = F.col(f"f{position}"), F.col("_kind") != Kind.CLOSE
    missing = F.raise_error(F.lit(f"an unchanged value of column {column.name} has no earlier version"))
    value = F.when(state.isNotNull(), state["value"]).otherwise(missing)
    return F.when(begins, value), F.when(begins, state["raw"])
