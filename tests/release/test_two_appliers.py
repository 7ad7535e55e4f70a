"""Test of two processes that apply one table: the second commit is refused, however late the first is made."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import auditlake.apply.merge as merging
from auditlake.apply.apply import apply_pending
from auditlake.apply.merge import Plan
from auditlake.errors import LakeConflict
from auditlake.lsn import Lsn
from tests.model import Insert, Operation, Update
from tests.s3_server import chosen_lake, copy_lake
from tests.spark.apply import between
from tests.spark.apply.harness import Source, all_rows, apply_as, the_history
from tests.spark.apply.test_fold_cases import A, B, C, row, snapshot, stream

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("plan", list(Plan))
def test_a_commit_during_the_read_of_the_source_is_a_conflict(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    """A commit of another process after the check of the position is detected, and no version is written twice."""
    source = Source(chosen_lake(tmp_path / "ours"))
    first: list[Operation] = [Insert(B, row("b"))] if plan is Plan.APPEND else [Update(A, A, row("b"))]
    stream(source, snapshot(A), {110: first, 120: [Insert(C, row("c"))]})
    theirs = copy_lake(source.lake, tmp_path / "theirs")
    apply_pending(lambda: spark, theirs, Lsn(115))

    if plan is Plan.MARK:
        monkeypatch.setattr("auditlake.lake.history.put_commit", between.committed_before_entry(theirs, source.lake))
    else:
        monkeypatch.setattr(merging, "_checked", between.committed_while_read(theirs, source.lake))
    with pytest.raises(LakeConflict):
        apply_as(spark, source.lake, 120, plan)
    assert the_history(source.lake).position == 115
    monkeypatch.undo()

    apply_pending(lambda: spark, theirs)
    apply_pending(lambda: spark, source.lake)
    assert all_rows(spark, source.lake) == all_rows(spark, theirs)
