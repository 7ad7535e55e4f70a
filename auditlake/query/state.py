"""A table's versions and its state at a commit LSN: the history, with the tail that is not merged yet laid over it.

    position >= L    history at its pinned Delta version, filtered; no fold is planned
    position <  L    history ⊕ fold of the changes in (position, L]

A history at one Delta version is exactly the fold up to its position, so both give the same rows, and the answer does
not depend on how far apply has come. A state shows the columns that the table had there, versions show all that it ever
had. Plans only; what runs is the caller's action.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

from pyspark.sql import DataFrame, SparkSession

from auditlake.apply.apply import fold_tail
from auditlake.apply.overlay import overlay, overlay_open
from auditlake.apply.reshape import history_in_shape, only_while_there
from auditlake.apply.tails import Tail
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, HistoryTable
from auditlake.lake.scan import File, Files, find_files, read_rows
from auditlake.lake.session import read_version
from auditlake.lsn import Lsn
from auditlake.query.documents import documents_of, shown
from auditlake.query.moments import Known
from auditlake.query.selection import Bounds, Selection, State, Versions
from auditlake.query.tail import Tails, upto
from auditlake.relation import Column

# A row's mark is found here by its file's name and its place, which for millions of rows takes longer than Delta does.
_MARKED_ROWS = 1_000_000
_IS_OPEN = f"_part = '{OPEN_PART}'"
_PERIOD = tuple(name for name, _ in PERIOD_COLUMNS if name != "_part")


def read_selection(
    spark: SparkSession, known: Known, table: HistoryTable, selection: Selection, tails: Tails
) -> DataFrame:
    """Read the rows of a selection: source columns, and for versions those of their periods too."""
    tail = tails.get((table, upto(known, selection)))
    match selection:
        case State(lsn, raw):
            rows = _state(spark, table, lsn, tail)
            columns = table.columns_at(lsn) if tail is None else tail.columns
            return rows.selectExpr(*_shown(spark, columns, ["_raw"] if raw else []))
        case Versions(bounds):
            rows = _versions(spark, table, tail).where("false" if bounds is None else _within(bounds))
            columns = table.columns_at(table.position) if tail is None else tail.columns
            return rows.selectExpr(*_shown(spark, columns, _PERIOD))
        case _:
            assert_never(selection)


def _versions(spark: SparkSession, table: HistoryTable, tail: Tail | None) -> DataFrame:
    rows = _rows(spark, table, find_files(table), lambda _: True)
    folded = None if tail is None else fold_tail(spark, tail)
    if tail is None or folded is None:
        return rows
    return only_while_there(overlay(history_in_shape(rows, tail), folded, tail.columns), tail.added)


def _state(spark: SparkSession, table: HistoryTable, lsn: Lsn, tail: Tail | None) -> DataFrame:
    if lsn < table.position:
        return _held(spark, table, lsn)
    # Every closed version ended at or before the position, and every open one had begun by then.
    rows = _rows(spark, table, find_files(table), lambda file: file.is_open).where(_IS_OPEN)
    folded = None if tail is None else fold_tail(spark, tail)
    if tail is None or folded is None:
        return rows
    return overlay_open(history_in_shape(rows, tail), folded, tail.columns).where(_holds(lsn))


def _held(spark: SparkSession, table: HistoryTable, lsn: Lsn) -> DataFrame:
    """The versions that were there at `lsn`.

    Where the log says that all of a file's were, their LSNs are not read: no two are alike, so that takes longer than
    to read what most people want to see.
    """
    found = find_files(table)
    if found is None or _is_much_marked(found):
        return _rows(spark, table, found, lambda file: _may_hold(file, lsn)).where(_holds(lsn))
    whole = found.which(lambda file: _holds_all(file, lsn))
    partly = found.which(lambda file: _may_hold(file, lsn) and file.name not in whole.by_name)
    rows = read_rows(spark, partly).where(_holds(lsn))
    return read_rows(spark, whole).unionByName(rows) if whole.by_name else rows


def _holds(lsn: Lsn) -> str:
    return f"_from_lsn <= {lsn:d} and (_to_lsn is null or _to_lsn > {lsn:d})"


def _holds_all(file: File, lsn: Lsn) -> bool:
    """Whether the log says that all versions of the file were there at `lsn`."""
    begins, ends = file.bounds("_from_lsn"), file.bounds("_to_lsn")
    return begins is not None and begins[1] <= lsn and (file.is_open or (ends is not None and ends[0] > lsn))


def _may_hold(file: File, lsn: Lsn) -> bool:
    """Whether the file may have versions that were there at `lsn`."""
    begins, ends = file.bounds("_from_lsn"), None if file.is_open else file.bounds("_to_lsn")
    return (begins is None or begins[0] <= lsn) and (ends is None or ends[1] > lsn)


def _rows(spark: SparkSession, table: HistoryTable, found: Files | None, wanted: Callable[[File], bool]) -> DataFrame:
    """The history's rows, out of the files that were found; of those that are not wanted, none or all."""
    if found is None:
        return _through_delta(spark, table)
    if not _is_much_marked(found):
        return read_rows(spark, found.which(wanted))
    # Versions that have ended do not end again: marks are in the open partition.
    opened = _through_delta(spark, table).where(_IS_OPEN)
    return read_rows(spark, found.which(lambda file: wanted(file) and not file.is_open)).unionByName(opened)


def _is_much_marked(files: Files) -> bool:
    return files.which(lambda file: file.is_marked).rows > _MARKED_ROWS


def _through_delta(spark: SparkSession, table: HistoryTable) -> DataFrame:
    return read_version(spark, str(table.path), table.delta_version)


def _within(limits: Bounds) -> str:
    conditions = ["true"]
    if limits.from_above is not None:
        conditions.append(f"_from_lsn > {limits.from_above:d}")
    if limits.from_up_to is not None:
        conditions.append(f"_from_lsn <= {limits.from_up_to:d}")
    if limits.open_after is not None:
        conditions.append(f"(_to_lsn is null or _to_lsn > {limits.open_after:d})")
    if limits.to_up_to is not None:
        conditions.append(f"_to_lsn <= {limits.to_up_to:d}")
    return " and ".join(conditions)


def _shown(spark: SparkSession, columns: Sequence[Column], others: Sequence[str]) -> list[str]:
    documents = documents_of(spark, columns)
    return [shown(name, documents) for name in (*(column.stored for column in columns), *others)]
