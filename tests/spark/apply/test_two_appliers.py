"""Two processes that apply one table: the second commit is refused, however late the first one comes."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import auditlake.apply.merge as merging
from auditlake.apply.apply import apply_tail
from auditlake.apply.merge import Plan
from auditlake.errors import LakeConflict
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from tests.model import Insert, Operation, Update
from tests.spark.apply.harness import NAME, Source, all_rows, apply_as, the_history
from tests.spark.apply.test_fold_cases import A, B, C, row, snapshot, stream

pytestmark = pytest.mark.spark

Check = Callable[[SparkSession, HistoryTable, DataFrame], DataFrame]


@pytest.mark.parametrize("plan", list(Plan))
def test_a_commit_while_the_source_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    """What another process commits after the position was checked, wherever Delta is by then, is seen: no row twice."""
    source = Source(Lake(tmp_path / "ours"))
    first: list[Operation] = [Insert(B, row("b"))] if plan is Plan.APPEND else [Update(A, A, row("b"))]
    stream(source, snapshot(A), {110: first, 120: [Insert(C, row("c"))]})
    theirs = Lake(tmp_path / "theirs")
    shutil.copytree(source.lake.root, theirs.root)
    apply_tail(spark, theirs, 115)

    monkeypatch.setattr(merging, "_checked", _then(merging._checked, _commit_of(theirs, source.lake)))  # noqa: SLF001
    with pytest.raises(LakeConflict):
        apply_as(spark, source.lake, 120, plan)
    assert the_history(source.lake).position == 115
    monkeypatch.undo()

    apply_tail(spark, theirs)
    apply_tail(spark, source.lake)
    assert all_rows(spark, source.lake) == all_rows(spark, theirs)


def _commit_of(theirs: Lake, ours: Lake) -> tuple[Path, Path]:
    """Bring the files of their commit to where ours are; the commit itself, and where it would stand."""
    log = Path("_delta_log", f"{the_history(theirs).delta_version:020}.json")
    there, here = theirs.history(NAME), ours.history(NAME)
    shutil.copytree(there, here, ignore=shutil.ignore_patterns("_delta_log"), dirs_exist_ok=True)
    shutil.copy(there / log, here / "their commit")
    return here / "their commit", here / log


def _then(check: Check, commit: tuple[Path, Path]) -> Check:
    """Check, and make the commit once all rows were read and the check is done."""
    waiting, committed = map(str, commit)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if os.path.exists(waiting):  # noqa: PTH110 - in a process that knows no other import
            os.rename(waiting, committed)  # noqa: PTH104

    def checked(spark: SparkSession, table: HistoryTable, rows: DataFrame) -> DataFrame:
        plain = check(spark, table, rows).coalesce(1).toDF(*(f"c{place}" for place, _ in enumerate(rows.columns)))
        return plain.mapInArrow(read, plain.schema).toDF(*rows.columns)  # which takes no odd names

    return checked
