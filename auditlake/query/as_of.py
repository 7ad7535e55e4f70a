"""As-of reads: plan a table's state at an LSN, or its versions, in Spark.

A history at one Delta version is exactly the fold of all changes up to its position P. So for a state at L:

    L <= P    versions of the history that are valid at L; no fold
    L >  P    history overlaid with the fold of the changes in (P, L]

Both plans return the same rows, so an answer does not depend on how far apply has come. A state has the columns that
the table had at L, under its names of that moment; versions have every column it ever had. Files that statistics rule
out are not read. Nothing is executed here; the caller's action runs the plan.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply.fold import Folded
from auditlake.apply.large_rows import find_too_large, heap_bytes
from auditlake.apply.tail_fold import fold_tail, overlay, overlay_open
from auditlake.apply.tails import Tail
from auditlake.apply.windows import WINDOW_BYTES
from auditlake.delta.data_files import DataFile
from auditlake.errors import NotAnswerable
from auditlake.lake.history import OPEN_PART, STORED_PERIOD, HistoryTable, type_of
from auditlake.lake.history_files import Files, find_files, is_open
from auditlake.lake.history_rows import read_rows
from auditlake.lsn import Lsn
from auditlake.query.pending_tail import Tails
from auditlake.query.spark_values import documents_of, shown
from auditlake.query.system_time import Selection, State, Versions, within_bounds
from auditlake.relation import Column
from auditlake.spark.planning import read_version
from auditlake.temporal.as_of_predicate import as_of_sql, of_state, some_as_of

# `read_rows` joins deletion vectors by file name and row index; for millions of marked rows Delta's reader is faster.
_MARKED_ROWS = 1_000_000
_PARTITION_BYTES = 32 << 20
_IS_OPEN = f"_part = '{OPEN_PART}'"


def read_selection(spark: SparkSession, table: HistoryTable, selection: Selection, tails: Tails) -> DataFrame:
    """Plan a selection: the source's columns, of versions the period, too; raises NotAnswerable for a row too large."""
    tail = tails.of(table, selection)
    columns, names = tails.columns_shown(table, selection)
    if tail is not None and (found := find_too_large(tails.known.lake, tail, heap_bytes(spark))):
        raise NotAnswerable(f"asked for {table.label} as of {tail.upto}: {found.reason}", found.remedy)
    match selection:
        case State(lsn, raw):
            rows = _state(spark, table, lsn, tail)
            return _as_shown(spark, rows, columns, names, ["_raw"] if raw else [])
        case Versions(bounds):
            rows = _versions(spark, table, tail).where("false" if bounds is None else within_bounds(bounds))
            return _as_shown(spark, rows, columns, names, STORED_PERIOD)
        case _:
            assert_never(selection)


def _fold(spark: SparkSession, tail: Tail) -> Folded | None:
    """Fold a tail; a large one into many partitions, because answers are fetched a partition at a time into memory."""
    folded = fold_tail(spark, tail)
    if folded is None or tail.held_bytes <= WINDOW_BYTES:
        return folded
    return replace(folded, rows=folded.rows.repartition(-(-tail.held_bytes // _PARTITION_BYTES)))


def _versions(spark: SparkSession, table: HistoryTable, tail: Tail | None) -> DataFrame:
    rows = _rows(spark, table, find_files(table), lambda _: True)
    return rows if tail is None else overlay(rows, _fold(spark, tail), tail)


def _state(spark: SparkSession, table: HistoryTable, lsn: Lsn, tail: Tail | None) -> DataFrame:
    if lsn < table.position:
        return _state_in_history(spark, table, lsn)
    # At the position or later: every closed version has ended and every open one has begun.
    rows = _rows(spark, table, find_files(table), is_open).where(_IS_OPEN)
    return rows if tail is None else overlay_open(rows, _fold(spark, tail), tail).where(as_of_sql(lsn))


def _state_in_history(spark: SparkSession, table: HistoryTable, lsn: Lsn) -> DataFrame:
    """Return the versions valid at `lsn`, which is before the table's position.

    If statistics show that every version of a file is valid, its LSN columns are not read: all distinct, they cost more
    than typical user columns.
    """
    found = find_files(table)
    if found is None or _is_much_marked(found):
        return _rows(spark, table, found, lambda file: some_as_of(file, lsn)).where(as_of_sql(lsn))
    files = of_state(found, lsn, table.position)
    rows = read_rows(spark, files.partly).where(as_of_sql(lsn))
    return read_rows(spark, files.whole).unionByName(rows) if files.whole.by_name else rows


def _rows(
    spark: SparkSession, table: HistoryTable, found: Files | None, wanted: Callable[[DataFile], bool]
) -> DataFrame:
    """Return the rows of the wanted files; rows of other files may or may not be among them."""
    if found is None:
        return _through_delta(spark, table)
    if not _is_much_marked(found):
        return read_rows(spark, found.which(wanted))
    # Closed versions never change, so only files of the open partition have deletion vectors.
    opened = _through_delta(spark, table).where(_IS_OPEN)
    return read_rows(spark, found.which(lambda file: wanted(file) and not is_open(file))).unionByName(opened)


def _is_much_marked(files: Files) -> bool:
    return files.which(lambda file: file.is_marked).rows > _MARKED_ROWS


def _through_delta(spark: SparkSession, table: HistoryTable) -> DataFrame:
    return read_version(spark, str(table.path), table.delta_version)


def _as_shown(
    spark: SparkSession, rows: DataFrame, columns: Sequence[Column], names: Mapping[str, str], others: Sequence[str]
) -> DataFrame:
    """Return columns, by stored name, under the names of the moment, and others as they are."""
    documents = documents_of(spark, columns)
    if "_raw" in others and any(type_of(c).may_not_fit and names.get(c.stored) != c.stored for c in columns):
        rows = rows.withColumn("_raw", _raw_under(names))
    source = [shown(column.stored, documents, names[column.stored]) for column in columns]
    return rows.selectExpr(*source, *(shown(name, documents) for name in others))


def _raw_under(names: Mapping[str, str]) -> Expression:
    """Return `_raw` with the entries of these columns under their names of the moment."""
    texts = {name: F.col("_raw")[stored] for stored, name in names.items()}
    entries = (F.when(text.isNotNull(), F.struct(F.lit(name), text)) for name, text in texts.items())
    kept = F.map_from_entries(F.array_compact(F.array(*entries)))
    return F.when(F.size(kept) > 0, kept)
