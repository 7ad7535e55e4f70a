"""Write a folded tail into its history table: one Delta commit that also moves the table's position.

1. The commit holds the closes, the versions and the application transaction HISTORY_APP = the new position, or nothing.
2. `_part = 'open'` is a literal of the match, so closed history is neither read nor rewritten.
3. A close that finds no open version, or a birth that finds one, fails the job: the history and the log disagree.
4. Spark leaves out a write whose position the table already has; that another process wrote it is a LakeConflict.

Authority: docs.delta.io, "Idempotent writes" and "Upsert into a table using merge"
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from delta.exceptions import DeltaConcurrentModificationException
from delta.tables import DeltaTable
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys
from auditlake.apply.fold import Folded
from auditlake.apply.shape import TailShape
from auditlake.errors import LakeConflict
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, HistoryTable
from auditlake.lake.layout import HISTORY_APP
from auditlake.lsn import Lsn
from auditlake.relation import Column

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
"""Delta writes it after a commit of this session, and not after a write that it left out."""
_ENDS = ("_to_lsn", "_to_time", "_end_op", "_end_xid", "_part")


def merge(spark: SparkSession, table: HistoryTable, folded: Folded, shape: TailShape, upto: int) -> None:
    """Make `folded` part of the history and `upto` its position.

    `spark` must be used by no other thread meanwhile: the position travels in its settings.

    Raises LakeConflict if another process moved the table.
    """
    with _position_in_commit(spark, upto), _one_applier(spark, table):
        if shape.inserts_only:
            folded.versions.write.format("delta").mode("append").save(str(table.path))
        else:
            _merge(spark, table, folded)


def _merge(spark: SparkSession, table: HistoryTable, folded: Folded) -> None:
    rows = _tagged(folded.closes, "close").unionByName(_tagged(folded.versions, "version"), allowMissingColumns=True)
    is_open = F.col("t._part") == OPEN_PART
    is_close, is_version = F.col("s._kind") == "close", F.col("s._kind") == "version"
    (
        DeltaTable.forPath(spark, str(table.path))
        .alias("t")
        .merge(rows.alias("s"), is_open & is_close & keys.same(table.columns, "t", "s"))
        .whenMatchedUpdate(set={name: F.col(f"s.{name}") for name in _ENDS})
        .whenNotMatchedInsert(condition=is_version, values=_all_columns(table.columns))
        .whenNotMatchedInsert(values={"_from_lsn": _nothing_to_close(table)})
        .execute()
    )


def _tagged(rows: DataFrame, kind: str) -> DataFrame:
    return rows.withColumn("_kind", F.lit(kind))


def _all_columns(columns: Sequence[Column]) -> dict[str, str | Expression]:
    names = [*(column.name for column in columns), *(name for name, _ in PERIOD_COLUMNS)]
    return {keys.quoted(name): keys.source(name, "s") for name in names}


def _nothing_to_close(table: HistoryTable) -> Expression:
    message = f"history of {table.name} at {Lsn(table.position)} has no open version of a key that a change ends"
    return F.raise_error(F.lit(message)).cast("bigint")


@contextmanager
def _position_in_commit(spark: SparkSession, upto: int) -> Iterator[None]:
    spark.conf.set(_TXN_APP, HISTORY_APP)
    spark.conf.set(_TXN_VERSION, f"{upto:d}")
    spark.conf.unset(_LAST_COMMIT)
    try:
        yield
    finally:
        # Left behind, they would make Delta leave out the next write of this session.
        spark.conf.unset(_TXN_APP)
        spark.conf.unset(_TXN_VERSION)


@contextmanager
def _one_applier(spark: SparkSession, table: HistoryTable) -> Iterator[None]:
    try:
        yield
    except DeltaConcurrentModificationException as exc:
        raise _conflict(table) from exc
    if spark.conf.get(_LAST_COMMIT, None) is None:
        raise _conflict(table)


def _conflict(table: HistoryTable) -> LakeConflict:
    return LakeConflict(
        f"another process applies changes to {table.name}, from {Lsn(table.position)} on",
        hint="Stop the other `auditlake follow` or `auditlake apply` of this lake; starting again is then enough.",
    )
