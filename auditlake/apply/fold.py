"""Fold in Spark: run the stages of `fold.net` over the changes of a tail. Pure: builds plans, runs no job.

The payload of an effect is the change's `new`, and for each column that some change omits as unchanged TOAST a struct
`f<position>` of typed value and exact text, NULL if the change does not have it. `mapInArrow` in their place, with the
typing in Arrow, took 5 times as long: 86 s instead of 16 s for two million changes of TPC-H's lineitem (2026-11-24, on
a machine with a load of 5). So Spark types keys and values itself, before and after the stages.

Rows of a table without a key are compared by a digest of the exact texts of all values (`row_digest`).

The caller removes logical messages and gap markers, which are not changes of a table, and passes changes with the
history's columns in its order (`tail_fold`).
"""

from __future__ import annotations  # types of Spark are imported for mypy only

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from auditlake.apply import keys, typed_values
from auditlake.apply.tails import TailShape
from auditlake.errors import InvariantBroken
from auditlake.fold.chains import ROOTS_DDL, roots
from auditlake.fold.net import BEFORE, ENDS, KIND, PLACE, Executor, FoldColumns, RowKind
from auditlake.fold.open_versions import BEGIN, key_of
from auditlake.lake.history import PERIOD_COLUMNS, type_of
from auditlake.relation import Column
from auditlake.schema.evolution import AddedColumn
from auditlake.spark import functions as F  # noqa: N812 - the usual name

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

BROADCAST_ROWS = 500_000
_NEVER_SENT = (
    "an UPDATE brought a row into the publication's row filter without its unchanged large value of column {}, "
    "which only REPLICA IDENTITY FULL sends"
)
_CLOSE_COLUMNS = ("_raw", *ENDS)
_FIRST_EPOCH = 0


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

        A table without a key has the columns that identify a version (`open_versions.BEGIN`) in its place.
        """
        key = [keys.source(column.stored) for column in key_of(self.columns)] or [F.col(n) for n in BEGIN]
        return self.rows.where(keys.source(KIND) == RowKind.CLOSE).select(*key, *_CLOSE_COLUMNS)

    @property
    def versions(self) -> DataFrame:
        """Return the history rows that begin in the tail."""
        return self.rows.where(keys.source(KIND) != RowKind.CLOSE).drop(KIND)


def needs_open_versions(columns: Sequence[Column], shape: TailShape) -> bool:
    """Return whether `fold` needs the open versions; most tails do not."""
    if shape.inserts_only:
        return False
    return shape.has_truncate or not key_of(columns) or _lacks_values(shape)


def fold(changes: DataFrame, open_versions: DataFrame | None, columns: Sequence[Column], shape: TailShape) -> Folded:
    """Fold the changes; `open_versions` are the history's rows with `_part = 'open'` before them, if needed."""
    if open_versions is None and needs_open_versions(columns, shape):
        raise InvariantBroken("a tail was folded without the open versions that it needs")
    net = _net(changes, open_versions, columns, shape)
    return Folded(_rows(net, columns, shape), tuple(columns))


