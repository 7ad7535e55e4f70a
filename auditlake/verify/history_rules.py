"""Check the versions of a history against its own rules and against `changes`. Needs no source; runs in Spark.

Structure:
  S1  No period is empty.
  S2  No period of a key overlaps the next.
  S3  At most one version of a key is open.
  S4  `_part` agrees with the end.
  S5  Every LSN is in [first snapshot, position], and no version ended before the horizon.
S2 and S3 are checked in each era of the key (`key_eras`), by the columns that were the key then.

Replay: the snapshot's rows in their state before the first change, and the fold of all changes up to the position, must
produce exactly this history: every version once, with every value, and with the commits that began and ended it. This
finds versions whose begin or end is in no change, changes without a version, altered values and hidden rows. Changes
before and after a change of the key are folded one after the other, as apply folds them.

Limits: the fold is apply's own. Here it is compared with the written history; the comparison of states with the source
checks the fold itself. Of the snapshot's rows only the ends are known here: a lost row that no change mentions is found
only by comparison with the source.

Values do not leave Spark's workers: rows are compared by hashes, and only the keys of differing rows are collected.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply import keys, typed_values
from auditlake.apply.large_rows import find_too_large, heap_bytes
from auditlake.apply.tail_fold import fold_tail, overlay, without_raw
from auditlake.apply.tails import ChangesVersion, Tail, find_tails
from auditlake.fold.net import ENDS
from auditlake.fold.open_versions import key_of
from auditlake.lake.erasures import ERASED_KEY
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, HistoryTable, type_of
from auditlake.lake.history_files import find_files
from auditlake.lake.history_rows import read_rows
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.spark.planning import read_version
from auditlake.temporal.as_of_predicate import as_of_sql, ends_after_sql
from auditlake.values.exact_text import exact_texts
from auditlake.values.types import ColumnType, Conversion
from auditlake.verify.key_eras import KeyEra, era_conditions, key_eras
from auditlake.verify.report import Finding, TableReport

_PERIOD = tuple(name for name, _ in PERIOD_COLUMNS)
_NULLABLE_ENDS = ("_to_time", "_end_op")
_PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class History:
    """All versions of a table at its Delta version; the changes after the snapshot at `since` are complete."""

    table: HistoryTable
    rows: DataFrame
    count: int
    since: Lsn


def read_history(session: SparkSession, table: HistoryTable, since: Lsn) -> History:
    """Plan the read of all versions."""
    files = find_files(table)
    if files is None:
        rows = read_version(session, str(table.path), table.delta_version)
        return History(table, rows, rows.count(), since)
    count = sum(file.rows - file.deleted_rows for file in files.by_name.values())
    return History(table, read_rows(session, files), count, since)


def check_structure(history: History, limit: int) -> TableReport:
    """Check periods and partitions of each key."""
    findings: list[Finding] = []
    for era in key_eras(history.table):
        findings += _broken_in(era, history, limit + 1 - len(findings))
    return TableReport(str(history.table.name)).with_findings(findings, limit)


def _broken_in(era: KeyEra, history: History, limit: int) -> list[Finding]:
    """Find versions of an era that break a rule; rules of one version alone are checked in the era of its begin."""
    of_era, begins_here = era_conditions(era)
    rows = history.rows.where(of_era).select(*_named_key(era.columns), *(F.col(name) for name in _PERIOD))
    rows = rows.withColumn("following", _following(era.columns))
    problem = _problem(history.table, begins_here)
    broken = rows.withColumn(_PROBLEM, problem).where(F.col(_PROBLEM).isNotNull())
    listed = broken.select(_PROBLEM, "_from_lsn", *_key_names(era.columns)).limit(max(0, limit)).toArrow()
    places = zip(listed[_PROBLEM].to_pylist(), listed["_from_lsn"].to_pylist(), strict=True)
    return [
        Finding(problem, key, lsn=None if begin is None else Lsn(begin))
        for (problem, begin), key in zip(places, _keys_of(listed, era.columns), strict=True)
    ]


def _following(columns: Sequence[Column]) -> Expression:
    """Return the begin of the key's next version; NULL in a table without a key."""
    if not key_of(columns):
        return F.lit(None).cast("bigint")
    in_order = Window.partitionBy(*_key_names(columns)).orderBy("_from_lsn", F.col("_to_lsn").asc_nulls_last())
    return F.lead("_from_lsn").over(in_order)


