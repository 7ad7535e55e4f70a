"""Tests of a vacuum while another process is suspended before its commit for longer than files are kept."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.apply.apply import apply_pending
from auditlake.apply.merge import Plan
from auditlake.delta import log_writer
from auditlake.delta.checkpoints import KEPT_FOR_S
from auditlake.delta.log_writer import Action, put_commit
from auditlake.lake import compaction
from auditlake.lake.history_files import find_files
from auditlake.lake.layout import Lake
from auditlake.lake.maintenance import Due, Means, rewrite_due, vacuum
from tests.model import Insert, Operation, Update
from tests.s3_server import chosen_lake, copy_lake, on_disk
from tests.spark.apply import between
from tests.spark.apply.harness import NAME, Source, all_rows, delta_version, the_history
from tests.spark.apply.test_fold_cases import A, B, C, D, history, row, snapshot, stream, version

pytestmark = pytest.mark.spark


def _vacuumed_once_before(spark: SparkSession, lake: Lake) -> between.Put:
    """Return a `put_commit` before which, once, a vacuum finds all files older than the retention."""
    waiting = [True]

    def put(path: Path, number: int, operation: str, actions: Iterable[Action]) -> None:
        if waiting:
            waiting.pop()
            for file in lake.history(NAME).rglob("*"):
                os.utime(file, (time.time() - 2 * KEPT_FOR_S,) * 2)
            vacuum(Means(spark.newSession), the_history(lake))
        put_commit(path, number, operation, actions)

    return put


def _missing(lake: Lake) -> list[Path]:
    """Return the data files and deletion vectors that the log names and the disk does not have."""
    files = find_files(the_history(lake))
    assert files is not None
    for name in files.by_name:
        files.gone(name)
    return [path for path in files.paths if not path.exists()]


@on_disk("an object has the time of its put")
def test_a_fold_whose_files_a_vacuum_deleted_is_written_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first commit is refused although nobody else changed the table; otherwise versions would be lost."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A, B), {110: [Update(A, A, row("x"))]})
    monkeypatch.setattr("auditlake.lake.history.put_commit", _vacuumed_once_before(spark, source.lake))
    apply_pending(lambda: spark, source.lake)
    assert (the_history(source.lake).position, _missing(source.lake)) == (110, [])
    assert history(spark, source.lake) == {
        version(A, row("old"), (100, "snapshot", None), (110, "update")),
        version(A, row("x"), (110, "update", 0)),
        version(B, row("old"), (100, "snapshot", None)),
    }


@on_disk("an object has the time of its put")
def test_a_compaction_whose_file_a_vacuum_deleted_is_not_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays due; otherwise all rows of the open partition would be lost."""
    source = Source(chosen_lake(tmp_path))
    stream(source, snapshot(A, B), {110: [Insert(C, row("c"))]})
    apply_pending(lambda: spark, source.lake)
    rows = all_rows(spark, source.lake)
    monkeypatch.setattr(log_writer, "put_commit", _vacuumed_once_before(spark, source.lake))
    assert not rewrite_due(Means(spark.newSession), the_history(source.lake), Due(open_part=True))
    assert (all_rows(spark, source.lake), _missing(source.lake)) == (rows, [])
    assert rewrite_due(Means(spark.newSession), the_history(source.lake), Due(open_part=True))
    assert all_rows(spark, source.lake) == rows


@pytest.mark.parametrize("plan", list(Plan))
def test_a_fence_makes_every_plan_be_planned_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    """Also the commits of Spark, which goes on with the next version if a commit concerns other rows only."""
    source = Source(chosen_lake(tmp_path / "ours"))
    lake = source.lake
    tail: list[Operation] = (
        [Insert(D, row("d"))] if plan is Plan.APPEND else [Update(A, A, row("y")), Insert(D, row("d"))]
    )
    stream(source, snapshot(A, B), {110: tail})
    theirs = copy_lake(lake, tmp_path / "theirs")
    assert compaction.fence(the_history(theirs))
    before, planned = delta_version(lake), between.planned_versions(monkeypatch, plan, theirs, lake)
    apply_pending(lambda: spark, lake)
    assert planned == [before, before + 1]
    assert (the_history(lake).position, delta_version(lake)) == (110, before + 2)
