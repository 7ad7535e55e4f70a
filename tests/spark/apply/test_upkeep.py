"""Upkeep of a history: the same rows and position in fewer files, beside apply and killed anywhere."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_tail, fold_tail
from auditlake.apply.merge import Plan, merge
from auditlake.apply.tails import find_tails, open_log
from auditlake.lake.files import data_files
from auditlake.lake.layout import Lake
from auditlake.lake.upkeep import Due, checkpoint, rewrite
from auditlake.lsn import Lsn
from auditlake.maintain import maintain
from tests.model import Delete, Insert, Update
from tests.spark.apply.harness import Source, all_rows, apply_as, the_history
from tests.spark.apply.test_fold_cases import A, B, C, D, capture, row, snapshot, stream

pytestmark = pytest.mark.spark


def test_upkeep_changes_files_only(spark: SparkSession, tmp_path: Path) -> None:
    """Rows, position and horizon stay; the open partition is one file, closed rows lie in the order of their begin."""
    source = Source(Lake(tmp_path))
    lake = source.lake
    stream(source, snapshot(A, B, C), {110: [Update(A, A, row("x"))]})
    apply_as(spark, lake, 110, Plan.MERGE)
    capture(source, snapshot(A, B, C), {120: [Update(A, A, row("y")), Delete(C)]})
    apply_as(spark, lake, 120, Plan.REPLACE)
    before, rows = the_history(lake), all_rows(spark, lake)
    said: list[str] = []

    maintain(spark, lake, said.append)
    after = the_history(lake)
    assert all_rows(spark, lake) == rows
    assert (after.position, after.horizon) == (before.position, before.horizon)
    assert len(data_files(after)) == len({file.part for file in data_files(before)}) < len(data_files(before))
    assert said == [f"maintained {after.name}: {len(data_files(before))} files are {len(data_files(after))}"]
    assert DeltaTable(after.path).transaction_version("auditlake/history") == 120

    maintain(spark, lake, said.append)
    assert data_files(the_history(lake)) == data_files(after)


def test_files_joined_beside_a_merge(spark: SparkSession, tmp_path: Path) -> None:
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
