"""A table's versions and its state at a commit LSN: the history, with the tail that is not merged yet laid over it.

    position >= L    history at its pinned Delta version, filtered; no fold is planned
    position <  L    history ⊕ fold of the changes in (position, L]

A history at one Delta version is exactly the fold up to its position, so both give the same rows, and the answer does
not depend on how far apply has come. Plans only; what runs is the caller's action.
"""

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply.apply import fold_tail, read_version
from auditlake.apply.overlay import overlay
from auditlake.apply.tails import find_tails, open_log
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, HistoryTable
from auditlake.lsn import Lsn
from auditlake.query.bounds import Bounds, bounds
from auditlake.query.moments import Known, check_horizon, check_known, resolve
from auditlake.query.period import AllTime, AsOf, Period
from auditlake.query.when import When

_SHOWN = tuple(name for name, _ in PERIOD_COLUMNS if name != "_part")


def read_period(spark: SparkSession, known: Known, table: HistoryTable, period: Period) -> DataFrame:
    """Read what one FOR SYSTEM_TIME clause asks: source columns, and for a stretch of time the period's columns too.

    Raises NotAnswerable.
    """
    match period:
        case AsOf(when):
            return state_as_of(spark, known, table, resolve(known, when), when)
        case AllTime():
            return _shown(versions(spark, known, table, known.now_lsn), table)
        case _:
            limits = bounds(known, table, period)
            rows = versions(spark, known, table, known.now_lsn)
            return _shown(rows.where(F.lit(False) if limits is None else _within(limits)), table)


def state_as_of(
    spark: SparkSession, known: Known, table: HistoryTable, lsn: Lsn, when: When | None = None
) -> DataFrame:
    """Read a table as it was after the commit at `lsn`, in its source's columns; `when` is what resolved to `lsn`.

    Raises NotAnswerable.
    """
    check_horizon(table, lsn, when)
    check_known(known, table, lsn)
    history = _history(spark, table)
    if lsn >= table.position:  # every closed version ended at or before the position
        history = history.where(F.col("_part") == OPEN_PART)
    rows = _overlaid(spark, known, table, history, lsn)
    holds = (F.col("_from_lsn") <= int(lsn)) & (F.col("_to_lsn").isNull() | (F.col("_to_lsn") > int(lsn)))
    return rows.where(holds).select(*_source_columns(table))


def versions(spark: SparkSession, known: Known, table: HistoryTable, upto: Lsn) -> DataFrame:
    """Read every version of a table as history tables hold them, with all that is known up to `upto`."""
    return _overlaid(spark, known, table, _history(spark, table), upto)


def _overlaid(spark: SparkSession, known: Known, table: HistoryTable, history: DataFrame, upto: Lsn) -> DataFrame:
    last = known.changes_up_to(upto)
    log = open_log(known.lake) if last > table.position else None
    if log is None:
        return history
    for tail in find_tails(known.lake, log, {table: table.position}, last):
        if tail.refusal is not None:
            raise tail.refusal
        folded = fold_tail(spark, known.lake, tail)
        if folded is not None:
            return overlay(history, folded, table.columns)
    return history


def _history(spark: SparkSession, table: HistoryTable) -> DataFrame:
    return read_version(spark, str(table.path), table.delta_version)


def _within(limits: Bounds) -> Expression:
    condition = F.lit(True)
    if limits.from_above is not None:
        condition &= F.col("_from_lsn") > int(limits.from_above)
    if limits.from_up_to is not None:
        condition &= F.col("_from_lsn") <= int(limits.from_up_to)
    if limits.open_after is not None:
        condition &= F.col("_to_lsn").isNull() | (F.col("_to_lsn") > int(limits.open_after))
    if limits.to_up_to is not None:
        condition &= F.col("_to_lsn") <= int(limits.to_up_to)
    return condition


def _shown(rows: DataFrame, table: HistoryTable) -> DataFrame:
    return rows.select(*_source_columns(table), *_SHOWN)


def _source_columns(table: HistoryTable) -> list[Expression]:
    return [F.col("`" + column.name.replace("`", "``") + "`") for column in table.columns]