def _problem(table: HistoryTable, begins_here: Expression) -> Expression:
    begin, end, following = F.col("_from_lsn"), F.col("_to_lsn"), F.col("following")
    is_open = end.isNull()
    part = F.when(is_open, F.lit(OPEN_PART)).otherwise(F.date_format("_to_time", "yyyy-MM"))
    half_ended = reduce(lambda a, b: a | b, (F.col(name).isNull() != is_open for name in _NULLABLE_ENDS))
    first, position = int(table.first_snapshot_lsn), int(table.position)  # py4j would format an Lsn as PostgreSQL does
    expired = end <= int(table.horizon) if table.has_expired else F.lit(False)
    outside = (
        F.coalesce(expired, F.lit(False)) | (begin < first) | (begin > position) | (F.coalesce(end, begin) > position)
    )
    return (
        F.when(begin.isNull(), "version without a begin")
        .when(begins_here & (end <= begin), "empty period")
        .when(is_open & following.isNotNull(), "open version before a later one")
        .when(end > following, "overlapping periods")
        .when(begins_here & half_ended, "half an end")
        .when(begins_here & ~F.col("_part").eqNullSafe(part), "wrong partition")
        .when(begins_here & outside, "outside horizon and position")
    )


def check_replay(session: SparkSession, lake: Lake, log: ChangesVersion, history: History, limit: int) -> TableReport:
    """Fold all changes of a table from the snapshot at `history.since` on, and compare the result with its history."""
    table, base = history.table, history.since
    rows = _as_begun(history.rows.where(as_of_sql(base)), table.columns_at(base))
    columns, at = table.columns_at(base), base
    while (tail := _next_tail(lake, log, table, at)) is not None:
        if (reason := _not_folded(session, lake, tail)) is not None:
            return TableReport(str(table.name), reason=reason)
        folded = fold_tail(session, tail, rows.where("_to_lsn is null"))
        rows, columns, at = overlay(rows, folded, tail), tail.columns, tail.upto
        if not tail.is_cut:
            break
        rows = rows.localCheckpoint()  # each pass reads its rows twice
    columns = _identified_since(table, base, columns)
    listed = _compared(history.rows.where(ends_after_sql(base)), rows, columns).limit(limit + 1).toArrow()
    return TableReport(str(table.name)).with_findings(_replay_findings(listed, columns), limit)


def _next_tail(lake: Lake, log: ChangesVersion, table: HistoryTable, after: Lsn) -> Tail | None:
    """Find the changes from an LSN on that can be folded together; None if there are none."""
    begun = replace(table, position=after)
    tails = find_tails(lake, log, {begun: after}, table.position)
    return tails[0] if tails else None


def _not_folded(session: SparkSession, lake: Lake, tail: Tail) -> str | None:
    """Return why a tail cannot be folded, if it cannot."""
    if tail.refusal is not None:
        return f"its changes cannot be folded from its snapshot on: {tail.refusal.message}"
    if large := find_too_large(lake, tail, heap_bytes(session)):
        return f"its changes cannot be folded again: {large.reason}"
    return None


