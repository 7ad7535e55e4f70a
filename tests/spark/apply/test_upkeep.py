"""Upkeep of a history: the same rows and position in fewer files, beside apply and killed anywhere."""

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import auditlake.apply.apply as applying
import auditlake.apply.mark as marking
import auditlake.apply.merge as merging
from auditlake.apply.apply import apply_tail, fold_tail
from auditlake.apply.merge import Plan, merge
from auditlake.apply.tails import Tail, find_tails, open_log
from auditlake.lake import upkeep
from auditlake.lake.files import data_files
from auditlake.lake.layout import Lake
from auditlake.lake.upkeep import Due, checkpoint, rewrite
from auditlake.lsn import Lsn
from auditlake.maintain import maintain
from tests.model import Delete, Insert, Update
from tests.spark.apply import between
from tests.spark.apply.harness import Source, all_rows, apply_as, delta_version, the_history
from tests.spark.apply.test_fold_cases import A, B, C, D, capture, history, row, snapshot, stream, version

pytestmark = pytest.mark.spark


def test_upkeep_changes_files_only(spark: SparkSession, tmp_path: Path) -> None:
    """Rows, position and horizon stay; the open partition is one file, closed rows lie in the order of their begin."""
    source = Source(Lake(tmp_path))
    lake = source.lake
    stream(source, snapshot(A, B, C), {110: [Update(A, A, row("x"))]})
    apply_as(spark, lake, 110, Plan.MERGE)
    capture(source, snapshot(A, B, C), {120: [Update(A, A, row("y")), Delete(C)]})
    apply_as(spark, lake, 120, Plan.REPLACE)
    capture(source, snapshot(A, B), {130: [Update(A, A, row("z"))]})
    apply_as(spark, lake, 130, Plan.MARK)
    before, rows = the_history(lake), all_rows(spark, lake)
    said: list[str] = []

    maintain(spark, lake, said.append)
    after = the_history(lake)
    assert all_rows(spark, lake) == rows
    assert (after.position, after.horizon) == (before.position, before.horizon)
    assert len(data_files(after)) == len({file.part for file in data_files(before)}) < len(data_files(before))
    assert said == [f"maintained {after.name}: {len(data_files(before))} files are {len(data_files(after))}"]
    assert DeltaTable(after.path).transaction_version("auditlake/history") == 130

    maintain(spark, lake, said.append)
    assert set(data_files(the_history(lake))) == set(data_files(after))


@pytest.mark.parametrize(("known", "whole"), [(True, True), (False, True), (False, False)])
def test_large_parts_are_joined_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, known: bool, whole: bool
) -> None:
    """What should not be held in memory, and files of a table that others have changed: with the same rows."""
    source = Source(Lake(tmp_path))
    lake = source.lake
    stream(source, snapshot(A, B), {110: [Update(A, A, row("x"))]})
    apply_tail(spark, lake)
    capture(source, snapshot(A, B), {120: [Update(A, A, row("y"))]})
    apply_tail(spark, lake)
    before, rows = the_history(lake), all_rows(spark, lake)
    monkeypatch.setattr(upkeep, "HELD_BYTES", 0)
    if not known:
        monkeypatch.setattr(upkeep, "find_files", lambda _: None)
    closed, opened = sorted({file.part for file in data_files(before)})
    names = tuple(file.name for file in data_files(before) if file.part == closed)
    wanted = {"closed_parts": (closed,)} if whole else {"closed_files": ((closed, names),)}
    assert rewrite(spark.newSession(), before, Due(open_part=True, **wanted))
    assert all_rows(spark, lake) == rows
    after = [file.part for file in data_files(the_history(lake))]
    assert (after.count(opened), after.count(closed)) == (1, 2 if known else 1), "by ages, where the log is known"
    assert delta_version(lake) == before.delta_version + 2


def test_files_joined_before_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    """What was joined after the fold was planned is found where it is now: nothing is lost, nothing doubled."""
    source = Source(Lake(tmp_path))
    lake = source.lake
    stream(source, snapshot(A, B), {110: [Update(A, A, row("x"))]})
    apply_tail(spark, lake)
    capture(source, snapshot(A, B), {120: [Update(A, A, row("y")), Insert(D, row("d"))]})
    table, log = the_history(lake), open_log(lake)
    assert log is not None
    (tail,) = find_tails(lake, log, {table: table.position}, Lsn(120))
    folded = fold_tail(spark, tail)
    assert folded is not None

    assert rewrite(spark.newSession(), table, Due(open_part=True, closed_parts=()))
    checkpoint(table)
    merge(tail, folded, Plan.REPLACE)
    rows = all_rows(spark, lake)
    assert sum("_part='open'" in each for each in rows) == 3
    assert len(rows) == 5


@pytest.mark.parametrize("plan", [Plan.MERGE, Plan.MARK])
def test_files_joined_while_a_tail_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    """The commit is refused, and the tail planned again on the files as they are now: one position, nothing doubled."""
    source = Source(Lake(tmp_path / "ours"))
    lake = source.lake
    stream(source, snapshot(A, B), {110: [Insert(C, row("c"))]})
    apply_tail(spark, lake)
    capture(source, snapshot(A, B, C), {120: [Update(A, A, row("y")), Insert(D, row("d"))]})
    theirs = Lake(tmp_path / "theirs")
    shutil.copytree(lake.root, theirs.root)
    assert rewrite(spark.newSession(), the_history(theirs), Due(open_part=True, closed_parts=()))
    before, planned = delta_version(lake), list[int]()

    def planned_on(tail: Tail) -> Plan:
        planned.append(tail.table.delta_version)
        return plan

    monkeypatch.setattr(applying, "choose_plan", planned_on)
    monkeypatch.setattr(marking, "put_commit", between.committed_before_entry(theirs, lake))
    monkeypatch.setattr(merging, "_checked", between.committed_while_read(theirs, lake))
    apply_tail(spark, lake)
    assert planned == [before, before + 1], "the first was planned before files were joined, the second after"
    assert (the_history(lake).position, delta_version(lake)) == (120, before + 2)
    assert history(spark, lake) == {
        version(A, row("old"), (100, "snapshot", None), (120, "update")),
        version(A, row("y"), (120, "update", 0)),
        version(B, row("old"), (100, "snapshot", None)),
        version(C, row("c"), (110, "insert", 0)),
        version(D, row("d"), (120, "insert", 1)),
    }
