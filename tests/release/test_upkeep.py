"""Tests of compaction and clustering of a history, alone and during a merge."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_pending
from auditlake.apply.merge import Plan, merge
from auditlake.apply.tail_fold import fold_tail
from auditlake.apply.tails import find_tails, open_log
from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.table import open_table
from auditlake.lake import maintenance as upkeep
from auditlake.lake.history_files import data_files, part_of
from auditlake.lake.maintenance import Due, Means, maintain, rewrite_due
from auditlake.lsn import Lsn
from auditlake.spark.on_demand import SparkOnDemand
from tests.model import Delete, Insert, Update
from tests.s3_server import chosen_lake, copy_lake
from tests.spark.apply import between
from tests.spark.apply.harness import Source, all_rows, apply_as, delta_version, the_history
from tests.spark.apply.test_fold_cases import A, B, C, D, capture, history, row, snapshot, stream, version

pytestmark = pytest.mark.spark


def test_maintenance_changes_files_only(spark: SparkSession, tmp_path: Path) -> None:
    """Rows, position and horizon stay; the open partition is one file, closed versions are sorted by start LSN."""
    source = Source(chosen_lake(tmp_path))
    lake = source.lake
    stream(source, snapshot(A, B, C), {110: [Update(A, A, row("x"))]})
    apply_as(spark, lake, 110, Plan.MERGE)
    capture(source, snapshot(A, B, C), {120: [Update(A, A, row("y")), Delete(C)]})
    apply_as(spark, lake, 120, Plan.REPLACE)
    capture(source, snapshot(A, B), {130: [Update(A, A, row("z"))]})
    apply_as(spark, lake, 130, Plan.MARK)
    before, rows = the_history(lake), all_rows(spark, lake)
    said: list[str] = []

    maintain(SparkOnDemand({}), lake, said.append)
    after = the_history(lake)
    assert all_rows(spark, lake) == rows
    assert (after.position, after.horizon) == (before.position, before.horizon)
    assert len(data_files(after)) == len({part_of(file) for file in data_files(before)}) < len(data_files(before))
    assert said == [f"maintained {after.name}: {len(data_files(before))} files are {len(data_files(after))}"]
    assert open_table(after.path).transaction_version("auditlake/history") == 130

    maintain(SparkOnDemand({}), lake, said.append)
    assert data_files(the_history(lake)) == data_files(after)


@pytest.mark.parametrize(("known", "whole"), [(True, True), (False, True), (False, False)])
def test_large_partitions_are_compacted_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, known: bool, whole: bool
) -> None:
    """Rows stay the same for partitions above the memory limit, and for tables changed by other software."""
    source = Source(chosen_lake(tmp_path))
    lake = source.lake
    stream(source, snapshot(A, B), {110: [Update(A, A, row("x"))]})
    apply_pending(lambda: spark, lake)
    capture(source, snapshot(A, B), {120: [Update(A, A, row("y"))]})
    apply_pending(lambda: spark, lake)
    before, rows = the_history(lake), all_rows(spark, lake)
    monkeypatch.setattr(upkeep, "may_hold", lambda _: False)
    if not known:
        monkeypatch.setattr(upkeep, "find_files", lambda _: None)
    closed, opened = sorted({part_of(file) for file in data_files(before)})
    names = tuple(file.name for file in data_files(before) if part_of(file) == closed)
    wanted = {"closed_parts": (closed,)} if whole else {"closed_files": ((closed, names),)}
    assert rewrite_due(Means(spark.newSession), before, Due(open_part=True, **wanted))
    assert all_rows(spark, lake) == rows
    after = [part_of(file) for file in data_files(the_history(lake))]
    assert (after.count(opened), after.count(closed)) == (1, 2 if known else 1), "by ages, where the log is known"
    assert delta_version(lake) == before.delta_version + 2


def test_a_merge_finds_rows_compacted_since_its_plan(spark: SparkSession, tmp_path: Path) -> None:
    """No version is lost or duplicated if files are compacted after the fold was planned."""
    source = Source(chosen_lake(tmp_path))
    lake = source.lake
    stream(source, snapshot(A, B), {110: [Update(A, A, row("x"))]})
    apply_pending(lambda: spark, lake)
    capture(source, snapshot(A, B), {120: [Update(A, A, row("y")), Insert(D, row("d"))]})
    table, log = the_history(lake), open_log(lake)
    assert log is not None
    (tail,) = find_tails(lake, log, {table: table.position}, Lsn(120))
    folded = fold_tail(spark, tail)
    assert folded is not None

    assert rewrite_due(Means(spark.newSession), table, Due(open_part=True, closed_parts=()))
    checkpoint(table.path)
    merge(tail, folded, Plan.REPLACE)
    rows = all_rows(spark, lake)
    assert sum("_part='open'" in each for each in rows) == 3
    assert len(rows) == 5


@pytest.mark.parametrize("plan", [Plan.MERGE, Plan.MARK])
def test_a_compaction_during_a_write_makes_the_tail_be_planned_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    """The first commit is refused; the second writes each version once, with one position."""
    source = Source(chosen_lake(tmp_path / "ours"))
    lake = source.lake
    stream(source, snapshot(A, B), {110: [Insert(C, row("c"))]})
    apply_pending(lambda: spark, lake)
    capture(source, snapshot(A, B, C), {120: [Update(A, A, row("y")), Insert(D, row("d"))]})
    theirs = copy_lake(lake, tmp_path / "theirs")
    assert rewrite_due(Means(spark.newSession), the_history(theirs), Due(open_part=True, closed_parts=()))
    before, planned = delta_version(lake), between.planned_versions(monkeypatch, plan, theirs, lake)
    apply_pending(lambda: spark, lake)
    assert planned == [before, before + 1], "the first was planned before files were joined, the second after"
    assert (the_history(lake).position, delta_version(lake)) == (120, before + 2)
    assert history(spark, lake) == {
        version(A, row("old"), (100, "snapshot", None), (120, "update")),
        version(A, row("y"), (120, "update", 0)),
        version(B, row("old"), (100, "snapshot", None)),
        version(C, row("c"), (110, "insert", 0)),
        version(D, row("d"), (120, "insert", 1)),
    }