def _net(changes: DataFrame, open_versions: DataFrame | None, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Return the net rows, with `new` and `f<position>` of the change that has their values."""
    sent = tuple(f"f{position}" for position in _omitted(columns, shape))
    form = FoldColumns(Executor.SPARK, tuple(keys.names(columns)), ("new",), sent, has_truncate=shape.has_truncate)
    changes = _with_epochs(changes) if shape.has_truncate else changes
    changed = _changed(changes, columns, shape)
    if shape.inserts_only:
        return _run(form.stage("inserted", "{changed}"), changed=changed)
    form = form if form.key else replace(form, key=("row_id", "copy"), numbers_copies=True)
    effects = _run(form.effects("{changed}", may_move=shape.has_key_change), changed=changed)
    if open_versions is not None:
        opened = _open_rows(open_versions, columns, form)
        if not shape.has_truncate:
            opened = _of_keys_in(opened, effects, ["row_id"] if form.numbers_copies else form.key, shape)
        effects = effects.unionByName(opened)
    if form.numbers_copies:
        effects = _run(form.stage("numbered", "{effects}"), effects=effects)
    if shape.has_truncate:
        truncates = F.broadcast(_truncates(changes))
        form, sql = form.after_truncates("{effects}", "{truncates}")
        effects = _run(sql, effects=effects, truncates=truncates)
    if form.sent and not shape.old_is_whole:
        form, effects = _filled(form, effects, may_move=shape.has_key_change)
    return _run(form.net_rows("{effects}"), effects=effects)


def _run(sql: str, **relations: DataFrame) -> DataFrame:
    """Return the result of SQL in which the relations are named in braces."""
    named: dict[str, Any] = {**relations}
    return next(iter(relations.values())).sparkSession.sql(sql, **named)


def _omitted(columns: Sequence[Column], shape: TailShape) -> list[int]:
    """Return the columns that some change omits; whole rows without a key are completed before (`_whole_new`)."""
    return sorted(shape.unchanged) if key_of(columns) else []


def _lacks_values(shape: TailShape) -> bool:
    """Return whether an unchanged TOAST value may be in no part of a change."""
    return bool(shape.unchanged) and not shape.old_is_whole


def _of_keys_in(opened: DataFrame, effects: DataFrame, key: Sequence[str], shape: TailShape) -> DataFrame:
    """Return the open versions whose key has an effect."""
    touched = effects.select(*key).distinct()
    if shape.rows <= BROADCAST_ROWS:
        touched = F.broadcast(touched)
    condition = F.lit(True)
    for name in key:
        condition = condition & F.col(f"o.{name}").eqNullSafe(F.col(f"t.{name}"))
    return opened.alias("o").join(touched.alias("t"), on=condition, how="left_semi")


def _with_epochs(changes: DataFrame) -> DataFrame:
    """Add to every change of the tail the number of TRUNCATEs before it, in one ordered pass."""
    from pyspark.sql import Window  # noqa: PLC0415 - as `spark.functions`

    before = Window.orderBy("lsn", "ordinal").rowsBetween(Window.unboundedPreceding, -1)
    return changes.withColumn("epoch", F.count_if(F.col("op") == "truncate").over(before))


def _truncates(changes: DataFrame) -> DataFrame:
    """Return place, xid and time of every TRUNCATE, by the epoch that it ends."""
    from pyspark.sql import Window  # noqa: PLC0415 - the same

    in_order = F.row_number().over(Window.orderBy("lsn", "ordinal"))
    truncates = changes.where(F.col("op") == "truncate").select(*PLACE)
    return truncates.withColumn("truncate_epoch", (in_order - 1).cast("bigint"))


def _changed(changes: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Return every change except TRUNCATE as `fold.net` takes it."""
    rows = changes.where(F.col("op") != "truncate") if shape.has_truncate else changes
    if not key_of(columns):
        rows = rows.withColumn("new", F.when(F.col("op") != "delete", _whole_new(columns, shape)))
    epoch = ["epoch"] if shape.has_truncate else []
    return rows.select(
        *PLACE,
        *epoch,
        "op",
        F.col("old").isNotNull().alias("had_old"),
        *_identities(columns, shape),
        "new",
        *_sent_values(columns, _omitted(columns, shape)),
    )


def _identities(columns: Sequence[Column], shape: TailShape) -> list[Expression]:
    """Return the key after each change and before it; in a table without a key, the digest of the row."""
    op, old, new = F.col("op"), F.col("old"), F.col("new")
    is_delete = op == "delete"
    had_before = (is_delete | ((op == "update") & old.isNotNull())) if shape.has_key_change else is_delete
    if not key_of(columns):
        if shape.inserts_only:
            return []
        after, before = _digest_of_texts(columns, "new"), _digest_of_texts(columns, "old")
        return [
            F.when(~is_delete, after).alias("a_row_id"),
            F.when(is_delete | (op == "update"), before).alias("b_row_id"),
        ]
    after_key = keys.from_text(columns, lambda position: _text_after(new, position, shape), ~is_delete, "a_")
    if shape.inserts_only:
        return after_key
    return after_key + keys.from_text(columns, lambda position: old[position], had_before, "b_")


def _text_after(new: Expression, position: int, shape: TailShape) -> Expression:
    if position not in shape.unchanged:
        return new[position]
    return F.when(_is_unchanged(position), F.col("old")[position]).otherwise(new[position])


def _is_unchanged(position: int) -> Expression:
    """Return whether the new tuple omits this value as unchanged TOAST."""
    flagged = F.array_contains(F.col("unchanged"), F.lit(position).cast("smallint"))
    return F.coalesce(flagged, F.lit(False))


def _open_rows(versions: DataFrame, columns: Sequence[Column], form: FoldColumns) -> DataFrame:
    """Return the open versions as effects before all others."""
    kinds = {"xid": "bigint", "time": "timestamp", "op": "string", "new": "array<string>"}
    values = {name: F.lit(None).cast(kind) for name, kind in kinds.items()}
    values |= {"lsn": F.lit(BEFORE).cast("bigint"), "ordinal": F.lit(-1), "born": F.lit(False), "died": F.lit(False)}
    values |= {"epoch": F.lit(_FIRST_EPOCH).cast("bigint")} if form.has_truncate else {}
    if form.numbers_copies:
        key = [row_digest(columns).alias("row_id")]
        values |= {"began_lsn": F.col("_from_lsn"), "began_ordinal": F.col("_ordinal")}
    else:
        key = keys.from_history(columns)
    fixed = [value.alias(name) for name, value in values.items()]
    return versions.select(*key, *fixed, *(_open_value(columns, int(name[1:])) for name in form.sent))


def _sent_values(columns: Sequence[Column], positions: Iterable[int]) -> list[Expression]:
    """Return a change's own values of the columns that are unchanged TOAST in some change of the tail.

    A value that PostgreSQL stores out of line is never NULL, so a NULL in `old` means that the old tuple lacks it.
    """
    states = []
    for position in positions:
        old, new = F.col("old")[position], F.col("new")[position]
        # A value omitted here was never sent; an earlier row of this key has another row's value.
        unknown = F.raise_error(F.lit(_NEVER_SENT.format(columns[position].name)))
        value = F.when(old.isNotNull(), old).when(F.col("op") == "insert", unknown.cast("string"))
        sent = F.when(_is_unchanged(position), F.when(value.isNotNull(), _pair(columns[position], value)))
        state = F.when(F.col("op") != "delete", sent.otherwise(_pair(columns[position], new)))
        states.append(state.alias(f"f{position}"))
    return states


def _open_value(columns: Sequence[Column], position: int) -> Expression:
    column = columns[position]
    raw = F.col("_raw")[column.stored] if type_of(column).may_not_fit else F.lit(None).cast("string")
    pair = F.struct(keys.source(column.stored).alias("value"), raw.alias("raw"))
    return pair.alias(f"f{position}")


def _pair(column: Column, text: Expression) -> Expression:
    return F.struct(typed_values.typed_value(column, text).alias("value"), typed_values.raw(column, text).alias("raw"))


def _filled(form: FoldColumns, effects: DataFrame, *, may_move: bool) -> tuple[FoldColumns, DataFrame]:
    """Return the effects with the last sent values of their row."""
    if may_move:
        lives = _run(form.stage("lives", "{effects}"), effects=effects)
        moves = _run(form.stage("moves", "{lives}"), lives=lives)
        form, sql = form.along_chains("{lives}", "{roots}")
        effects = _run(sql, lives=lives, roots=moves.groupBy().applyInArrow(roots, ROOTS_DDL))
    form, sql = form.filled("{effects}")
    return form, _run(sql, effects=effects)


def _whole_new(columns: Sequence[Column], shape: TailShape) -> Expression:
    """Return the new tuple with unchanged TOAST values from the old one, which has all values under FULL."""
    if not shape.unchanged:
        return F.col("new")
    texts = []
    for position, column in enumerate(columns):
        text = F.col("new")[position]
        if position in shape.unchanged:
            missing = F.raise_error(F.lit(f"an unchanged value of column {column.name} is not in the old tuple"))
            old_text = F.coalesce(F.col("old")[position], missing.cast("string"))
            text = F.when(_is_unchanged(position), old_text).otherwise(text)
        texts.append(text)
    return F.array(*texts)


def row_digest(columns: Sequence[Column]) -> Expression:
    """Return a digest of a history row's values: two rows have the same if the exact texts of all values are equal."""
    raws = [typed_values.raw_of(column, F.col("_raw")) for column in columns]
    return _digest([_distinct_text(c, keys.source(c.stored), raw) for c, raw in zip(columns, raws, strict=True)])


def _digest_of_texts(columns: Sequence[Column], tuple_name: str) -> Expression:
    parts = []
    for position, column in enumerate(columns):
        text = F.col(tuple_name)[position]
        parts.append(_distinct_text(column, typed_values.typed_value(column, text), typed_values.raw(column, text)))
    return _digest(parts)


def _distinct_text(column: Column, value: Expression, raw: Expression) -> Expression:
    """Return a text of a value that differs for different values, alone and concatenated with others."""
    is_raw = F.when(raw.isNotNull(), F.concat(F.lit("r"), typed_values.delimited(raw)))
    return F.coalesce(is_raw, typed_values.delimited(typed_values.distinct_text(type_of(column), value)))


def _digest(parts: Sequence[Expression]) -> Expression:
    return F.sha2(F.concat(*parts), 256)


def _rows(net: DataFrame, columns: Sequence[Column], shape: TailShape) -> DataFrame:
    """Return the net rows as rows of the history."""
    states = _states(columns, shape)
    rows = net.withColumns({f"v{position}": value for position, (value, _) in enumerate(states)})
    partial = {c.stored: (F.col(f"v{p}"), states[p][1]) for p, c in enumerate(columns) if type_of(c).may_not_fit}
    values = [F.col(f"v{p}").alias(column.stored) for p, column in enumerate(columns)]
    period = [typed_values.raw_entries(partial).alias(n) if n == "_raw" else F.col(n) for n, _ in PERIOD_COLUMNS]
    return rows.select(*values, *period, F.col("kind").alias(KIND))


def _states(columns: Sequence[Column], shape: TailShape) -> list[tuple[Expression, Expression]]:
    """Return the typed value of each column, and its exact text if the typed value is NULL.

    The typed values get a projection of their own, `v<position>`. Otherwise Spark would parse a text again in every
    conditional branch of a projection, such as `_raw`'s, and generate a method too long for the JVM to compile. The
    texts get none: carrying them in every row costs more than reading them for the rows that need one.
    """
    key, omitted = iter(keys.pairs(columns)), _omitted(columns, shape)
    return [next(key) if column.key else _state(column, p, omitted) for p, column in enumerate(columns)]


def _state(column: Column, position: int, omitted: Collection[int]) -> tuple[Expression, Expression]:
    """Return the typed value, and the exact text if the typed value is NULL."""
    if position not in omitted:
        text = F.col("new")[position]
        return typed_values.typed_value(column, text), text
    state, begins = F.col(f"f{position}"), F.col("kind") != RowKind.CLOSE
    missing = F.raise_error(F.lit(f"an unchanged value of column {column.name} has no earlier version"))
    value = F.when(state.isNotNull(), state["value"]).otherwise(missing)
    return F.when(begins, value), F.when(begins, state["raw"])
