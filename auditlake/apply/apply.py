"""The apply stage: move what capture made durable into the histories, one commit per table.

For every table with a tail: read its changes in (position, upto] → fold → merge, which moves the position in the same
commit. Nothing else is kept: killed anywhere, the next call finds the positions and goes on. A tail is bounded by the
watermark of the version of `changes` that it is read from, so half a transaction is never folded.

Where a tail brings columns that the history lacks, they are added in a commit of their own, NULL in every row, and the
merge that carries the new position gives the open versions what rows from before show in them. Killed between the two,
the position is still before the columns, so the next call finds the same tail: which columns it adds follows from
`changes` and `added` alone, and those that are there already are not added again. Meanwhile readers leave out columns
that are younger than the LSN they ask for, and lay the tail over the rest: added yet or not, they give the same rows.

A table without a tail gets no commit. Tables are independent; as many are worked on at a time as Spark has cores, at
least two, because the many small jobs of one MERGE leave half of even a small machine idle.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply.fold import Folded, fold
from auditlake.apply.merge import choose_plan, merge
from auditlake.apply.reshape import changes_in_shape, history_in_shape, only_while_there
from auditlake.apply.tails import FOLDED_OPS, Tail, find_tails, open_log
from auditlake.apply.wide import interpreted_if_wide
from auditlake.failpoints import After, reach
from auditlake.lake.conflicts import COMMIT_CONFLICTS
from auditlake.lake.history import OPEN_PART, HistoryTable, list_histories, open_history
from auditlake.lake.layout import Lake
from auditlake.lake.scan import find_files, read_rows
from auditlake.lake.session import PATHS_AS_THEY_ARE, read_version
from auditlake.lsn import Lsn
from auditlake.relation import TableName

# More plans at a time than these only take the driver's memory.
_MOST_PARALLEL = 8
_ATTEMPTS = 3
_CHANGES = (
    "lsn bigint, ordinal int, xid bigint, time timestamp, op string, `schema` string, `table` string, relation bigint, "
    "`old` array<string>, `new` array<string>, `unchanged` array<smallint>"
)


@dataclass(frozen=True, slots=True)
class Applied:
    """What one call did: changes folded per table, and the LSN up to which each table is now folded."""

    rows: Mapping[TableName, int]
    upto: Mapping[TableName, Lsn]


def apply_tail(
    spark: SparkSession, lake: Lake, upto: int | None = None, known: Mapping[TableName, Lsn] | None = None
) -> Applied:
    """Fold every table up to `upto`, at most the watermark.

    `known` is the `upto` of an earlier call: an idle table has no commit that says how far it was looked through, and
    without it the whole of `changes` above its position is looked through again.

    Raises Unsupported, after all other tables are done, where the columns of a table changed.
    """
    log = open_log(lake)
    tables = list(list_histories(lake))
    if log is None or not tables:
        return Applied({}, {})
    limit = log.watermark if upto is None else Lsn(min(upto, log.watermark))
    tails = find_tails(lake, log, _after(tables, known or {}), limit)
    _merge_all(spark, lake, tails)
    reached = {table.name: Lsn(max(limit, table.position)) for table in tables}
    return Applied({tail.table.name: tail.shape.rows for tail in tails if tail.shape}, reached)


def apply_table(spark: SparkSession, lake: Lake, table: HistoryTable, upto: int) -> int:
    """Fold one table up to `upto`, at most the watermark; return the number of changes."""
    log = open_log(lake)
    if log is None:
        return 0
    tails = find_tails(lake, log, {table: table.position}, Lsn(min(upto, log.watermark)))
    _merge_all(spark, lake, tails)
    return sum(tail.shape.rows for tail in tails if tail.shape)


def fold_tail(spark: SparkSession, tail: Tail) -> Folded | None:
    """Plan the fold of one tail; None where nothing of it can be folded."""
    if tail.shape is None:
        return None
    changes = changes_in_shape(_changes(spark, tail), tail)
    folded = fold(changes, lambda: history_in_shape(_open_versions(spark, tail.table), tail), tail.columns, tail.shape)
    return replace(folded, rows=only_while_there(folded.rows, tail.added), added=tail.added)


def _open_versions(spark: SparkSession, table: HistoryTable) -> DataFrame:
    if files := find_files(table):
        return read_rows(spark, files.of_part(OPEN_PART))
    return read_version(spark, str(table.path), table.delta_version).where(F.col("_part") == OPEN_PART)


def _changes(spark: SparkSession, tail: Tail) -> DataFrame:
    name = tail.table.name
    # `changes` is plain Parquet, and which files to open is known: its Delta log need not be loaded into the JVM.
    return (
        spark.read.schema(_CHANGES)
        .option(*PATHS_AS_THEY_ARE)
        .parquet(*tail.files.paths)
        .where(
            (F.struct("lsn") > _lsn(tail.table.position))
            & (F.struct("lsn") <= _lsn(tail.upto))
            & (F.col("schema") == name.schema)
            & (F.col("table") == name.table)
            & F.col("op").isin(*FOLDED_OPS)
        )
    )


def _lsn(lsn: int) -> Expression:
    """A literal that Spark hands to the code it compiles, instead of compiling it in: the next batch needs no other."""
    return F.struct(F.lit(int(lsn)).cast("bigint").alias("lsn"))  # py4j writes an Lsn as PostgreSQL does


def _after(tables: Iterable[HistoryTable], known: Mapping[TableName, Lsn]) -> dict[HistoryTable, int]:
    return {table: max(table.position, known.get(table.name, 0)) for table in tables}


def _merge_all(spark: SparkSession, lake: Lake, tails: list[Tail]) -> None:
    largest_first = sorted(tails, key=lambda tail: -(tail.shape.rows if tail.shape else 0))
    # The position of a commit travels in the session's settings, so what runs at one time has sessions of its own.
    sessions: SimpleQueue[SparkSession] = SimpleQueue()
    parallel = min(_MOST_PARALLEL, max(2, spark.sparkContext.defaultParallelism))
    for _ in range(parallel):
        sessions.put(spark.newSession())
    with ThreadPoolExecutor(parallel) as pool:
        done = [pool.submit(_merge_one, sessions, lake, tail) for tail in largest_first]
    failures = [failure for each in done if (failure := each.exception())]
    refusals = [tail.refusal for tail in tails if tail.refusal]
    for failure in [*failures, *refusals]:
        raise failure


def _merge_one(sessions: SimpleQueue[SparkSession], lake: Lake, tail: Tail) -> None:
    session = sessions.get()
    try:
        with interpreted_if_wide(session, len(tail.columns)):
            _merge_in(session, lake, tail, _ATTEMPTS)
    finally:
        sessions.put(session)


def _merge_in(session: SparkSession, lake: Lake, tail: Tail, attempts: int) -> None:
    folded = fold_tail(session, tail)
    if folded is None:
        return
    try:
        merge(tail, folded, choose_plan(tail))
    except COMMIT_CONFLICTS:  # files were joined meanwhile; the position is where it was
        if attempts == 1:
            raise
        for again in _found_again(lake, tail):
            _merge_in(session, lake, again, attempts - 1)
    else:
        reach(After.TABLE_MERGED)


def _found_again(lake: Lake, tail: Tail) -> list[Tail]:
    log, table = open_log(lake), open_history(lake, tail.table.name)
    return find_tails(lake, log, {table: table.position}, tail.upto) if log and table else []
