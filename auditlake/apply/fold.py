"""Fold a tail of changes of one table into what changes in its history. Pure: builds plans, runs nothing.

fold() takes the changes with commit LSN in (position, upto] and the open versions at that position, and says
1. `closes`: which open versions end, when and how: at most one row per key;
2. `versions`: the versions that begin in the tail, open or already ended inside it, as whole history rows.

Its rules are the design's, "Rules of the fold". Per key and transaction, in the order of (lsn, ordinal):
- whatever happens to a key in one transaction has one net result: a version if the key is alive at its end, else none;
- a version ends where the next transaction touches the key, so no period is empty;
- `_op` is that of the transaction's last birth of the key, `_end_op` that of its last death; without one, `update`;
- an open version ends in the first transaction whose first effect on the key is not a birth.

    tail of key 7 (open before)   lsn 10: update, update    lsn 20: delete, insert    lsn 30: delete
    closes                        _to_lsn 10, update
    versions                      [10, 20) update…delete    [20, 30) insert…delete

Not done here: messages and gaps are no changes of a table, and relations must have the history's columns in its order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys, typing
from auditlake.apply.effects import BEFORE, effects_of, open_rows, with_truncates
from auditlake.apply.shape import TailShape
from auditlake.apply.unchanged import filled
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS
from auditlake.relation import Column

_BROADCAST_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class Folded:
    """`closes` have the key, `_raw` (of the key alone), `_to_lsn`, `_to_time`, `_end_op`, `_end_xid`, `_part`."""

    closes: DataFrame
    versions: DataFrame


def fold(changes: DataFrame, open_versions: DataFrame, columns: Sequence[Column], shape: TailShape) -> Folded:
    """Say what the changes do to the history; `open_versions` are its rows with `_part = 'open'` before them."""
    effects = effects_of(changes, columns, shape)
    if not shape.inserts_only:
        effects = _in_context(effects, changes, open_versions, columns, shape)
    net = _net(effects, columns, shape)
    return Folded(closes=_closes(net, columns), versions=_versions(net, columns, shape))


def _in_context(
    effects: DataFrame, changes: DataFrame, open_versions: DataFrame, columns: Sequence[Column], shape: TailShape
) -> DataFrame:
    """Add what only the open versions tell: which keys a TRUNCATE ends, and unchanged values."""
    wanted = frozenset() if shape.old_is_whole else shape.unchanged
    if not (shape.has_truncate or wanted):
        return effects
    before = open_rows(open_versions, columns, shape.unchanged)
    if not shape.has_truncate:
        before = _of_keys_in(before, effects, columns, shape)
    effects = effects.unionByName(before)
    if shape.has_truncate:
        effects = with_truncates(effects, changes, columns)
    if wanted:
        effects = filled(effects, columns, shape)
    return effects.where(F.col("lsn") > BEFORE)


def _of_keys_in(before: DataFrame, effects: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    touched = effects.select(*keys.names(columns)).distinct()
    if shape.rows <= _BROADCAST_ROWS:
        touched = F.broadcast(touched)
    pairs = (F.col(f"b.{name}").eqNullSafe(F.col(f"t.{name}")) for name in keys.names(columns))
    condition = F.lit(True)
    for pair in pairs:
        condition = condition & pair
    return before.alias("b").join(touched.alias("t"), on=condition, how="left_semi")


def _net(effects: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """One row per key and transaction: its last effect, and `until`: what ends the state it leaves."""
    if shape.inserts_only:
        return effects.withColumns({"begin_op": F.lit("insert"), "until": _nothing(), "ends_open": F.lit(False)})
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
    return last.withColumns(
        {
            "until": F.lead(F.struct("lsn", "time", "xid", "end_op")).over(by_transaction),
            "ends_open": is_first & ~F.col("from_nothing"),
        }
    )


def _last_op(role: str, in_transaction: object) -> Expression:
    op = F.last(F.when(F.col(role), F.col("op")), ignorenulls=True).over(in_transaction)  # type: ignore[arg-type]
    return F.coalesce(op, F.lit("update"))


def _nothing() -> Expression:
    return F.lit(None).cast("struct<lsn: bigint, time: timestamp, xid: bigint, end_op: string>")


def _closes(net: DataFrame, columns: Sequence[Column]) -> DataFrame:
    end_op = F.col("end_op") if "end_op" in net.columns else F.lit("update")
    return net.where("ends_open").select(
        *keys.to_history(columns),
        F.col("lsn").alias("_to_lsn"),
        F.col("time").alias("_to_time"),
        end_op.alias("_end_op"),
        F.col("xid").alias("_end_xid"),
        _month(F.col("time")).alias("_part"),
    )


def _versions(net: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    pairs = [_state(column, position, shape) for position, column in enumerate(columns)]
    period = {
        "_from_lsn": F.col("lsn"),
        "_to_lsn": F.col("until.lsn"),
        "_from_time": F.col("time"),
        "_to_time": F.col("until.time"),
        "_op": F.col("begin_op"),
        "_end_op": F.col("until.end_op"),
        "_xid": F.col("xid"),
        "_end_xid": F.col("until.xid"),
        "_ordinal": F.col("ordinal"),
        "_raw": typing.raw_map(columns, [raw for _, raw in pairs]),
        "_part": F.coalesce(_month(F.col("until.time")), F.lit(OPEN_PART)),
    }
    values = [value.alias(column.name) for column, (value, _) in zip(columns, pairs, strict=True)]
    return net.where(~F.col("died")).select(*values, *(period[name].alias(name) for name, _ in PERIOD_COLUMNS))


def _state(column: Column, position: int, shape: TailShape) -> tuple[Expression, Expression]:
    if position not in shape.unchanged:
        text = F.col("new")[position]
        return typing.value(column, text), typing.raw(column, text)
    known = F.col(f"f{position}")
    missing = F.raise_error(F.lit(f"an unchanged value of column {column.name} has no earlier version"))
    return F.when(known.isNotNull(), known["value"]).otherwise(missing), known["raw"]


def _month(time: Expression) -> Expression:
    return F.date_format(time, "yyyy-MM")