def _identified_since(table: HistoryTable, base: Lsn, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns with the key flag of every column that was part of the key since an LSN.

    At any moment, these columns identify a row at least as well as the key of that moment.
    """
    eras = [era for era in key_eras(table) if era.end is None or era.end > base]
    ever = {column.stored for era in eras for column in key_of(era.columns)}
    return tuple(replace(column, key=column.stored in ever) for column in columns)


def _as_begun(rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Return the snapshot's rows in their state before any change."""
    kinds = dict(PERIOD_COLUMNS)
    period = [F.lit(None).cast(kinds[n]).alias(n) if n in ENDS else F.col(n) for n in _PERIOD if n != "_part"]
    return rows.select(*(keys.source(c.stored) for c in columns), *period, F.lit(OPEN_PART).alias("_part"))


def _compared(actual: DataFrame, expected: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Return the versions that do not exist exactly once on each side, or that differ."""
    hashes = F.array(*(_hash(keys.source(c.stored), type_of(c)) for c in columns), *map(_period_hash, _PERIOD))
    identity = ["_from_lsn", *(_key_names(columns) or ["_ordinal"])]

    def side(rows: DataFrame, name: str) -> DataFrame:
        order = [F.col("_from_lsn")] + ([] if key_of(columns) else [F.col("_ordinal")])
        return rows.select(*order, *_named_key(columns), F.lit(name).alias("side"), hashes.alias("hashes"))

    here, there = F.col("side") == "history", F.col("side") == "changes"
    both = side(actual, "history").unionByName(side(expected, "changes"))
    compared = both.groupBy(*identity).agg(
        F.count_if(here).alias("here"),
        F.count_if(there).alias("there"),
        F.max(F.when(here, F.col("hashes"))).alias("written"),
        F.max(F.when(there, F.col("hashes"))).alias("folded"),
    )
    return compared.where((F.col("here") != 1) | (F.col("there") != 1) | (F.col("written") != F.col("folded")))


def _hash(value: Expression, column_type: ColumnType) -> Expression:
    """Hash a typed value; NULL differs from every value, and -0 from 0."""
    element = column_type if column_type.element is None else column_type.element
    exact = typed_values.distinct_text(column_type, value) if element.kind is Conversion.FLOAT else value
    return F.xxhash64(exact, value.isNull())


def _period_hash(name: str) -> Expression:
    if name == "_raw":  # the entries of a map have no order, and changes do not have the names of erased columns
        raw = without_raw(F.col("_raw"), ERASED_KEY)
        return F.xxhash64(F.array_sort(F.map_entries(raw)), raw.isNull())
    return F.xxhash64(F.col(name), F.col(name).isNull())


def _replay_findings(listed: pa.Table, columns: Sequence[Column]) -> list[Finding]:
    names = [*(column.name for column in columns), *_PERIOD]
    findings = []
    for key, row in zip(_keys_of(listed, columns), listed.to_pylist(), strict=True):
        lsn = Lsn(row["_from_lsn"])
        if not row["here"]:
            findings.append(Finding("missing version", key, lsn=lsn, count=row["there"]))
        elif not row["there"]:
            findings.append(Finding("version in no change", key, lsn=lsn, count=row["here"]))
        elif row["here"] > 1:
            findings.append(Finding("duplicate version", key, lsn=lsn, count=row["here"] - 1))
        else:
            pairs = zip(names, row["written"], row["folded"], strict=True)
            differing = tuple(name for name, written, folded in pairs if written != folded)
            findings.append(Finding("different version", key, differing, lsn))
    return findings


def _key_names(columns: Sequence[Column]) -> list[str]:
    """Return the names of the key's columns; empty for a table without a key."""
    return keys.names(columns) if key_of(columns) else []


def _named_key(columns: Sequence[Column]) -> list[Expression]:
    return keys.from_history(columns) if key_of(columns) else []


def _keys_of(listed: pa.Table, columns: Sequence[Column]) -> Iterator[tuple[tuple[str, str | None], ...]]:
    """Yield the key of each row: pairs of column name and PostgreSQL's text."""
    key = key_of(columns)
    texts = []
    for place, column in enumerate(key):
        values = listed[f"k{place}"].combine_chunks()
        raws = listed[f"r{place}"].combine_chunks() if type_of(column).may_not_fit else None
        texts.append(exact_texts(values, type_of(column), raws).to_pylist())
    for at in range(listed.num_rows):
        yield tuple((column.name, texts[place][at]) for place, column in enumerate(key))
